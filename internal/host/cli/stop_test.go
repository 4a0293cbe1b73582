package cli

import (
	"context"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// slowImages is never done.
type slowImages struct {
	Images
	asked chan struct{}
}

func (i slowImages) Ensure(ctx context.Context, _ string, _ func(workorder.Event)) (workorder.Image, error) {
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
			r := newRig(t, ends(workorder.StatusSuccess, workorder.ByAgent))
			slow := slowImages{asked: make(chan struct{})}
			r.images = slow
			ended := make(chan int)
			go func() {
				code, _, _ := r.run(create()...)
				ended <- code
			}()
			<-slow.asked
			r.want(workorder.ExitGeneral, "is being started", "rm", tid)
			r.want(0, tid, command...)
			if code := <-ended; code != workorder.ExitInterrupted {
				t.Errorf("create: exit %d", code)
			}
			r.boxes(0)
		})
	}
}
