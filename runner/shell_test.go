package runner

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func TestShell(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.Env = append(b.Env, "GREETING=hello")
	r := Shell(t.Context(), b.Config, ShellCommand{Name: "setup", Run: `echo "$GREETING from $PWD"; echo problem >&2; [[ a == a ]]; exit 7`, Log: "logs/setup-1.log"})
	want := "hello from " + b.Workspace + "\nproblem\n"
	if r.ExitCode != 7 || r.Err == nil || r.Tail != want || r.Duration <= 0 {
		t.Errorf("got %+v", r)
	}
	if got := b.read(t, filepath.Join(b.OutDir, "logs/setup-1.log")); got != want {
		t.Errorf("log %q", got)
	}
	if ev := b.of(workorder.EventOutput); len(ev) != 2 || ev[0].Name != "setup" {
		t.Errorf("events %+v", ev)
	}
	if r := Shell(t.Context(), b.Config, ShellCommand{Name: "ok", Run: "true", Log: "logs/ok.log"}); r.ExitCode != 0 || r.Err != nil {
		t.Errorf("got %+v", r)
	}
	b.Env = []string{"PATH=/nonexistent"}
	if r := Shell(t.Context(), b.Config, ShellCommand{Name: "x", Run: "true", Log: "logs/x.log"}); r.ExitCode != exitNotRun || r.Err == nil {
		t.Errorf("got %+v", r)
	}
}

// TestShellLeavesServersAlone: what setup starts in the background with its
// output elsewhere neither holds it up nor dies with it.
func TestShellLeavesServersAlone(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	r := Shell(t.Context(), b.Config, ShellCommand{Name: "setup", Run: `nohup sh -c 'sleep 0.2; touch ../survived' >/dev/null 2>&1 & sleep 600 & echo $!`, Log: "logs/s.log"})
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	waitFor(t, "the server's work", func() bool { return exists(filepath.Join(filepath.Dir(b.Workspace), "survived")) })
	stop := Shell(t.Context(), b.Config, ShellCommand{Name: "stop", Run: "kill " + strings.TrimSpace(r.Tail), Log: "logs/k.log"})
	if stop.Err != nil {
		t.Error(stop.Err)
	}
}

