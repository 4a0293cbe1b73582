package boot

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/record"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func standBy(t *testing.T, f *fake, o *workorder.Order, fetch error) error {
	t.Helper()
	rec, err := record.New(record.Options{OutDir: t.TempDir(), StateDir: t.TempDir(), Stream: io.Discard, Waiting: true})
	if err != nil {
		t.Fatal(err)
	}
	b := &Runner{
		Order: o, Rec: rec, Log: slog.New(slog.DiscardHandler), Engine: f, Services: f, Network: fakeNetwork{f},
		Space: &rootgit.Workspace{Dir: filepath.Join(t.TempDir(), "w")},
	}
	return b.Standby(t.Context(), func(context.Context) error { f.did("fetch"); return fetch })
}

// A standby is the first part of a run, and the run does the rest.
func TestStandbyThenRun(t *testing.T) {
	t.Parallel()
	f := &fake{}
	if err := standBy(t, f, order(), errors.New("not a bundle")); err != nil { // a run fetches all the same
		t.Fatal(err)
	}
	for _, did := range []string{"policy", "listen", "start", "up", "fetch"} {
		if !f.called(did) {
			t.Errorf("%s is missing in %q", did, f.calls)
		}
	}
	f.calls = nil
	r := playWith(t, f, order(), nil, func(b *Runner) { b.Booted = true })
	if r.code != workorder.ExitOK {
		t.Fatalf("code %d, %+v", r.code, r.result)
	}
	for _, again := range []string{"listen", "start", "up"} {
		if f.called(again) {
			t.Errorf("%s once more: %q", again, f.calls)
		}
	}
	if st := r.steps(); st[workorder.StepServices] != workorder.StepSkipped || st[workorder.StepClone] != workorder.StepDone {
		t.Errorf("%v", st)
	}
	if i := slices.Index(f.calls, "stop"); i < 0 {
		t.Errorf("the engine is not stopped: %q", f.calls)
	}
}

// A task may go on without a service that was found in the repository; a standby may not.
func TestStandbyNeedsItsServices(t *testing.T) {
	t.Parallel()
	o := order()
	o.Found = true
	if err := standBy(t, &fake{up: func(context.Context) error { return errors.New("unhealthy") }}, o, nil); err == nil {
		t.Error("it stands by")
	}
}
