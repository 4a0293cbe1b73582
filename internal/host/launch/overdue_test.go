package launch

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/engine/enginetest"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A run that outlives its time limit and a landing is stopped; one that has landed has the time of what follows.
func TestOverdue(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		events string
		want   stopKind
	}{
		"at work":      {`{"seq":1,"type":"step.started","name":"agent"}`, overdue},
		"landing":      {`{"seq":1,"type":"step.started","name":"push"}`, overdue},
		"has landed":   {`{"seq":1,"type":"step.finished","name":"push","status":"done"}`, notStopped},
		"said nothing": {"", overdue},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, workorder.EventsFile), []byte(c.events+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			said := make(chan struct{}, 4)
			l := &Launcher{
				Engine: enginetest.NewFake(nil), Store: store.New(t.TempDir()), Log: slog.New(slog.DiscardHandler), Now: time.Now,
				Show: func(workorder.Event) { said <- struct{}{} },
			}
			rec := &store.Record{TaskID: "T-A1B2C3D4", Dir: dir, Deadline: time.Now()}
			follow, end := context.WithCancel(t.Context())
			kinds := make(chan stopKind)
			go func() { kinds <- l.stopper(follow, t.Context(), nil, rec) }()
			if c.want == overdue {
				<-said
			} else {
				time.Sleep(50 * time.Millisecond) // it would have been said at once
			}
			end()
			if got := <-kinds; got != c.want || c.want == notStopped && len(said) > 0 {
				t.Errorf("%v, want %v; %d events", got, c.want, len(said))
			}
		})
	}
}
