package sandbox

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pkg/sftp"
)

// TestSFTP: what Files cannot do, SFTP does: parts of files, names, times, links.
func TestSFTP(t *testing.T) {
	t.Parallel()
	sb, _ := newHere(t)
	conn, err := sb.Files().SFTP(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c, err := sftp.NewClientPipe(conn, conn)
	if err != nil {
		t.Fatal(err)
	}
	f, err := c.Create("a")
	if err != nil {
		t.Fatal(err)
	}
	_, werr := f.Write([]byte("0123456789"))
	_, perr := f.WriteAt([]byte("x"), 3)
	long := time.Unix(1e9, 0)
	if err := errors.Join(werr, perr, f.Close(), c.Rename("a", "b"), c.Chmod("b", 0o640), c.Chtimes("b", long, long),
		c.Symlink("b", "l")); err != nil {
		t.Fatal(err)
	}
	if i, err := sb.Files().Stat(t.Context(), "b"); err != nil || i.Mode != 0o640 || !i.Modified.Equal(long) {
		t.Errorf("%+v, %v", i, err)
	}
	r, err := c.Open("l")
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(r); err != nil || string(b) != "012x456789" {
		t.Errorf("%q, %v", b, err)
	}
	if to, err := c.ReadLink("l"); err != nil || to != "b" {
		t.Errorf("%q, %v", to, err)
	}
	if _, err := c.Open("none"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestTerminalGone: a client that is cut off presses no ^D, which what a terminal shows would take for its user's.
func TestTerminalGone(t *testing.T) {
	t.Parallel()
	sb, h := newHere(t)
	for range 5 { // the command's two streams end in any order
		p, err := sb.Start(t.Context(), Command{
			Argv:     []string{"sh", "-c", "trap '' HUP; echo $$; cat; echo end >ended"},
			Terminal: &Size{24, 80}, Stdin: forever{t},
		})
		if err != nil {
			t.Fatal(err)
		}
		r, w := io.Pipe()
		go func() { _, _ = p.Wait(t.Context(), w, nil) }()
		pid := make([]byte, 32)
		n, err := r.Read(pid)
		if err != nil {
			t.Fatal(err)
		}
		sb.in.conn.drop()
		const soon = 100 * time.Millisecond // the key came at once
		time.Sleep(soon)
		if _, err := sb.Run(t.Context(), Command{Argv: []string{"sh", "-c", "kill -KILL -" + strings.TrimSpace(string(pid[:n]))}}); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(h.socket), "ended")); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("its input has ended: %v", err)
		}
	}
}

// forever is an input that neither comes nor ends.
type forever struct{ t *testing.T }

func (f forever) Read([]byte) (int, error) {
	<-f.t.Context().Done()
	return 0, io.EOF
}
