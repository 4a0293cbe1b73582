package lease

import (
	"path/filepath"
	"slices"
	"testing"
)

func TestIDs(t *testing.T) {
	t.Parallel()
	for user, ok := range map[string]bool{"1000:1000": true, "0:0": false, "0:1000": false, "1000:0": false, "1000": false, "sandbox": false, "": false, "-1:-1": false} {
		if uid, gid, err := ids(user); (err == nil) != ok {
			t.Errorf("%q: %d, %d, %v", user, uid, gid, err)
		}
	}
}

// Paths are written and read as the kernel does.
func TestPaths(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{"/a": "/a", "/a:b": `/a\:b`, "/a,b": `/a\,b`, `/a\b`: `/a\\b`} {
		if got := escape(path); got != want {
			t.Errorf("%q: %q", path, got)
		}
	}
	for text, want := range map[string]string{"/a": "/a", `/a\040b\011c\012d\134e`: "/a b\tc\nd\\e"} {
		if got := unescape(text); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
	all, err := mountPoints()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if !filepath.IsAbs(p) || slices.Contains([]string{"/", "/proc", "/sys", "/dev"}, p) {
			t.Errorf("%q", p)
		}
	}
}

// Nobody but the first process of new namespaces makes them a lease's.
func TestEnterElsewhere(t *testing.T) {
	t.Parallel()
	if err := Enter(); err == nil {
		t.Error("this process's mounts are a lease's now")
	}
}
