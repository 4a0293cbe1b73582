package cli

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/internal/test/runtimetest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// onWrite calls fn after every write.
type onWrite struct {
	bytes.Buffer
	fn func()
}

func (w *onWrite) Write(p []byte) (int, error) {
	defer w.fn()
	return w.Buffer.Write(p)
}

// detached is an app with one task whose box runs the program.
func detached(t *testing.T, p runtimetest.Program) (*cmdutil.Factory, *onWrite, *bytes.Buffer) {
	t.Helper()
	fake := runtimetest.NewFake(map[string]runtimetest.Program{"x": p})
	dir := t.TempDir()
	lock, err := taskstore.New(dir).Create(&taskstore.Record{TaskID: "T-A1B2C3D4", CreatedAt: time.Now(), Box: "box"})
	if err != nil {
		t.Fatal(err)
	}
	lock.Unlock()
	own, err := taskstore.New(dir).Owner(true)
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{workorder.LabelTask: "T-A1B2C3D4", workorder.LabelOwner: own.ID}
	if _, err := fake.Run(t.Context(), runtime.ContainerSpec{Name: "box", Image: "x", Labels: labels}, strings.NewReader("")); err != nil {
		t.Fatal(err)
	}
	out, errs := &onWrite{fn: func() {}}, &bytes.Buffer{}
	return cmdutil.New(cmdutil.IO{Stdin: strings.NewReader(""), Stdout: out, Stderr: errs}, app.Env{
		Getenv: func(name string) string {
			return map[string]string{"SANDBOX_AGENT_STATE_DIR": dir}[name]
		},
		OpenEngine: func() (*app.Backend, error) { return &app.Backend{Engine: fake}, nil },
	}), out, errs
}

// TestLeaveLogs: who leaves a task that goes on is not told of an error.
func TestLeaveLogs(t *testing.T) {
	t.Parallel()
	a, out, errs := detached(t, func(b *runtimetest.Box) int {
		fmt.Fprintln(b.Stdout, `{"seq":1,"type":"ready","text":"1"}`)
		<-b.Killed
		return 0
	})
	ctx, cancel := context.WithCancel(t.Context())
	out.fn = cancel
	if code := Main(ctx, a, []string{"logs", "-f", "A1B2", "--verbose"}); code != 130 || errs.Len() > 0 {
		t.Errorf("exit %d, %q", code, errs.String())
	}
}

// TestPsStep: the step is found without reading all that a box has ever printed.
func TestPsStep(t *testing.T) {
	t.Parallel()
	said := make(chan struct{})
	a, out, errs := detached(t, func(b *runtimetest.Box) int {
		fmt.Fprintln(b.Stdout, `{"seq":1,"type":"step.started","name":"agent"}`)
		for i := range 2000 { // ten times what is read
			fmt.Fprintf(b.Stdout, `{"seq":%d,"type":"agent.text","text":"x"}`+"\n", i+2)
		}
		close(said)
		<-b.Killed
		return 0
	})
	<-said
	if code := Main(t.Context(), a, []string{"ps", "--json"}); code != 0 || !strings.Contains(out.String(), `"step": "agent"`) {
		t.Errorf("exit %d, %s%s", code, out.String(), errs.String())
	}
}

// TestExitOfTask: a script that waits for a detached task learns how it ended.
func TestExitOfTask(t *testing.T) {
	t.Parallel()
	a, _, errs := detached(t, func(b *runtimetest.Box) int {
		fmt.Fprintln(b.Stdout, `{"seq":1,"type":"result","result":{"version":1,"task_id":"T-A1B2C3D4","status":"timeout","ended_by":"timeout"}}`)
		return 12
	})
	for _, c := range []struct {
		args string
		want int
	}{{"logs -f A1B2", workorder.ExitTimeout}, {"logs -f A1B2", workorder.ExitTimeout}, {"logs A1B2", 0}, {"result A1B2", 0}, {"result A1B2 --exit-status", workorder.ExitTimeout}} {
		if code := Main(t.Context(), a, strings.Fields(c.args)); code != c.want {
			t.Errorf("%s: exit %d, want %d: %s", c.args, code, c.want, errs.String())
		}
	}
}

// TestPsEnded: what nobody collected is shown as what it is, and what nobody
// holds and has no box is lost, without a gc.
func TestPsEnded(t *testing.T) {
	t.Parallel()
	a, out, errs := detached(t, func(b *runtimetest.Box) int {
		fmt.Fprintln(b.Stdout, `{"seq":1,"type":"result","result":{"version":1,"status":"failed","ended_by":"agent"}}`)
		return 10
	})
	st, err := a.Store()
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"T-00000001", "T-00000002"} {
		lock, err := st.Create(&taskstore.Record{TaskID: id, CreatedAt: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		if id == "T-00000001" {
			lock.Unlock()
		} else {
			defer lock.Unlock()
		}
	}
	for !strings.Contains(out.String(), "failed") && t.Context().Err() == nil {
		out.Reset()
		if code := Main(t.Context(), a, []string{"ps"}); code != 0 {
			t.Fatalf("exit %d, %s", code, errs.String())
		}
	}
	for _, want := range []string{`T-A1B2C3D4 .* failed`, `T-00000001 .* lost`, `T-00000002 .* starting`} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("%s is not in\n%s", want, out.String())
		}
	}
}

// TestStopKills: a box that was killed on request was not lost, whoever collects it.
func TestStopKills(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]workorder.ReasonCode{"stop A1B2 --timeout 0": workorder.ReasonKilled, "rm -f A1B2": ""} {
		said := make(chan struct{})
		a, out, errs := detached(t, func(b *runtimetest.Box) int {
			fmt.Fprintln(b.Stdout, `{"seq":1,"type":"step.started","name":"agent"}`)
			close(said)
			<-b.Killed
			return 137
		})
		<-said
		if code := Main(t.Context(), a, strings.Fields(args)); code != 0 {
			t.Errorf("%s: exit %d: %s", args, code, errs.String())
		}
		if want == "" {
			continue
		}
		if !strings.Contains(out.String(), "T-A1B2C3D4 interrupted") {
			t.Errorf("%s prints %q", args, out.String())
		}
		out.Reset()
		if code := Main(t.Context(), a, []string{"result", "A1B2", "--exit-status", "--json"}); code != workorder.ExitInterrupted {
			t.Errorf("exit %d: %s", code, out.String())
		}
		if res, err := workorder.DecodeResult(out.Bytes()); err != nil || res.Reasons.Code() != want {
			t.Errorf("%v, %s, want %s", err, out.String(), want)
		}
	}
}