func TestValidateRunsAll(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.Order.Validate = []workorder.Check{
		{Name: "lint", Run: "echo fine"},
		{Name: "test", Run: "echo wrong; exit 3"},
		{Name: "a/b ../c", Run: "kill -KILL $$"},
		{Name: "a b .. c", Run: "echo last"},
	}
	got := Validate(t.Context(), b.Config)
	for i := range got {
		got[i].DurationMS = 0
	}
	want := []workorder.Validation{
		{Name: "lint", Command: "echo fine", Passed: true, Log: "logs/validate-lint.log", Tail: "fine\n"},
		{Name: "test", Command: "echo wrong; exit 3", ExitCode: 3, Log: "logs/validate-test.log", Tail: "wrong\n"},
		{Name: "a/b ../c", Command: "kill -KILL $$", ExitCode: 137, Log: "logs/validate-a_b_.._c.log"},
		{Name: "a b .. c", Command: "echo last", Passed: true, Log: "logs/validate-a_b_.._c-2.log", Tail: "last\n"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for _, v := range want {
		b.read(t, filepath.Join(b.OutDir, v.Log))
	}
	end := b.of(workorder.EventValidateFinished)
	if len(b.of(workorder.EventValidateStarted)) != 4 || len(end) != 4 || end[0].Status != "passed" || end[1].Status != "failed" || *end[1].ExitCode != 3 {
		t.Errorf("events %+v", b.events)
	}
}

func TestValidateCommandThatHangs(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	lim := b.limits()
	lim.commandTimeout = 50 * time.Millisecond
	b.bounds = &lim
	b.Order.Validate = []workorder.Check{{Name: "hangs", Run: "echo before; sleep 600"}, {Name: "next", Run: "true"}}
	got := Validate(t.Context(), b.Config)
	if got[0].Passed || got[0].ExitCode != exitTimeout || !strings.Contains(got[0].Tail, "50ms") {
		t.Errorf("got %+v", got[0])
	}
	if len(got) != 2 || !strings.HasPrefix(got[1].Command, "true") || got[1].ExitCode == exitNotRun {
		t.Errorf("the next did not run: %+v", got)
	}
}

func TestValidateWhenTheRunEnds(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.Order.Validate = []workorder.Check{{Name: "cut", Run: "touch ../up; sleep 600"}, {Name: "never", Run: "touch ../never"}}
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		waitFor(t, "start", func() bool { return exists(filepath.Join(filepath.Dir(b.Workspace), "up")) })
		cancel(ErrInterrupted)
	}()
	got := Validate(ctx, b.Config)
	if len(got) != 2 || got[0].Passed || got[1].Passed || got[1].ExitCode != exitNotRun || exists(filepath.Join(filepath.Dir(b.Workspace), "never")) {
		t.Errorf("got %+v", got)
	}
	end := Verdict(Facts{Agent: AgentOutcome{Ending: workorder.Succeeded()}, Validation: got, HasRepo: true, Commits: 1, Cause: context.Cause(ctx)})
	if end.Status != workorder.StatusInterrupted {
		t.Errorf("verdict %+v", end)
	}
}

func because(codes ...workorder.ReasonCode) []workorder.ReasonCode { return codes }

func codes(reasons workorder.Reasons) (list []workorder.ReasonCode) {
	for _, r := range reasons {
		list = append(list, r.Code)
	}
	return list
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	good := AgentOutcome{Ending: workorder.Succeeded()}
	denied := good
	denied.Denials = 2
	pass, fail := workorder.Validation{Name: "lint", Passed: true}, workorder.Validation{Name: "test", ExitCode: 3}
	for name, c := range map[string]struct {
		facts  Facts
		status workorder.Status
		by     workorder.EndedBy
		reason []workorder.ReasonCode
	}{
		"success":                {Facts{Agent: good, HasRepo: true, Commits: 1, Validation: []workorder.Validation{pass}}, workorder.StatusSuccess, workorder.EndedByAgent, nil},
		"no repository":          {Facts{Agent: good}, workorder.StatusSuccess, workorder.EndedByAgent, nil},
		"no changes":             {Facts{Agent: good, HasRepo: true}, workorder.StatusNoChanges, workorder.EndedByAgent, because(workorder.ReasonUnchanged)},
		"denied, nothing done":   {Facts{Agent: denied, HasRepo: true}, workorder.StatusFailed, workorder.EndedByAgent, because(workorder.ReasonDenied)},
		"denied, something done": {Facts{Agent: denied, HasRepo: true, Commits: 1}, workorder.StatusSuccess, workorder.EndedByAgent, nil},
		"validation":             {Facts{Agent: good, HasRepo: true, Commits: 1, Validation: []workorder.Validation{pass, fail}}, workorder.StatusFailed, workorder.EndedByValidation, because(workorder.ReasonValidation)},
		"validation, lost":       {Facts{Agent: good, HasRepo: true, Commits: 1, Validation: []workorder.Validation{fail}, FailedServices: []string{"service db failed"}}, workorder.StatusFailed, workorder.EndedByValidation, because(workorder.ReasonValidation, workorder.ReasonServiceLost)},
		"success, lost":          {Facts{Agent: good, HasRepo: true, Commits: 1, FailedServices: []string{"service db failed"}}, workorder.StatusSuccess, workorder.EndedByAgent, nil},
		"validation and nothing": {Facts{Agent: good, HasRepo: true, Validation: []workorder.Validation{fail}}, workorder.StatusFailed, workorder.EndedByValidation, because(workorder.ReasonValidation)},
		"timeout in validation":  {Facts{Agent: good, HasRepo: true, Validation: []workorder.Validation{fail}, Cause: ErrTimeout}, workorder.StatusTimeout, workorder.EndedByTimeout, because(workorder.ReasonTimeout)},
		"deadline in validation": {Facts{Agent: good, HasRepo: true, Validation: []workorder.Validation{fail}, Cause: context.DeadlineExceeded}, workorder.StatusTimeout, workorder.EndedByTimeout, because(workorder.ReasonTimeout)},
		"signal in validation":   {Facts{Agent: good, HasRepo: true, Validation: []workorder.Validation{fail}, Cause: errors.New("x")}, workorder.StatusInterrupted, workorder.EndedBySignal, because(workorder.ReasonSignal)},
		"signal after all":       {Facts{Agent: good, HasRepo: true, Commits: 1, Validation: []workorder.Validation{pass}, Cause: ErrInterrupted}, workorder.StatusSuccess, workorder.EndedByAgent, nil},
		"agent first": {
			Facts{Agent: AgentOutcome{Ending: ending(workorder.StatusBudgetExceeded, workorder.EndedByBudget, workorder.ReasonBudget, "spent")}, Validation: []workorder.Validation{fail}},
			workorder.StatusBudgetExceeded, workorder.EndedByBudget, because(workorder.ReasonBudget),
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := Verdict(c.facts)
			if got.Status != c.status || got.EndedBy != c.by || !slices.Equal(codes(got.Reasons), c.reason) {
				t.Errorf("got %+v, want %s by %s %v", got, c.status, c.by, c.reason)
			}
		})
	}
}
