package launch

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/internal/test/runtimetest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A run that outlives its time limit and a landing is stopped; one that has landed has the time of the steps behind it. A box that
// outlives its stop is killed, again and again.
func TestOverdue(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		events string
		waits  time.Duration // from the deadline to the stop
	}{
		"at work":      {events: `{"seq":1,"type":"step.started","name":"agent"}`},
		"landing":      {events: `{"seq":1,"type":"step.started","name":"push"}`},
		"has landed":   {`{"seq":1,"type":"step.finished","name":"push","status":"done"}`, workorder.AfterLimit},
		"said nothing": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, state := t.TempDir(), t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, workorder.EventsFile), []byte(c.events+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				engine := &stubborn{Fake: runtimetest.NewFake(nil)}
				f := follower{&Launcher{Host: Host{
					Engine: engine, Store: taskstore.New(state), Log: slog.New(slog.DiscardHandler), Now: time.Now, Show: func(workorder.Event) {},
				}}}
				const limit = time.Minute
				rec := &taskstore.Record{TaskID: "T-A1B2C3D4", Dir: dir, Deadline: time.Now().Add(limit)}
				following, end := context.WithCancel(t.Context())
				kinds := make(chan StopKind, 1)
				go func() { kinds <- f.stops(following, t.Context(), nil, rec) }()
				stops := func(after time.Duration, want ...time.Duration) {
					t.Helper()
					time.Sleep(after)
					synctest.Wait()
					engine.mu.Lock()
					defer engine.mu.Unlock()
					if !slices.Equal(engine.stops, want) {
						t.Errorf("stops %v, want %v", engine.stops, want)
					}
				}
				stops(limit + c.waits - time.Second)
				stops(2*time.Second, runtime.StopTimeout)
				stops(killAfter, runtime.StopTimeout, 0)
				stops(killAfter, runtime.StopTimeout, 0, 0)
				end()
				if got := <-kinds; got != Overdue {
					t.Errorf("%v", got)
				}
			})
		})
	}
}

// stubborn is an engine whose box outlives its stops.
type stubborn struct {
	*runtimetest.Fake
	mu    sync.Mutex
	stops []time.Duration
}

func (s *stubborn) Instances(context.Context, map[string]string) ([]runtime.Instance, error) {
	return []runtime.Instance{{ID: "box", State: "running"}}, nil
}

func (s *stubborn) Stop(_ context.Context, _ string, grace time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stops = append(s.stops, grace)
	return nil
}
