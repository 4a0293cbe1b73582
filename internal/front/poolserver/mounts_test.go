package poolserver

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/sandbox/pool"
)

// A lease mounts what the server's user has allowed, and nothing that a link leads to.
func TestPermit(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.MkdirAll(at("work/below"), 0o755), os.MkdirAll(at("read"), 0o755), os.MkdirAll(at("workshop"), 0o755), os.Symlink(at("workshop"), at("work/out")), os.Symlink(at("work"), at("link"))); err != nil {
		t.Fatal(err)
	}
	var sources []Source
	for _, text := range []string{at("link"), at("read") + ":ro"} {
		s, err := NewSource(text)
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, s)
	}
	for _, row := range []struct {
		host     string
		readOnly bool
		want     string
	}{
		{at("work"), false, at("work")},
		{at("link/below"), false, at("work/below")},
		{at("read"), true, at("read")},
		{at("read"), false, ""},
		{at("work/out"), true, ""},
		{at("workshop"), true, ""},
		{at("work/../workshop"), true, ""},
		{at("none"), true, ""},
		{dir, true, ""},
		{"/", true, ""},
	} {
		got, err := permit(pool.Spec{Mounts: []sandbox.Mount{{Source: row.host, Target: "/x", ReadOnly: row.readOnly}}}, sources)
		if row.want == "" && !errors.Is(err, sandbox.ErrInvalidSpec) || row.want != "" && (err != nil || got.Mounts[0].Source != row.want) {
			t.Errorf("%+v: %+v, %v", row, got.Mounts, err)
		}
	}
	if _, err := permit(pool.Spec{Root: at("workshop")}, sources); !errors.Is(err, sandbox.ErrInvalidSpec) {
		t.Errorf("a root: %v", err)
	}
	if _, err := permit(pool.Spec{}, nil); err != nil {
		t.Error(err)
	}
	for _, text := range []string{"relative", at("none")} {
		if _, err := NewSource(text); err == nil {
			t.Errorf("%s is a source", text)
		}
	}
}
