package launch_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/test/runtimetest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// asking remembers what an engine is asked for.
type asking struct {
	*runtimetest.Fake
	specs []runtime.ContainerSpec
}

func (a *asking) Run(ctx context.Context, spec runtime.ContainerSpec, stdin io.Reader) (string, error) {
	a.specs = append(a.specs, spec)
	return a.Fake.Run(ctx, spec, stdin)
}

// TestSecretsComeLast: they are read once, when nothing else can fail any more, and
// reach the box in its order alone.
func TestSecretsComeLast(t *testing.T) {
	t.Parallel()
	var got map[string]string
	f := setup(t, func(b *runtimetest.Box) int {
		g := newGuest(b)
		got = g.env.Secrets
		return g.end(workorder.StatusSuccess, workorder.EndedByAgent)
	})
	asked := &asking{Fake: f.fake}
	f.Engine = asked
	j := newJob()
	calls := 0
	j.Secrets = func(context.Context) (map[string]string, error) {
		calls++
		if f.fake.Count() != 0 {
			t.Error("there is a box already")
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		var done []string
		for _, e := range f.seen {
			if e.Type == workorder.EventStepFinished {
				done = append(done, e.Name)
			}
		}
		if s := strings.Join(done, " "); s != "preflight image" {
			t.Errorf("read after %q", s)
		}
		return map[string]string{"KEY": "cnry123"}, nil
	}
	if _, err := f.Run(t.Context(), nil, j); err != nil {
		t.Fatal(err)
	}
	if calls != 1 || got["KEY"] != "cnry123" {
		t.Errorf("read %d times, the box has %v", calls, got)
	}
	if s := fmt.Sprintf("%+v", asked.specs); len(asked.specs) != 1 || strings.Contains(s, "cnry") {
		t.Errorf("the engine is asked for %s", s)
	}
	err := filepath.WalkDir(f.Store.Dir(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if strings.Contains(string(b), "cnry") {
			t.Errorf("%s holds a secret", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestSecretsFail: a run without its secrets has no box, and one that fails before reads none.
func TestSecretsFail(t *testing.T) {
	t.Parallel()
	f := setup(t, happy)
	j := newJob()
	j.Secrets = func(context.Context) (map[string]string, error) {
		return nil, exiterr.New(workorder.ExitInvalid, errors.New("secret KEY: the store is locked"), "")
	}
	_, err := f.Run(t.Context(), nil, j)
	if exiterr.Code(err) != workorder.ExitInvalid || f.fake.Count() != 0 {
		t.Errorf("%v, %d boxes", err, f.fake.Count())
	}
	nothingLeft(t, f, j)
	for name, change := range map[string]func(l *launch.Launcher){
		"remote": func(l *launch.Launcher) { l.Remote = remote{errors.New("no")} },
		"image":  func(l *launch.Launcher) { l.Images = images{err: errors.New("no")} },
	} {
		f := setup(t, happy)
		change(f.Launcher)
		j := newJob()
		j.Secrets = func(context.Context) (map[string]string, error) {
			t.Errorf("%s failed, and secrets are read", name)
			return nil, nil
		}
		if _, err := f.Run(t.Context(), nil, j); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
