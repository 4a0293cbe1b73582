package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/record"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// notes is a Recorder that remembers.
type notes struct {
	mu        sync.Mutex
	declared  []workorder.StepName
	started   []workorder.StepName
	ended     map[workorder.StepName]error
	codes     map[workorder.StepName]*int
	unreached map[workorder.StepName]string
}

func (n *notes) Declare(names ...workorder.StepName) { n.declared = append(n.declared, names...) }

func (n *notes) StepStarted(name workorder.StepName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.started = append(n.started, name)
}

func (n *notes) StepFinished(name workorder.StepName, err error, code *int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ended == nil {
		n.ended, n.codes = map[workorder.StepName]error{}, map[workorder.StepName]*int{}
	}
	n.ended[name], n.codes[name] = err, code
}

func (n *notes) Unreached(why string, names ...workorder.StepName) {
	n.unreached = map[workorder.StepName]string{}
	for _, name := range names {
		n.unreached[name] = why
	}
}

func (n *notes) skipped(name workorder.StepName) bool {
	_, ok := errors.AsType[*record.Skip](n.ended[name])
	return ok
}

func do(err error) func(context.Context) error { return func(context.Context) error { return err } }

type exited int

func (e exited) Error() string { return fmt.Sprintf("exited with %d", int(e)) }
func (e exited) ExitCode() int { return int(e) }

func TestAfterAFailure(t *testing.T) {
	t.Parallel()
	n := &notes{}
	var did []string
	note := func(what string) func(context.Context) error {
		return func(context.Context) error { did = append(did, what); return nil }
	}
	undo := func(what string) func(context.Context) {
		return func(context.Context) { did = append(did, "undo "+what) }
	}
	l := &List{Rec: n, Steps: []Step{
		{Name: "a", Run: note("a"), Undo: undo("a")},
		{
			Name:  "none",
			After: []workorder.StepName{"a", "of another list"},
			Skip:  func() string { return "nothing to do" },
			Run:   note("none"),
		},
		{Name: "soft", After: []workorder.StepName{"none"}, AllowFailure: true, Run: do(errors.New("no"))},
		{Name: "b", After: []workorder.StepName{"soft"}, Run: do(exited(3)), Undo: undo("b")},
		{Name: "c", After: []workorder.StepName{"b"}, Run: note("c"), Undo: undo("c")},
		{Name: "quiet", After: []workorder.StepName{"c"}, Hidden: true, Run: note("quiet")},
		{Name: "land", Always: true, Run: note("land")},
		{Name: "fails", Always: true, Run: do(errors.New("no"))},
		{Name: "last", Always: true, Hidden: true, Run: note("last")},
	}}
	err := l.Work(t.Context())
	l.Finish(t.Context())
	l.Undo(t.Context())
	failed, ok := errors.AsType[*Error](err)
	if !ok || failed.Step != "b" || !errors.Is(err, exited(3)) {
		t.Errorf("the work ended with %v", err)
	}
	if want := []string{"a", "land", "last", "undo c", "undo b", "undo a"}; !slices.Equal(did, want) {
		t.Errorf("did %v, want %v", did, want)
	}
	if want := []workorder.StepName{"a", "none", "soft", "b", "c", "land", "fails"}; !slices.Equal(n.declared, want) {
		t.Errorf("declared %v, want %v", n.declared, want)
	}
	if want := []workorder.StepName{"a", "soft", "b", "land", "fails"}; !slices.Equal(n.started, want) {
		t.Errorf("started %v, want %v", n.started, want)
	}
	if !n.skipped("none") || n.ended["soft"] == nil || n.codes["b"] == nil || *n.codes["b"] != 3 || n.ended["fails"] == nil ||
		n.ended["land"] != nil {
		t.Errorf("ended %v, exit codes %v", n.ended, n.codes)
	}
	if len(n.unreached) != 1 || n.unreached["c"] == "" {
		t.Errorf("not reached: %v", n.unreached)
	}
}

// A step may end the work without having failed.
func TestStop(t *testing.T) {
	t.Parallel()
	n, mine := &notes{}, errors.New("mine")
	l := &List{Rec: n, Steps: []Step{
		{Name: "a", Run: do(&SkipRest{Reason: "it is done", Err: mine})},
		{Name: "b", After: []workorder.StepName{"a"}, Run: do(nil)},
	}}
	if err := l.Work(t.Context()); !errors.Is(err, mine) || !n.skipped("a") || n.unreached["b"] != "it is done" {
		t.Errorf("%v, ended %v, not reached %v", err, n.ended, n.unreached)
	}
}

// Steps that do not depend on each other run at the same time.
func TestAtTheSameTime(t *testing.T) {
	t.Parallel()
	meet := make(chan struct{})
	l := &List{Rec: &notes{}, Steps: []Step{
		{Name: "a", Run: func(ctx context.Context) error { return either(ctx, func() { meet <- struct{}{} }) }},
		{Name: "b", Run: func(ctx context.Context) error { return either(ctx, func() { <-meet }) }},
	}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := l.Work(ctx); err != nil {
		t.Error(err)
	}
}

func either(ctx context.Context, f func()) error {
	done := make(chan struct{})
	go func() { f(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := &notes{}
		hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		l := &List{
			Rec:   n,
			Steps: []Step{{Name: "a", Budget: time.Second, Run: hang}, {Name: "b", Always: true, Budget: time.Second, Run: hang}},
		}
		err := l.Work(t.Context())
		l.Finish(t.Context())
		if _, ok := errors.AsType[*budgetError](err); !ok || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the work ended with %v", err)
		}
		if _, ok := errors.AsType[*budgetError](n.ended["b"]); !ok {
			t.Errorf("b ended with %v", n.ended["b"])
		}
	})
}

// An Always step that is ended early says how to do it later; one whose life is over is not started.
func TestLife(t *testing.T) {
	t.Parallel()
	n, over := &notes{}, errors.New("told to stop")
	life, end := context.WithCancelCause(t.Context())
	l := &List{Rec: n, Steps: []Step{
		{
			Name:      "a",
			Always:    true,
			Context:   func() context.Context { return life },
			RetryHint: "; try again",
			Run:       func(ctx context.Context) error { end(over); return ctx.Err() },
		},
		{Name: "b", Always: true, Context: func() context.Context { return life }, Run: do(errors.New("ran"))},
		{Name: "c", Always: true, Run: func(ctx context.Context) error { return ctx.Err() }},
	}}
	l.Finish(life)
	skip, _ := errors.AsType[*record.Skip](n.ended["a"])
	if skip == nil || skip.Reason != over.Error()+"; try again" || !n.skipped("b") || slices.Contains(n.started, "b") ||
		n.ended["c"] != nil {
		t.Errorf("ended %v, started %v", n.ended, n.started)
	}
}

// When the run is over no further step begins, and what was under way says why it ended.
func TestRunIsOver(t *testing.T) {
	t.Parallel()
	n, over := &notes{}, errors.New("the time limit")
	run, end := context.WithCancelCause(t.Context())
	l := &List{Rec: n, Steps: []Step{
		{Name: "a", Run: func(context.Context) error { end(over); return errors.New("killed") }},
		{Name: "b", After: []workorder.StepName{"a"}, Run: do(nil)},
	}}
	if err := l.Work(run); !errors.Is(err, over) || n.unreached["b"] == "" {
		t.Errorf("%v, not reached %v", err, n.unreached)
	}
}
