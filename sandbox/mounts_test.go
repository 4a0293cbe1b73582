package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
)

func TestMounts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink("/", link); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		mount Mount
		bad   bool
	}{
		{Mount{dir, "/w", false}, false},
		{Mount{dir, "/a/b", true}, false},
		{Mount{filepath.Join(dir, "none"), "/w", false}, true},
		{Mount{"relative", "/w", false}, true},
		{Mount{dir, "w", false}, true},
		{Mount{dir, "/", false}, true},
		{Mount{dir, "/x/..", false}, true},
		{Mount{dir, "/proc/sys", false}, true},
		{Mount{dir, "/.sandbox-agent", false}, true},
		{Mount{"/", "/w", true}, true},
		{Mount{link, "/w", true}, true},
		{Mount{"/proc", "/w", false}, true},
		{Mount{"/dev/null", "/w", false}, true},
	} {
		if err := checkMounts([]Mount{row.mount}); errors.Is(err, runtime.ErrMount) != row.bad {
			t.Errorf("%+v: %v", row.mount, err)
		}
	}
	if err := checkMounts([]Mount{{dir, "/w", true}, {dir, "/w/", true}}); !errors.Is(err, runtime.ErrMount) {
		t.Errorf("two at one place: %v", err)
	}
	s, err := Spec{Name: "a", Image: "i", Mounts: []Mount{{dir, "/w", false}}}.complete()
	if err != nil || (s.User == "") != (os.Getuid() == 0) {
		t.Errorf("user %q, %v", s.User, err)
	}
}

func TestParseKind(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		kind Kind
		err  error
	}{
		"auto": {Auto, nil}, "container": {KindContainer, nil}, "docker": {KindContainer, nil},
		"nope": {"", ErrSpec}, "": {"", ErrSpec}, "nspawn": {"", ErrUnsupported}, "podman": {"", ErrUnsupported},
	} {
		if got, err := ParseKind(name); got != want.kind || !errors.Is(err, want.err) {
			t.Errorf("%q: %q, %v", name, got, err)
		}
	}
}

// A wish that a kind cannot fulfil is refused, and a default that it cannot hold is none.
func TestWishes(t *testing.T) {
	t.Parallel()
	has := []Capability{CapNetworkNone, CapPIDs}
	var unsupported *UnsupportedError
	err := lacks("k", has, Spec{Network: NetworkNone, User: "u", Limits: Limits{PIDs: 100, CPUs: NoLimit, MemoryBytes: 1 << 30}}.wishes())
	if !errors.As(err, &unsupported) || !errors.Is(err, ErrUnsupported) || len(unsupported.Wishes) != 2 {
		t.Errorf("%v", err)
	}
	if err := lacks("k", has, Spec{Network: NetworkNone}.wishes()); err != nil {
		t.Error(err)
	}
	l := Limits{MemoryBytes: DefaultMemoryBytes, CPUs: DefaultCPUs, PIDs: DefaultPIDs}
	if l.hold(has); l != (Limits{NoLimit, NoLimit, DefaultPIDs}) {
		t.Errorf("%+v", l)
	}
}
