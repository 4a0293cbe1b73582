package safeopen_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/safeopen"
)

func TestRead(t *testing.T) {
	t.Parallel()
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte("root's"), 0o600); err != nil {
		t.Fatal(err)
	}
	me := uint32(os.Getuid())
	other := me + 1
	file := func(content string) func(string) error {
		return func(p string) error { return os.WriteFile(p, []byte(content), 0o600) }
	}
	for name, c := range map[string]struct {
		make func(path string) error
		uid  *uint32
		want string
		err  error
	}{
		"a file":          {file("x"), &me, "x", nil},
		"anybody's":       {file("x"), nil, "x", nil},
		"somebody else's": {file("x"), &other, "", safeopen.ErrUnsafe},
		"nothing":         {func(string) error { return nil }, &me, "", fs.ErrNotExist},
		"a link":          {func(p string) error { return os.Symlink(outside, p) }, &me, "", safeopen.ErrUnsafe},
		"a link to a file beside it": {func(p string) error {
			return errors.Join(os.WriteFile(filepath.Join(filepath.Dir(p), "beside"), []byte("x"), 0o600), os.Symlink("beside", p))
		}, &me, "", safeopen.ErrUnsafe},
		"a second name": {func(p string) error {
			beside := filepath.Join(filepath.Dir(p), "beside")
			return errors.Join(os.WriteFile(beside, []byte("x"), 0o600), os.Link(beside, p))
		}, &me, "", safeopen.ErrUnsafe},
		"a pipe":      {func(p string) error { return syscall.Mkfifo(p, 0o600) }, &me, "", safeopen.ErrUnsafe},
		"a folder":    {func(p string) error { return os.Mkdir(p, 0o700) }, &me, "", safeopen.ErrUnsafe},
		"the largest": {file(strings.Repeat("x", 10)), &me, strings.Repeat("x", 10), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := c.make(filepath.Join(dir, "f")); err != nil {
				t.Fatal(err)
			}
			root, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			if got, err := safeopen.Read(root, "f", c.uid, 10); string(got) != c.want || !errors.Is(err, c.err) {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	dir := t.TempDir()
	if err := file(strings.Repeat("x", 11))(filepath.Join(dir, "f")); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if got, err := safeopen.Read(root, "f", nil, 10); got != nil || err == nil || !strings.Contains(err.Error(), "10") {
		t.Errorf("%q, %v", got, err)
	}
}
