package cli

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/internal/test/runtimetest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// app is the command line of a rig.
func (r *rig) app(stdin io.Reader, stdout, stderr io.Writer) *cmdutil.Factory {
	return cmdutil.New(cmdutil.IO{Stdin: stdin, Stdout: stdout, Stderr: stderr}, app.Env{
		Getenv: func(name string) string {
			// A task is no setting, so that no variable gives one.
			if v, own := r.env[name]; own {
				return v
			}
			return map[string]string{"SANDBOX_AGENT_STATE_DIR": r.state, "SANDBOX_AGENT_GIT_TOKEN": "tok", "SANDBOX_AGENT_TASK": "x", "SANDBOX_AGENT_TASK_FILE": "x"}[name]
		},
		OpenEngine: func() (*app.Backend, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.opened++
			return &app.Backend{Engine: r.fake, Images: r.images}, nil
		},
	})
}

// TestHeld: a command that waits for another one's decision gives up when that never comes, and at once when the
// user leaves.
func TestHeld(t *testing.T) {
	t.Parallel()
	r := newRig(t, ends(workorder.StatusTimeout, workorder.EndedByTimeout))
	r.want(workorder.ExitTimeout, "", create()...)
	st := taskstore.New(r.state)
	lock, err := st.TryLock(tid)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	wait := func(t *testing.T, ctx context.Context, patience time.Duration, args ...string) (int, string) {
		t.Helper()
		var out, errs bytes.Buffer
		a := r.app(strings.NewReader(""), &out, &errs)
		a.Patience = patience
		for i, s := range args {
			args[i] = strings.Replace(s, "P", r.project, 1)
		}
		return Main(ctx, a, args), errs.String()
	}
	both := func(t *testing.T, args ...string) {
		t.Helper()
		code, said := wait(t, t.Context(), time.Millisecond, args...)
		if code != workorder.ExitGeneral || !strings.Contains(said, "fuser "+st.LockPath(tid)) {
			t.Errorf("%q: exit %d, %s", args, code, said)
		}
		ctx, leave := context.WithCancel(t.Context())
		leave()
		if code, said := wait(t, ctx, 0, args...); code != app.ExitLeft {
			t.Errorf("%q, left: exit %d, %s", args, code, said)
		}
	}
	both(t, "stop", tid)
	both(t, "continue", tid)
	both(t, "create", "-p", "P", "--task", "x", "--task-id", tid, "--if-exists", "continue")
	// A command that died, or hangs, while it moved an output away.
	rec, err := st.Load(tid)
	if err != nil {
		t.Fatal(err)
	}
	rec.Moving = 1
	if err := st.Save(rec); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"result", "logs", "stop", "rm"} {
		both(t, command, tid)
	}
}

// TestStdinIsLeft: a text that never ends does not keep a command that is told to stop.
func TestStdinIsLeft(t *testing.T) {
	t.Parallel()
	r := newRig(t, ends(workorder.StatusSuccess, workorder.EndedByAgent))
	in, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer w.Close()
	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan int)
	go func() {
		var out, errs bytes.Buffer
		ended <- Main(ctx, r.app(in, &out, &errs), []string{"create", "-p", r.project, "--task", "-"})
	}()
	if _, err := w.WriteString("half a task"); err != nil {
		t.Fatal(err)
	}
	leave()
	if code := <-ended; code != app.ExitLeft {
		t.Errorf("exit %d", code)
	}
	r.boxes(0)
}

// stuckCopy is an engine that never ends a copy by itself.
type stuckCopy struct {
	*runtimetest.Fake
	begun chan struct{}
}

func (s stuckCopy) CopyOut(ctx context.Context, _, _ string) (io.ReadCloser, error) {
	close(s.begun)
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestCollectingIsLeft: who leaves while a box is collected leaves it for the next one.
func TestCollectingIsLeft(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"gc"}, {"result", tid}, {"logs", "-f", tid}} {
		t.Run(args[0], func(t *testing.T) {
			t.Parallel()
			r := newRig(t, ends(workorder.StatusSuccess, workorder.EndedByAgent))
			r.want(0, tid, create("--detach")...)
			r.waitEnded()
			stuck := stuckCopy{r.fake, make(chan struct{})}
			ctx, leave := context.WithCancel(t.Context())
			var out, errs bytes.Buffer
			a := r.app(strings.NewReader(""), &out, &errs)
			a.OpenEngine = func() (*app.Backend, error) { return &app.Backend{Engine: stuck, Images: r.images}, nil }
			ended := make(chan int)
			go func() { ended <- Main(ctx, a, args) }()
			<-stuck.begun
			leave()
			if code := <-ended; code == 0 {
				t.Errorf("exit 0:\n%s%s", &out, &errs)
			}
			if r.fake.Count() != 1 {
				t.Errorf("%d boxes", r.fake.Count())
			}
			r.want(0, "", "result", tid)
			if rec, err := taskstore.New(r.state).Load(tid); err != nil || !rec.Collected || rec.Status != workorder.StatusSuccess || r.fake.Count() != 0 {
				t.Errorf("%+v, %v, %d boxes", rec, err, r.fake.Count())
			}
		})
	}
}

func (r *rig) waitEnded() {
	r.t.Helper()
	for {
		boxes, err := r.fake.Instances(r.t.Context(), map[string]string{workorder.LabelTask: ""})
		if err != nil {
			r.t.Fatal(err)
		}
		live := false
		for _, b := range boxes {
			live = live || b.Running()
		}
		if !live {
			return
		}
		select {
		case <-r.t.Context().Done():
			r.t.Fatal("the box does not end")
		case <-time.After(time.Millisecond):
		}
	}
}
