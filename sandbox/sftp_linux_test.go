package sandbox

import (
	"errors"
	"io"
	"io/fs"
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
	if err := errors.Join(werr, perr, f.Close(), c.Rename("a", "b"), c.Chmod("b", 0o640), c.Chtimes("b", long, long), c.Symlink("b", "l")); err != nil {
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
	if _, err := c.Open("none"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
