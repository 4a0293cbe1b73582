package tasks

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/launch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/job"

	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// world is an engine and a project that note what is asked of them.
type world struct {
	t      *testing.T
	st     *store.Store
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

func (w *world) Resume(_ context.Context, job *job.Job, _ *store.Record) (*workorder.Result, error) {
	w.did = append(w.did, "resume")
	if !w.st.Held(id) {
		w.t.Error("an attempt is started without the task's lock")
	}
	return &workorder.Result{TaskID: job.Order.TaskID, Status: done0}, nil
}

func (w *world) Watch(context.Context, *store.Record) (*workorder.Result, error) {
	w.did = append(w.did, "watch")
	if w.st.Held(id) {
		w.t.Error("a box is followed with the task's lock, which whoever collects it needs")
	}
	return &workorder.Result{Status: done0}, nil
}

func (w *world) Collect(_ context.Context, rec *store.Record) error {
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
		asked  Asked
		rec    *store.Record
		remote []*Remote
		live   bool
		detach bool
		did    []string
		want   Do
	}{
		"a new task":             {Asked{Verb: Create, Fresh: true}, nil, nil, false, false, []string{"run"}, Begin},
		"a rehearsal":            {Asked{Verb: Create, Fresh: true, DryRun: true}, nil, nil, false, false, nil, Begin},
		"the next attempt":       {Asked{Verb: Continue}, timeout, []*Remote{ours}, false, false, []string{"ask", "resume"}, GoOn},
		"after it was collected": {Asked{Verb: Continue}, running, []*Remote{ours}, false, false, []string{"collect", "ask", "resume"}, GoOn},
		"from another machine":   {Asked{Verb: Continue}, nil, []*Remote{ours}, false, false, []string{"ask", "run"}, GoOn},
		"a box that runs":        {Asked{Verb: Create, IfExists: true}, running, nil, true, false, []string{"collect", "watch"}, Follow},
		"one that is left alone": {Asked{Verb: Create, IfExists: true}, running, nil, true, true, []string{"collect"}, Follow},
		"a result is read":       {Asked{Verb: Read}, running, nil, false, false, []string{"collect"}, Report},
		"done elsewhere":         {Asked{Verb: Create, IfExists: true}, nil, []*Remote{finished}, false, false, []string{"ask"}, ReportRemote},
		"a limit is waited for":  {Asked{Verb: Continue, Wait: true}, nil, []*Remote{reset, ours}, false, false, nil, GoOn},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &world{t: t, st: store.New(t.TempDir()), remote: c.remote, live: c.live}
			var rec *store.Record
			if c.rec != nil {
				copied := *c.rec
				rec = &copied
				lock, err := w.st.Create(rec)
				if err != nil {
					t.Fatal(err)
				}
				lock.Unlock()
			}
			f := &Flow{Store: w.st, Boxes: w, Project: w, Detach: c.detach, Waits: func(Action) {}}
			c.asked.Task = id
			out, err := f.Run(t.Context(), State{Asked: c.asked, Record: rec})
			if err != nil || out.Do != c.want || c.did != nil && !slices.Equal(w.did, c.did) {
				t.Errorf("%q, then %q, want %q: %v", w.did, out.Do, c.want, err)
			}
			if started := slices.Contains([]Do{Begin, GoOn}, out.Do); started != (out.Job != nil) || started && !c.asked.DryRun != (out.Result != nil) {
				t.Errorf("%+v", out)
			}
			if w.st.Held(id) {
				t.Error("the lock is held")
			}
		})
	}
}

// TestOvertaken: another command begins the task between our look and our start. Its task is the one.
func TestOvertaken(t *testing.T) {
	t.Parallel()
	w := &world{t: t, st: store.New(t.TempDir()), remote: []*Remote{{Repo: "r"}}}
	w.run = func() error {
		rec := *ended(done0, agent)
		lock, err := w.st.Create(&rec)
		if err != nil {
			return err
		}
		lock.Unlock()
		return store.ErrExists
	}
	f := &Flow{Store: w.st, Boxes: w, Project: w}
	out, err := f.Run(t.Context(), State{Asked: Asked{Verb: Create, IfExists: true, Task: id}})
	if err != nil || out.Do != Report || out.Record == nil {
		t.Errorf("%+v, %v", out, err)
	}
	// Who does not want an existing one is told.
	w.st, w.remote, w.did = store.New(t.TempDir()), []*Remote{{Repo: "r"}}, nil
	f.Store = w.st
	if _, err := f.Run(t.Context(), State{Asked: Asked{Verb: Create, Task: id}}); !errors.Is(err, store.ErrExists) {
		t.Error(err)
	}
}
