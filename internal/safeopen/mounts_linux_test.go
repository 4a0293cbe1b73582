package safeopen

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/wire"
)

func hold(t *testing.T, m Mount) (ids []wire.MountID, kernel string) {
	t.Helper()
	h, err := Hold([]Mount{m})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h.IDs, h.Kernel
}

func TestVerify(t *testing.T) {
	t.Parallel()
	const mounted = "/proc"
	dir := t.TempDir()
	for name, row := range map[string]struct {
		m   Mount
		bad bool
	}{
		"mounted":      {Mount{mounted, mounted, false}, false},
		"another":      {Mount{dir, mounted, false}, true},
		"not a mount":  {Mount{dir, dir, false}, true},
		"not there":    {Mount{mounted, filepath.Join(dir, "none"), false}, true},
		"not readonly": {Mount{mounted, mounted, true}, true},
	} {
		ids, kernel := hold(t, row.m)
		if err := Verify(ids, kernel); (err != nil) != row.bad {
			t.Errorf("%s: %v", name, err)
		}
		if err := Verify(ids, "another"); err != nil {
			t.Errorf("%s in another kernel: %v", name, err)
		}
	}
	// Below another mount a link is of that mount's, and leads to what was held.
	link := filepath.Join(dir, "link")
	if err := os.Symlink("/", link); err != nil {
		t.Fatal(err)
	}
	ids, kernel := hold(t, Mount{mounted, link + mounted, false})
	if err := Verify(ids, kernel); err != nil {
		t.Errorf("a link of the image: %v", err)
	}
	if err := Verify(append(ids, wire.MountID{Target: "/"}), kernel); err == nil {
		t.Error("a link in another mount")
	}
}

func TestHold(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"link", "link/b", "none"} {
		path = filepath.Join(dir, path)
		if h, err := Hold([]Mount{{path, "/x", false}}); err == nil {
			h.Close()
			t.Errorf("%s is held", path)
		}
		if fd, err := steps(path); err == nil {
			_ = unix.Close(fd)
			t.Errorf("%s is opened in steps", path)
		}
	}
	fd, err := steps(filepath.Join(dir, "a", "b"))
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(fd)
}
