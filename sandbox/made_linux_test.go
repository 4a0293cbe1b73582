package sandbox

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
)

// A sandbox of which nothing can be kept is not made, and the image of a fork neither.
func TestNotKept(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	m := f.newManager(t.TempDir())
	create(t, m, Spec{Name: "a"})
	a := find(t, m, "a")
	f.away = errors.New("the engine is away")
	if sb, err := m.Create(t.Context(), Spec{Name: "b", Image: "i"}); sb != nil || !errors.Is(err, f.away) {
		t.Errorf("%v, %v", sb, err)
	}
	if sb, err := a.Fork(t.Context(), "c"); sb != nil || !errors.Is(err, f.away) {
		t.Errorf("%v, %v", sb, err)
	}
	f.away = nil
	if got := states(t, m); got != "a running" || len(f.images) != 0 {
		t.Errorf("%s, and images %v", got, f.images)
	}
}

// A mount is what it was when the sandbox was made, or the sandbox is not started: a link that came into its place since is not followed.
func TestMountSwapped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	work, other, link := filepath.Join(dir, "work"), filepath.Join(dir, "other"), filepath.Join(dir, "link")
	if err := errors.Join(os.Mkdir(work, 0o700), os.Mkdir(other, 0o700), os.Symlink("work", link)); err != nil {
		t.Fatal(err)
	}
	f := newFake(t)
	m := f.newManager(t.TempDir())
	asked := []Mount{{Source: link, Target: "/w"}}
	create(t, m, Spec{Name: "a", Mounts: asked})
	sb := find(t, m, "a")
	if got := sb.Spec().Mounts[0].Source; got != work || asked[0].Source != link {
		t.Errorf("it has %s, and was asked for %s", got, asked[0].Source)
	}
	if err := errors.Join(sb.Stop(t.Context()), os.Remove(work), os.Symlink("other", work)); err != nil {
		t.Fatal(err)
	}
	for name, use := range map[string]func() error{
		"a command": func() error { _, err := sb.Run(t.Context(), Command{Argv: []string{"true"}}); return err },
		"a reset":   func() error { _, err := sb.Reset(t.Context()); return err },
		"a fork":    func() error { _, err := sb.Fork(t.Context(), "b"); return err },
	} {
		if err := use(); !errors.Is(err, ErrInvalidSpec) || !errors.Is(err, runtime.ErrInvalidMount) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := states(t, m); got != "a stopped" || f.stands != 1 {
		t.Errorf("%s, and %d were made", got, f.stands)
	}
	if err := errors.Join(os.Remove(work), os.Mkdir(work, 0o700)); err != nil {
		t.Fatal(err)
	}
	if run(t, sb, "echo x") != "x" {
		t.Error("no command runs")
	}
}

// One sandbox can be used, made anew, stopped and changed by several at once; the race detector looks on.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	m := f.newManager(t.TempDir())
	create(t, m, Spec{Name: "a"})
	f.lose(t, "a")
	sb := find(t, m, "a")
	var all sync.WaitGroup
	for _, use := range []func() error{
		func() error { return sb.Resume(t.Context()) },
		func() error { return sb.SetNetwork(t.Context(), NetworkNone) },
		func() error { _, err := sb.Snapshot(t.Context(), "s"); return err },
		func() error { return sb.Logs(t.Context(), false, io.Discard) },
		func() error { _ = sb.Info(); return nil },
	} {
		all.Go(func() {
			if err := use(); err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrConnectionLost) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := states(t, m); got != "a running" {
		t.Error(got)
	}
}
