package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/host/doctor"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/test/runtimetest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// conforming is a box whose agent reports the checks of its part, as a test says.
func conforming(t *testing.T, verdict func(name string) string, status workorder.Status) runtimetest.Program {
	t.Helper()
	return func(b *runtimetest.Box) int {
		env, err := workorder.DecodeEnvelope(b.Stdin)
		if err != nil {
			t.Error(err)
			return 1
		}
		part := doctor.Lazy
		if len(env.Order.Services) > 0 {
			part = doctor.Services
		}
		seq := int64(0)
		say := func(e workorder.Event) {
			seq++
			e.Seq, e.Time = seq, time.Now()
			line, err := json.Marshal(e)
			if err != nil {
				t.Error(err)
			}
			_, _ = b.Stdout.Write(append(line, '\n')) // to memory
		}
		say(workorder.Event{Type: workorder.EventReady})
		names, err := doctor.DockerChecks(part)
		if err != nil {
			t.Error(err)
		}
		for _, n := range names {
			if v := verdict(n); v != "" {
				say(workorder.Event{Type: workorder.EventAgentOutput, Name: "stdout", Text: "check: " + v})
			}
		}
		res := &workorder.Result{TaskID: env.Order.TaskID, StartedAt: time.Now(), Status: status, EndedBy: workorder.EndedByAgent}
		raw, err := res.Encode()
		if err != nil {
			t.Error(err)
		}
		b.WriteFile(workorder.OutDir+"/"+workorder.ResultFile, raw)
		say(workorder.Event{Type: workorder.EventResult, Result: res})
		return workorder.ExitCode(status, workorder.EndedByAgent)
	}
}

// derivedImages has every image, also those of services.
type derivedImages struct{ fakeImages }

func (derivedImages) Derive(context.Context, string, []byte, func(workorder.Event)) error { return nil }

func TestDeep(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		verdict func(string) string
		status  workorder.Status
		code    int
		says    []string
	}{
		"all well": {func(n string) string { return "ok " + n }, workorder.StatusSuccess, 0, []string{"ok    lazy      import", "ok    services  compose up", " 0 failed"}},
		"one fails": {func(n string) string {
			if n == "compose up" {
				return "FAIL " + n + "|exit code 1|" + evil
			}
			return "ok " + n
		}, workorder.StatusSuccess, workorder.ExitGeneral, []string{"FAIL  services  compose up", "exit code 1 | before\ufffdafter", " 1 failed"}},
		"cut off": {func(n string) string {
			if n == "import" {
				return "ok " + n
			}
			return ""
		}, workorder.StatusTimeout, workorder.ExitGeneral, []string{"FAIL  lazy      build", "status timeout"}},
		"none": {func(string) string { return "" }, workorder.StatusFailed, workorder.ExitTaskFailed, []string{"error: "}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := runtimetest.NewFake(map[string]runtimetest.Program{"x": conforming(t, c.verdict, c.status)})
			dir := t.TempDir()
			var out, errs bytes.Buffer
			a := cmdutil.New(cmdutil.IO{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs}, app.Env{
				Getenv: func(name string) string { return map[string]string{"SANDBOX_AGENT_STATE_DIR": dir}[name] },
				OpenEngine: func() (*app.Backend, error) {
					return &app.Backend{Engine: struct { // without images
						runtime.Runtime
						runtime.Copier
					}{fake, fake}, Images: derivedImages{}}, nil
				},
			})
			code := Main(t.Context(), a, []string{"doctor", "--deep", "--image", "box"})
			all := out.String() + errs.String()
			if code != c.code || obeyed(all) {
				t.Errorf("exit %d: %s", code, all)
			}
			for _, want := range c.says {
				if !strings.Contains(all, want) {
					t.Errorf("%q is not in\n%s", want, all)
				}
			}
			st, err := a.Store()
			if err != nil {
				t.Fatal(err)
			}
			if left, err := st.List(); len(left) != 0 || err != nil || fake.Count() != 0 {
				t.Errorf("left behind: %v, %v, %d boxes", left, err, fake.Count())
			}
		})
	}
}
