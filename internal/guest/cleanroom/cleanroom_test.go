package cleanroom

import (
	"context"
	"errors"
	"hash/maphash"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
	mode("apart", 0o777)
	mode("closed", 0o750)
	mode("closed/below", 0o757) // out of the others' reach
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
		"the group": {false, true, []string{"closed/below", "group", "plain/open", "shared"}},
		"the owner": {true, false, []string{"."}}, // all of it belongs to whom the test runs as
	} {
		cfg := Config{Root: root, Dir: filepath.Join(root, "ours"), Excluded: []string{filepath.Join(root, "apart")}, IsTaskUser: func(uint32, uint32) (bool, bool) { return c.user, c.group }}
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

// Files that were changed, moved, linked or made since are not the image's, whatever time they claim to be from.
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
	c := copier{bytes: 1 << 20, files: 10, entries: 100, before: began, seed: seed}
	if _, err := c.copy(t.Context(), from, to); err != nil {
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
	for _, small := range []copier{{bytes: 3, files: 10, entries: 100}, {bytes: 1 << 20, files: 2, entries: 100}, {bytes: 1 << 20, files: 10, entries: 3}} {
		small.seed = seed
		if _, err := small.copy(t.Context(), from, filepath.Join(t.TempDir(), "x")); !errors.Is(err, errTooMuch) {
			t.Errorf("more than may be: %v", err)
		}
	}
}

var seed = maphash.MakeSeed()

// remembered is ground below a folder that belongs to the test, of which one place is written to.
func remembered(t *testing.T, root, place string) *Baseline {
	t.Helper()
	cfg := Config{Root: root, Dir: filepath.Join(root, "ours"), IsTaskUser: func(uint32, uint32) (bool, bool) { return false, false }}
	if err := os.Chmod(filepath.Join(root, place), 0o777); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * tick) // the grain of the kernel's clock
	g, err := NewBaseline(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * tick)
	return g
}

// Files of the image come back from a copy, or are reported as missing.
func TestWhatTheImageHad(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		large bool
		agent func(dir string) error
		whole bool
	}{
		"small, removed":         {false, func(dir string) error { return os.RemoveAll(filepath.Join(dir, "bin")) }, true},
		"small, changed":         {false, func(dir string) error { return os.WriteFile(filepath.Join(dir, "bin/tool"), []byte("forged"), 0o600) }, true},
		"small, mode of the top": {false, func(dir string) error { return os.Chmod(dir, 0o702) }, true},
		"large, left alone":      {true, func(dir string) error { return os.WriteFile(filepath.Join(dir, "more"), nil, 0o600) }, true},
		"large, removed":         {true, func(dir string) error { return os.Remove(filepath.Join(dir, "bin/tool")) }, false},
		"large, mode":            {true, func(dir string) error { return os.Chmod(filepath.Join(dir, "bin/tool"), 0o600) }, false},
		"large, a moved folder":  {true, func(dir string) error { return os.Rename(filepath.Join(dir, "bin"), filepath.Join(dir, "bin2")) }, false},
		"large, swapped for link": {true, func(dir string) error {
			return errors.Join(os.RemoveAll(filepath.Join(dir, "bin")), os.Symlink("/", filepath.Join(dir, "bin")))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			dir := filepath.Join(root, "opt")
			write(t, filepath.Join(dir, "bin/tool"), "image", 0o755)
			write(t, filepath.Join(dir, "lib/big"), "", 0o644)
			if err := os.Mkdir(filepath.Join(dir, "empty"), 0o755); err != nil {
				t.Fatal(err)
			}
			if c.large {
				if err := os.Truncate(filepath.Join(dir, "lib/big"), maxKept+1); err != nil {
					t.Fatal(err)
				}
			}
			g := remembered(t, root, "opt")
			if err := c.agent(dir); err != nil {
				t.Fatal(err)
			}
			at := filepath.Join(t.TempDir(), "fresh")
			spots, err := g.cfg.scan(t.Context())
			if err != nil || len(spots) != 1 {
				t.Fatalf("%+v, %v", spots, err)
			}
			whole, err := g.emptyPath(t.Context(), spots[0], at)
			if err != nil || whole != c.whole {
				t.Fatalf("whole: %v, %v", whole, err)
			}
			if fi, err := os.Stat(at); err != nil || fi.Mode().Perm() != 0o777 {
				t.Errorf("%v, %v", fi, err)
			}
			if b, err := os.ReadFile(filepath.Join(at, "bin/tool")); c.whole && (err != nil || string(b) != "image") {
				t.Errorf("%q, %v", b, err)
			}
			if _, err := os.Stat(filepath.Join(at, "more")); err == nil {
				t.Error("the agent's file is there")
			}
			if _, err := os.Stat(filepath.Join(at, "empty")); err != nil {
				t.Error(err)
			}
		})
	}
}

// A place that the image left empty is not read: filling it cannot delay a room.
func TestEmptyPlaceIsNotRead(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "tmp"), 0o755); err != nil {
		t.Fatal(err)
	}
	g := remembered(t, root, "tmp")
	write(t, filepath.Join(root, "tmp/x"), "", 0o644)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	spots, err := g.cfg.scan(t.Context())
	if err != nil || len(spots) != 1 {
		t.Fatalf("%+v, %v", spots, err)
	}
	if whole, err := g.emptyPath(over, spots[0], filepath.Join(t.TempDir(), "fresh")); err != nil || !whole {
		t.Errorf("it was read: %v, %v", whole, err)
	}
}

// Writable folders on other file systems are found; those that only show the kernel's state are not looked at.
func TestScanCrossesMounts(t *testing.T) {
	t.Parallel()
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(table), " /dev/shm ") {
		t.Fatal("the test needs /dev/shm as a file system of its own")
	}
	// The device of the top is another one than that below: so it is with a volume below the root.
	seen, other := false, false
	cfg := Config{Root: "/dev", IsTaskUser: func(uint32, uint32) (bool, bool) { return false, false }}
	spots, err := cfg.look(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range spots {
		seen = seen || s.path == "/dev/shm"
		other = other || strings.HasPrefix(s.path, "/dev/pts")
	}
	if !seen || other {
		t.Errorf("%+v", spots)
	}
}

// Segments of the agent's users are found in the kernel's table, whatever its columns.
func TestSegments(t *testing.T) {
	t.Parallel()
	cfg := Config{IsTaskUser: func(uid, _ uint32) (bool, bool) { return uid == 1000, false }}
	const table = "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      ctime\n" +
		"      4711          3   666                    64    12    12      0  1000  1000  1000  1000          0          0 1700000000\n" +
		"      4712          4   666                    64    12    12      0     0     0  1000  1000          0          0 1700000000\n"
	if got := cfg.segments(table); !slices.Equal(got, []int{3}) {
		t.Errorf("%v", got)
	}
	if got := cfg.segments("\n"); got != nil {
		t.Errorf("%v", got)
	}
}

func TestOutside(t *testing.T) {
	t.Parallel()
	r := Room{HostPaths: map[string]string{"/home": "/r/1", "/home/sandbox": "/r/2"}}
	for in, want := range map[string]string{"/home/sandbox/x": "/r/2/x", "/home/other": "/r/1/other", "/homes": "/homes", "/home/sandbox": "/r/2", "/etc/x": "/etc/x"} {
		if got := r.Outside(in); got != want {
			t.Errorf("%s lies at %s, want %s", in, got, want)
		}
	}
}
