package nested

import (
	"os"
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

// What each interface has sent is distinguished from what it has received.
func TestSent(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "dev")
	if err := os.WriteFile(file, []byte(`Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:  100       2    0    0    0     0          0         0      300       4    0    0    0     0       0          0
  eth0:5678 5 0 0 0 0 0 0 7890 6 0 0 0 0 0 0
`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := sent(file); got != "lo 4, eth0 6" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := sent(file + "-none"); err == nil {
		t.Error("nothing was sent over no network")
	}
}

// Only the first process of new namespaces turns them into a nested sandbox.
func TestEnterElsewhere(t *testing.T) {
	t.Parallel()
	if err := Enter(); err == nil {
		t.Error("this process's mounts are a nested sandbox's now")
	}
}
