package sandbox

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
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
		if err := checkMounts([]Mount{row.mount}); errors.Is(err, runtime.ErrInvalidMount) != row.bad {
			t.Errorf("%+v: %v", row.mount, err)
		}
	}
	if err := checkMounts([]Mount{{dir, "/w", true}, {dir, "/w/", true}}); !errors.Is(err, runtime.ErrInvalidMount) {
		t.Errorf("two at one place: %v", err)
	}
	s, err := Spec{Name: "a", Image: "i", Mounts: []Mount{{dir, "/w", false}}}.complete()
	if err != nil || (s.User == "") != (os.Getuid() == 0) {
		t.Errorf("user %q, %v", s.User, err)
	}
}

// Every repository in a folder that can be written to is read-only, and so that nothing can be put in its place: the
// folders above it are mounts too.
func TestGuarded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	gittest.Git(t, dir, "init", "-q")
	for _, d := range []string{"a/b/.git/hooks", "a/c", "bare/refs", "bare/objects", "libs/empty", "plain"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range map[string]string{
		"a/c/.git": "gitdir: x", "bare/HEAD": "",
		".gitmodules": "[submodule \"x\"]\n\tpath = libs/empty\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	all, err := guarded(t.Context(), []Mount{{dir, "/w", false}, {dir, "/r", true}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range all[2:] {
		rel, _ := filepath.Rel("/w", m.Target)
		if m.Source != filepath.Join(dir, rel) {
			t.Errorf("%+v", m)
		}
		if m.ReadOnly {
			rel += " ro"
		}
		got = append(got, rel)
	}
	if want := []string{
		".git ro", "a", "a/b", "a/b/.git ro", "a/c", "a/c/.git ro", "bare ro", "libs",
		"libs/empty ro",
	}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	for _, in := range []string{"bare", "bare/refs"} {
		if _, err := guarded(t.Context(), []Mount{{filepath.Join(dir, in), "/w", false}}); !errors.Is(err, runtime.ErrInvalidMount) {
			t.Errorf("%s of a bare repository: %v", in, err)
		}
	}
	if err := os.Symlink("b/.git", filepath.Join(dir, "plain", ".git")); err != nil {
		t.Fatal(err)
	}
	if _, err := guarded(t.Context(), []Mount{{dir, "/w", false}}); !errors.Is(err, runtime.ErrInvalidMount) {
		t.Errorf("a link: %v", err)
	}
}

func TestParseKind(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		kind Runtime
		err  error
	}{
		"auto": {RuntimeAuto, nil}, "container": {RuntimeContainer, nil}, "docker": {RuntimeContainer, nil},
		"nope": {"", ErrInvalidSpec}, "": {"", ErrInvalidSpec}, "nspawn": {"", ErrUnsupported}, "podman": {"", ErrUnsupported},
	} {
		if got, err := ParseRuntime(name); got != want.kind || !errors.Is(err, want.err) {
			t.Errorf("%q: %q, %v", name, got, err)
		}
	}
}

// A wish that a kind cannot fulfil is refused, and a default that it cannot hold is none.
func TestWishes(t *testing.T) {
	t.Parallel()
	has := []Capability{CapNetworkNone, CapPIDs}
	var unsupported *UnsupportedError
	err := lacks("k", has, Spec{Network: NetworkNone, User: "u", Limits: Limits{PIDs: 100, CPUs: NoLimit, MemoryBytes: 1 << 30}}.required())
	if !errors.As(err, &unsupported) || !errors.Is(err, ErrUnsupported) || len(unsupported.Missing) != 2 {
		t.Errorf("%v", err)
	}
	if err := lacks("k", has, Spec{Network: NetworkNone}.required()); err != nil {
		t.Error(err)
	}
	l := Limits{MemoryBytes: DefaultMemoryBytes, CPUs: DefaultCPUs, PIDs: DefaultPIDs}
	if l.hold(has); l != (Limits{NoLimit, NoLimit, DefaultPIDs}) {
		t.Errorf("%+v", l)
	}
}

// capable is a runtime that has some capabilities, or says why it has none.
type capable struct {
	runtime.SandboxRuntime
	all []runtime.Capability
	err error
}

func (h capable) Capabilities(context.Context) ([]runtime.Capability, error) { return h.all, h.err }

// Where one runtime lacks something and the engine of another does not answer, the engine is the reason: with it, it may be possible.
func TestEngineAway(t *testing.T) {
	t.Parallel()
	jail := capable{all: []runtime.Capability{runtime.CapPersistent, runtime.CapNetworkFull, runtime.CapMemory, runtime.CapPIDs}}
	bs := backends{
		{RuntimeJail, "", func() (runtime.SandboxRuntime, error) { return jail, nil }},
		{RuntimeContainer, namePrefix, func() (runtime.SandboxRuntime, error) { return capable{err: runtime.ErrUnavailable}, nil }},
	}
	for name, row := range map[string]struct {
		s    Spec
		want error
	}{
		"an image":           {Spec{Image: "i"}, ErrUnavailable},
		"a jail of an image": {Spec{Image: "i", Runtime: RuntimeJail}, ErrUnsupported},
		"a container":        {Spec{Image: "i", Runtime: RuntimeContainer}, ErrUnavailable},
	} {
		_, _, err := bs.choose(t.Context(), row.s)
		if !errors.Is(err, row.want) || errors.Is(err, ErrUnsupported) && errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
