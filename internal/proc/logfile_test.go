package proc

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte("old\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	const most = 1000
	var both [2]*LogFile
	for n := range both {
		l, err := OpenLog(path, most)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		both[n] = l
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	line := strings.Repeat("x", 99) + "\n"
	for n := range 100 {
		if _, err := both[n%2].Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
		if st, err := os.Stat(path); err != nil || st.Size() > most {
			t.Fatalf("%v, %v", st, err)
		}
	}
	if b, err := os.ReadFile(path); err != nil || !strings.HasSuffix(string(b), line) || strings.Contains(string(b), "\x00") {
		t.Errorf("%q, %v", b, err)
	}
}

// What somebody else may have put there is not written to.
func TestForeign(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	victim := filepath.Join(dir, "victim")
	if err := os.WriteFile(victim, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	places := map[string]func(path string) error{
		"link":        func(p string) error { return os.Symlink(victim, p) },
		"dead link":   func(p string) error { return os.Symlink(filepath.Join(dir, "made"), p) },
		"second name": func(p string) error { return os.Link(victim, p) },
		"pipe":        func(p string) error { return unix.Mkfifo(p, 0o600) },
		"folder":      func(p string) error { return os.Mkdir(p, 0o700) },
	}
	if os.Geteuid() == 0 {
		places["another's"] = func(p string) error {
			if err := os.WriteFile(p, nil, 0o666); err != nil {
				return err
			}
			return os.Chown(p, 1234, 1234)
		}
	}
	for name, f := range places {
		path := filepath.Join(dir, name)
		if err := f(path); err != nil {
			t.Fatal(err)
		}
		if l, err := OpenLog(path, 1000); err == nil {
			t.Errorf("%s is opened", name)
			_ = l.Close()
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "made")); err == nil {
		t.Error("a link's target was made")
	}
}
