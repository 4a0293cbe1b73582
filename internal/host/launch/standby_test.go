package launch_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/companion"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/job"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/test/runtimetest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// standing is a box that may wait for its order. The events from before have no number.
func standing(b *runtimetest.Box) int {
	in := workorder.NewInput(b.Stdin)
	s, env, err := in.Next()
	if err == nil && s != nil {
		fmt.Fprintln(b.Stdout, `{"type":"warning","text":"from before"}`)
		fmt.Fprintln(b.Stdout, `{"type":"standby","status":"done"}`)
		if _, env, err = in.Next(); err == nil && !s.Takes(&env.Order) {
			err = fmt.Errorf("not for this box: %+v", env.Order)
		}
	}
	if err != nil {
		fmt.Fprintln(b.Stderr, err)
		return workorder.ExitBox
	}
	g := &guest{b: b, env: env}
	g.say(workorder.Event{Type: workorder.EventReady})
	return g.endAs(workorder.Result{Status: workorder.StatusSuccess, EndedBy: workorder.EndedByAgent, Standby: s != nil})
}

// standBy keeps standbys for newJob, changed by change, until the test ends or stop is called.
func (f *fixture) standBy(t *testing.T, n int, change func(*job.Job)) (stop func()) {
	t.Helper()
	l := f.launcher(t, f.Store)
	l.StartCompanion = func(context.Context, companion.Config) (companion.Ready, error) { return companion.Ready{}, nil }
	k := &launch.StandbyOwner{Launcher: l, Count: n, Job: func(context.Context) (*job.Job, func(context.Context, string) error, error) {
		j := newJob()
		j.Secrets, j.Git = nil, nil
		change(j)
		return j, nil, nil
	}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// waiting waits until n boxes wait for a task.
func (f *fixture) waiting(t *testing.T, n int) (boxes []runtime.Instance) {
	t.Helper()
	for range 1000 {
		list, err := f.fake.Instances(t.Context(), map[string]string{workorder.LabelStandby: ""})
		if err != nil {
			t.Fatal(err)
		}
		boxes = nil
		for _, b := range list {
			if b.Waits() && b.State == "paused" {
				boxes = append(boxes, b)
			}
		}
		if len(boxes) == n {
			return boxes
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%d boxes wait, want %d", len(boxes), n)
	return nil
}

// A task takes a box that waits, and the owner starts another one.
func TestStandbyIsTaken(t *testing.T) {
	t.Parallel()
	f := setup(t, standing)
	stop := f.standBy(t, 1, func(*job.Job) {})
	box := f.waiting(t, 1)[0]
	j := newJob()
	j.Order.Limits.CPUs = 1.5 // is changed in the box
	if _, err := f.Run(t.Context(), nil, j); err != nil {
		t.Fatal(err)
	}
	rec, res := onDisk(t, f.Store, j.Order.TaskID)
	if !res.Standby || res.Status != workorder.StatusSuccess || rec.AttemptID != box.Labels[workorder.LabelAttempt] {
		t.Errorf("%+v, %+v", rec, res)
	}
	f.mu.Lock()
	took := 0
	for _, e := range f.seen {
		if e.Type == workorder.EventStandby && e.Name == box.Name && e.Status == "" {
			took++
		}
		if e.Text == "from before" {
			t.Errorf("shown: %+v", e)
		}
	}
	f.mu.Unlock()
	if took != 1 {
		t.Errorf("taken %d times", took)
	}
	if next := f.waiting(t, 1)[0]; next.ID == box.ID {
		t.Error("used again")
	}
	stop()
	if n := f.fake.Count(); n != 0 {
		t.Errorf("%d boxes are left", n)
	}
}

// A box has one task, however many want it. The others start as without it.
func TestStandbyIsTakenOnce(t *testing.T) {
	t.Parallel()
	f := setup(t, standing)
	stop := f.standBy(t, 1, func(*job.Job) {})
	f.waiting(t, 1)
	var wg sync.WaitGroup
	jobs := make([]*job.Job, 4)
	for i := range jobs {
		jobs[i] = newJob()
		jobs[i].Order.AttemptID = workorder.NewAttemptID()
		l := f.launcher(t, f.Store)
		wg.Go(func() {
			if _, err := l.Run(t.Context(), nil, jobs[i]); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	attempts := map[string]bool{}
	for _, j := range jobs {
		rec, res := onDisk(t, f.Store, j.Order.TaskID)
		if res.Status != workorder.StatusSuccess || attempts[rec.AttemptID] {
			t.Errorf("%+v", rec)
		}
		attempts[rec.AttemptID] = true
	}
	stop()
}

// A standby has no secret, and a task that needs another box does not take it.
func TestStandbyThatDoesNotFit(t *testing.T) {
	t.Parallel()
	f := setup(t, standing)
	asked := &asking{Fake: f.fake}
	f.Engine = asked
	f.standBy(t, 1, func(*job.Job) {})
	f.waiting(t, 1)
	for what, a := range map[string]struct {
		change func(*job.Job)
		warned bool
	}{
		"network":     {func(j *job.Job) { j.Order.Network.Mode = workorder.NetworkNone }, true},
		"memory":      {func(j *job.Job) { j.Order.Limits.MemoryBytes = 1 << 30 }, true},
		"known task":  {func(j *job.Job) { j.Order.IfExists = workorder.IfExistsContinue }, false},
		"other owner": {func(j *job.Job) { j.Owner = "other" }, false},
	} {
		j := newJob()
		a.change(j)
		f.mu.Lock()
		f.seen = nil
		f.mu.Unlock()
		if _, err := f.Run(t.Context(), nil, j); err != nil {
			t.Fatal(err)
		}
		if _, res := onDisk(t, f.Store, j.Order.TaskID); res.Standby || res.Status != workorder.StatusSuccess {
			t.Errorf("%s: %+v", what, res)
		}
		f.mu.Lock()
		if warned := slices.ContainsFunc(f.seen, func(e workorder.Event) bool { return e.Type == workorder.EventWarning }); warned != a.warned {
			t.Errorf("%s: warned %t", what, warned)
		}
		f.mu.Unlock()
	}
	f.waiting(t, 1)
	if s := fmt.Sprintf("%+v", asked.specs); strings.Contains(s, "cnry") {
		t.Errorf("the engine is asked for %s", s)
	}
}

// What a killed owner leaves is removed by the companion that outlives it, and by gc; a box that a task has taken stays.
func TestStandbyOfADeadOwner(t *testing.T) {
	t.Parallel()
	f := setup(t, standing)
	all := companion.Standbys{Engine: f.fake, Dir: f.Store.Dir()}
	label, err := all.Keep(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{runtime.StandbyName("T-A1B2C3D4"), runtime.BoxName("T-B1B2C3D4", 1)} {
		id, err := f.fake.Run(t.Context(), runtime.ContainerSpec{
			Name: name, Image: image, Standby: true, Labels: map[string]string{workorder.LabelStandby: "k", workorder.LabelStandbyOwner: label},
		}, strings.NewReader(""))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.fake.Remove(context.WithoutCancel(t.Context()), id) })
	}
	if err := all.RemoveAll(t.Context(), label); err != nil {
		t.Fatal(err)
	}
	left, err := f.fake.Instances(t.Context(), nil)
	if err != nil || len(left) != 1 || left[0].Labels[workorder.LabelTask] != "T-B1B2C3D4" {
		t.Errorf("%+v, %v", left, err)
	}
	if !companion.Kept(left[0]) {
		t.Error("its owner, this process, counts as dead")
	}
}

// The next owner removes what a killed one and its companion left.
func TestStandbyOwnerRemovesThoseOfDeadOnes(t *testing.T) {
	t.Parallel()
	f := setup(t, standing)
	dead, err := f.fake.Run(t.Context(), runtime.ContainerSpec{
		Name: runtime.StandbyName("T-A1B2C3D4"), Image: image, Standby: true, Labels: map[string]string{
			workorder.LabelOwner: "test", workorder.LabelStandby: "k", workorder.LabelStandbyOwner: `{"pid":2,"start":"0"}`,
		},
	}, strings.NewReader(""))
	if err != nil {
		t.Fatal(err)
	}
	all := companion.Standbys{Dir: f.Store.Dir()}
	temp := all.TempDir(`{"pid":2,"start":"0"}`)
	if err := os.MkdirAll(temp, 0o700); err != nil {
		t.Fatal(err)
	}
	if list := all.DeadTemps(); len(list) != 1 {
		t.Error(list)
	}
	stop := f.standBy(t, 1, func(*job.Job) {})
	if b := f.waiting(t, 1)[0]; b.ID == dead {
		t.Error("it is kept")
	}
	if _, err := os.Stat(temp); !errors.Is(err, fs.ErrNotExist) {
		t.Error("its files are kept:", err)
	}
	stop()
	if n := f.fake.Count(); n != 0 {
		t.Errorf("%d boxes are left", n)
	}
}
