package cli

import (
	"context"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/host/tasks"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// slowImages is never done.
type slowImages struct {
	app.Images
	asked chan struct{}
}

func (i slowImages) Ensure(ctx context.Context, _ string, _ []string, _ func(workorder.Event)) (workorder.Image, error) {
	close(i.asked)
	<-ctx.Done()
	return workorder.Image{}, ctx.Err()
}

// TestStopStarting: a task can be stopped, and by force be forgotten, before it has a box.
func TestStopStarting(t *testing.T) {
	t.Parallel()
	for name, command := range map[string][]string{"stop": {"stop", tid, "--timeout", "5s"}, "kill": {"stop", tid, "--timeout", "0"}, "rm": {"rm", "--force", tid}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, ends(workorder.StatusSuccess, workorder.EndedByAgent))
			slow := slowImages{asked: make(chan struct{})}
			r.images = slow
			ended := make(chan int)
			go func() {
				code, _, _ := r.run(create()...)
				ended <- code
			}()
			<-slow.asked
			r.want(workorder.ExitGeneral, tid, "rm", tid)
			r.want(0, tid, command...)
			if code := <-ended; code != workorder.ExitInterrupted {
				t.Errorf("create: exit %d", code)
			}
			r.boxes(0)
		})
	}
}

// TestStopNext: a task that another command is about to go on with is stopped in its
// next attempt.
func TestStopNext(t *testing.T) {
	t.Parallel()
	r := newRig(t, ends(workorder.StatusTimeout, workorder.EndedByTimeout))
	r.want(workorder.ExitTimeout, "", create()...)
	st := taskstore.New(r.state)
	lock, err := st.TryLock(tid)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan string, 1)
	go func() {
		_, out, errs := r.run("stop", tid)
		ended <- out + errs
	}()
	// Time for the command to look; whenever it does, it must not answer for the last attempt.
	select {
	case said := <-ended:
		t.Fatalf("it did not wait: %s", said)
	case <-time.After(time.Second):
	}
	last, err := st.Load(tid)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.NextAttempt(last, &taskstore.Record{TaskID: tid, AttemptID: workorder.NewAttemptID()}); err != nil {
		t.Fatal(err)
	}
	for st.StopRequest(tid) == "" {
		select {
		case said := <-ended:
			t.Fatalf("it answered for the last attempt: %s", said)
		case <-time.After(tasks.LockPause):
		}
	}
	lock.Unlock()
	if said := <-ended; said != tid+" lost\n" {
		t.Errorf("stop says %q", said)
	}
}
