package launch_test

import (
	"context"
	"io"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/internal/test/runtimetest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// slow is a remote, or what makes images, that never answers.
type slow struct {
	images
	remote
	asked chan struct{}
}

func (s slow) Check(ctx context.Context, _, _, _ string, _ *workorder.GitCredential) (string, error) {
	close(s.asked)
	<-ctx.Done()
	return "", ctx.Err()
}

func (s slow) Ensure(ctx context.Context, _ string, _ []string, _ func(workorder.Event)) (workorder.Image, error) {
	close(s.asked)
	<-ctx.Done()
	return workorder.Image{}, ctx.Err()
}

// TestStopBeforeBox: a task whose end is asked for while its command is still
// starting it gets no box.
func TestStopBeforeBox(t *testing.T) {
	t.Parallel()
	for name, during := range map[string]func(*fixture, slow){
		"preflight": func(f *fixture, s slow) { f.Remote = s },
		"image":     func(f *fixture, s slow) { f.Images = s },
	} {
		t.Run(name, func(t *testing.T) {
			f := setup(t, happy)
			s := slow{asked: make(chan struct{})}
			during(f, s)
			j := newJob()
			ended := make(chan error)
			var res *workorder.Result
			go func() {
				var err error
				res, err = f.Run(t.Context(), nil, j)
				ended <- err
			}()
			<-s.asked
			rec, err := f.Store.Load(j.Order.TaskID)
			if err != nil {
				t.Fatal(err)
			}
			if stopped, err := f.Stop(t.Context(), rec, runtime.StopTimeout); err != nil || stopped {
				t.Errorf("stopped %v, %v", stopped, err)
			}
			if err := <-ended; exiterr.Code(err) != workorder.ExitInterrupted {
				t.Errorf("%v", err)
			}
			if res.Status != workorder.StatusInterrupted || res.EndedBy != workorder.EndedBySignal || res.Reasons.Code() != workorder.ReasonOnRequest || f.fake.Count() != 0 {
				t.Errorf("%+v, %d boxes", res, f.fake.Count())
			}
			// A request to this attempt does not hold for the next one.
			f.Remote, f.Images = remote{}, images{}
			if res, err := f.resume(t, j); err != nil || res.Status != workorder.StatusSuccess {
				t.Errorf("%+v, %v", res, err)
			}
		})
	}
}

// stoppedMeanwhile is an engine on which somebody asks for the end of every box that
// is just being started, too late for anybody to give it up.
type stoppedMeanwhile struct {
	*runtimetest.Fake
	note func()
}

func (s stoppedMeanwhile) Run(ctx context.Context, spec runtime.ContainerSpec, stdin io.Reader) (string, error) {
	s.note()
	return s.Fake.Run(context.WithoutCancel(ctx), spec, stdin)
}

// TestStopWhileStarting: whoever starts the box stops it, also when nobody follows it.
func TestStopWhileStarting(t *testing.T) {
	t.Parallel()
	for name, detach := range map[string]bool{"followed": false, "detached": true} {
		t.Run(name, func(t *testing.T) {
			f := setup(t, func(b *runtimetest.Box) int {
				g := newGuest(b)
				<-b.Stopped
				return g.end(workorder.StatusInterrupted, workorder.EndedBySignal)
			})
			j := newJob()
			j.Detach = detach
			f.Engine = stoppedMeanwhile{f.fake, func() {
				if err := f.Store.RequestStop(j.Order.TaskID, taskstore.StopSoft); err != nil {
					t.Error(err)
				}
			}}
			res, err := f.Run(t.Context(), nil, j)
			if err == nil && detach {
				rec, lerr := f.Store.Load(j.Order.TaskID)
				if lerr != nil {
					t.Fatal(lerr)
				}
				res, err = f.Attach(t.Context(), rec)
			}
			if err != nil || res.Status != workorder.StatusInterrupted || res.Reasons.Code() != workorder.ReasonOnRequest || len(res.Reasons) != 1 {
				t.Errorf("%+v, %v", res, err)
			}
		})
	}
}
