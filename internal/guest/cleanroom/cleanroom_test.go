package cleanroom

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func write(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o600), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
}

// The kernel's rule of who can write, for everything but the topmost folder of a place.
func TestScan(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	mode := func(path string, m os.FileMode) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Join(root, path), 0o755), os.Chmod(filepath.Join(root, path), m)); err != nil {
			t.Fatal(err)
		}
	}
	mode("shared", 0o777|os.ModeSticky)
	mode("shared/below", 0o777)
	mode("group", 0o775)
	mode("plain", 0o755)
	mode("ours", 0o777)
	write(t, filepath.Join(root, "plain/open"), "", 0o666)
	write(t, filepath.Join(root, "plain/closed"), "", 0o644)
	if err := os.Symlink("closed", filepath.Join(root, "plain/link")); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		user, group bool
		want        []string
	}{
		"others":    {false, false, []string{"plain/open", "shared"}},
		"the group": {false, true, []string{"group", "plain/open", "shared"}},
		"the owner": {true, false, []string{"."}}, // all of it belongs to whom the test runs as
	} {
		cfg := Config{Root: root, Dir: filepath.Join(root, "ours"), Mine: func(uint32, uint32) (bool, bool) { return c.user, c.group }}
		spots, err := cfg.scan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range spots {
			rel, err := filepath.Rel(root, s.path)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, rel)
		}
		if slices.Sort(got); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("told to stop"))
	if _, err := (&Config{Root: root}).scan(ctx); err == nil {
		t.Error("a look that was stopped is taken for whole")
	}
}

// What was changed, moved, linked or made since is not the image's, whatever time it claims to be from.
func TestCopyOfWhatIsOlder(t *testing.T) {
	t.Parallel()
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "to")
	for _, name := range []string{"a/kept", "a/changed", "b/moved", "b/mode"} {
		write(t, filepath.Join(from, name), "image", 0o644)
	}
	time.Sleep(2 * tick) // the grain of the kernel's clock
	began := time.Now()
	time.Sleep(2 * tick)
	write(t, filepath.Join(from, "a/changed"), "forged", 0o644)
	write(t, filepath.Join(from, "c/new"), "forged", 0o644)
	old := began.Add(-time.Hour)
	err := errors.Join(
		os.Rename(filepath.Join(from, "b/moved"), filepath.Join(from, "b/elsewhere")), os.Chmod(filepath.Join(from, "b/mode"), 0o755),
		os.Chtimes(filepath.Join(from, "c/new"), old, old), os.Chtimes(filepath.Join(from, "a/changed"), old, old),
	)
	if err != nil {
		t.Fatal(err)
	}
	c := copier{bytes: 1 << 20, files: 10, before: began}
	if err := c.copy(t.Context(), from, to); err != nil {
		t.Fatal(err)
	}
	var got []string
	err = filepath.WalkDir(to, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			got = append(got, path[len(to)+1:])
		}
		return err
	})
	if err != nil || !slices.Equal(got, []string{"a/kept"}) {
		t.Errorf("copied %v (%v), want a/kept alone", got, err)
	}
	if _, err := os.Lstat(filepath.Join(to, "c")); err == nil {
		t.Error("a folder that somebody made was copied")
	}
	small := copier{bytes: 3, files: 10}
	if err := small.copy(t.Context(), from, filepath.Join(t.TempDir(), "x")); !errors.Is(err, errTooMuch) {
		t.Errorf("more than may be: %v", err)
	}
}

func TestOutside(t *testing.T) {
	t.Parallel()
	r := Room{Lies: map[string]string{"/home": "/r/1", "/home/sandbox": "/r/2"}}
	for in, want := range map[string]string{"/home/sandbox/x": "/r/2/x", "/home/other": "/r/1/other", "/homes": "/homes", "/home/sandbox": "/r/2", "/etc/x": "/etc/x"} {
		if got := r.Outside(in); got != want {
			t.Errorf("%s lies at %s, want %s", in, got, want)
		}
	}
}
