package follow

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/attempt"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime/runtimetest"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A run that outlives its time limit and a landing is stopped; one that has landed has the time of what follows.
func TestOverdue(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		events string
		want   attempt.StopKind
	}{
		"at work":      {`{"seq":1,"type":"step.started","name":"agent"}`, attempt.Overdue},
		"landing":      {`{"seq":1,"type":"step.started","name":"push"}`, attempt.Overdue},
		"has landed":   {`{"seq":1,"type":"step.finished","name":"push","status":"done"}`, attempt.NotStopped},
		"said nothing": {"", attempt.Overdue},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, workorder.EventsFile), []byte(c.events+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			said := make(chan struct{}, 4)
			l := &Follower{Host: &attempt.Host{
				Engine: runtimetest.NewFake(nil), Store: store.New(t.TempDir()), Log: slog.New(slog.DiscardHandler), Now: time.Now,
				Show: func(workorder.Event) { said <- struct{}{} },
			}}
			rec := &store.Record{TaskID: "T-A1B2C3D4", Dir: dir, Deadline: time.Now()}
			follow, end := context.WithCancel(t.Context())
			kinds := make(chan attempt.StopKind)
			go func() { kinds <- l.Stops(follow, t.Context(), nil, rec) }()
			if c.want == attempt.Overdue {
				<-said
			} else {
				time.Sleep(50 * time.Millisecond) // it would have been said at once
			}
			end()
			if got := <-kinds; got != c.want || c.want == attempt.NotStopped && len(said) > 0 {
				t.Errorf("%v, want %v; %d events", got, c.want, len(said))
			}
		})
	}
}
