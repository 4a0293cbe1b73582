package tasks

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/launch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/job"

	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// world is an engine and a project that note what is asked of them.
type world struct {
	t      *testing.T
	st     *taskstore.Store
	remote []*Remote // the answers of the remote; the last one repeats
	live   bool      // the box of the task runs
	run    func() error
	did    []string
}

func (w *world) Run(_ context.Context, job *job.Job) (*workorder.Result, error) {
	w.did = append(w.did, "run")
	if w.run != nil {
		return nil, w.run()
	}
	return &workorder.Result{TaskID: job.Order.TaskID, Status: done0}, nil
}

func (w *world) Resume(_ context.Context, job *job.Job, _ *taskstore.Record) (*workorder.Result, error) {
	w.did = append(w.did, "resume")
	if !w.st.Locked(id) {
		w.t.Error("an attempt is started without the task's lock")
	}
	return &workorder.Result{TaskID: job.Order.TaskID, Status: done0}, nil
}

func (w *world) Watch(context.Context, *taskstore.Record) (*workorder.Result, error) {
	w.did = append(w.did, "watch")
	if w.st.Locked(id) {
		w.t.Error("a box is followed with the task's lock, which its collection needs")
	}
	return &workorder.Result{Status: done0}, nil
}

func (w *world) Collect(_ context.Context, rec *taskstore.Record) error {
	w.did = append(w.did, "collect")
	if w.live {
		return launch.ErrRunning
	}
	rec.Collected, rec.Status, rec.EndedBy, rec.Box = true, workorder.StatusTimeout, workorder.EndedByTimeout, "box"
	return nil
}

func (w *world) Ask(context.Context, State) *Remote {
	w.did = append(w.did, "ask")
	on := w.remote[0]
	if len(w.remote) > 1 {
		w.remote = w.remote[1:]
	}
	return on
}

func (w *world) New(_ context.Context, s State, next Attempt) (*job.Job, error) {
	return &job.Job{Order: workorder.Order{TaskID: s.Task, Task: next.Text}}, nil
}

func (w *world) Job(_ context.Context, s State, next Action) (*job.Job, error) {
	return &job.Job{Order: workorder.Order{TaskID: s.Task, Mode: next.Attempt.Mode}}, nil
}

// TestFlow: what Next decides is done, under the lock where it has to be, and comes back as values.
func TestFlow(t *testing.T) {
	t.Parallel()
	ours := state(attemptOf("a1", workorder.StatusTimeout, workorder.EndedByTimeout))
	ours.State.TargetBranch = here0
	reset := state(attemptOf("b1", workorder.StatusParked, workorder.EndedByLimit))
	soon := time.Now().Add(10 * time.Millisecond) // however late the test is: a limit that has reset is asked for again
	reset.State.Last().ResumeAt = &soon
	finished := state(attemptOf("b1", done0, agent))
	timeout, running := ended(workorder.StatusTimeout, workorder.EndedByTimeout), ended("", "", runs)
	for name, c := range map[string]struct {
		asked  Request
		rec    *taskstore.Record
		remote []*Remote
		live   bool
		detach bool
		did    []string
		want   ActionKind
	}{
		"a new task":             {Request{Verb: Create, Fresh: true}, nil, nil, false, false, []string{"run"}, ActionBegin},
		"a rehearsal":            {Request{Verb: Create, Fresh: true, DryRun: true}, nil, nil, false, false, nil, ActionBegin},
		"the next attempt":       {Request{Verb: Continue}, timeout, []*Remote{ours}, false, false, []string{"ask", "resume"}, ActionContinue},
		"after it was collected": {Request{Verb: Continue}, running, []*Remote{ours}, false, false, []string{"collect", "ask", "resume"}, ActionContinue},
		"from another machine":   {Request{Verb: Continue}, nil, []*Remote{ours}, false, false, []string{"ask", "run"}, ActionContinue},
		"a box that runs":        {Request{Verb: Create, IfExists: true}, running, nil, true, false, []string{"collect", "watch"}, ActionFollow},
		"one that is left alone": {Request{Verb: Create, IfExists: true}, running, nil, true, true, []string{"collect"}, ActionFollow},
		"a result is read":       {Request{Verb: Read}, running, nil, false, false, []string{"collect"}, ActionReport},
		"done elsewhere":         {Request{Verb: Create, IfExists: true}, nil, []*Remote{finished}, false, false, []string{"ask"}, ActionReportRemote},
		"a limit is waited for":  {Request{Verb: Continue, Wait: true}, nil, []*Remote{reset, ours}, false, false, nil, ActionContinue},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &world{t: t, st: taskstore.New(t.TempDir()), remote: c.remote, live: c.live}
			var rec *taskstore.Record
			if c.rec != nil {
				copied := *c.rec
				rec = &copied
				lock, err := w.st.Create(rec)
				if err != nil {
					t.Fatal(err)
				}
				lock.Unlock()
			}
			f := &Controller{Store: w.st, Attempts: w, Project: w, Detach: c.detach, Waits: func(Action) {}}
			c.asked.Task = id
			out, err := f.Run(t.Context(), State{Request: c.asked, Record: rec})
			if err != nil || out.Kind != c.want || c.did != nil && !slices.Equal(w.did, c.did) {
				t.Errorf("%q, then %q, want %q: %v", w.did, out.Kind, c.want, err)
			}
			if started := slices.Contains([]ActionKind{ActionBegin, ActionContinue}, out.Kind); started != (out.Job != nil) || started && !c.asked.DryRun != (out.Result != nil) {
				t.Errorf("%+v", out)
			}
			if w.st.Locked(id) {
				t.Error("the lock is held")
			}
		})
	}
}

// TestOvertaken: another command begins the task between our look and our start. Its task is the one.
func TestOvertaken(t *testing.T) {
	t.Parallel()
	w := &world{t: t, st: taskstore.New(t.TempDir()), remote: []*Remote{{Repo: "r"}}}
	w.run = func() error {
		rec := *ended(done0, agent)
		lock, err := w.st.Create(&rec)
		if err != nil {
			return err
		}
		lock.Unlock()
		return taskstore.ErrExists
	}
	c := &Controller{Store: w.st, Attempts: w, Project: w}
	out, err := c.Run(t.Context(), State{Request: Request{Verb: Create, IfExists: true, Task: id}})
	if err != nil || out.Kind != ActionReport || out.Record == nil {
		t.Errorf("%+v, %v", out, err)
	}
	// An existing task is an error if only a new one is wanted.
	w.st, w.remote, w.did = taskstore.New(t.TempDir()), []*Remote{{Repo: "r"}}, nil
	c.Store = w.st
	if _, err := c.Run(t.Context(), State{Request: Request{Verb: Create, Task: id}}); !errors.Is(err, taskstore.ErrExists) {
		t.Error(err)
	}
}
