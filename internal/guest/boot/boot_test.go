package boot

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/initd"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/land"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/record"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func order() *workorder.Order {
	return &workorder.Order{
		TaskID: "T-A1B2C3D4", Repo: "https://x/r", CloneURL: "https://x/r", TargetBranch: "agent/T-A1B2C3D4-x", TimeoutMinutes: 1,
		BoxSpec:  workorder.BoxSpec{Services: []workorder.Service{{Name: "redis", Image: "redis"}}, Setup: []string{"one", "two"}},
		Validate: []workorder.Check{{Name: "test", Run: "true"}},
	}
}

type run struct {
	code    int
	result  *workorder.Result
	signals chan os.Signal
	events  string // one JSON document a line
}

func play(t *testing.T, f *fake, o *workorder.Order, signals chan os.Signal) run {
	t.Helper()
	return playWith(t, f, o, signals, func(*Runner) {})
}

func playWith(t *testing.T, f *fake, o *workorder.Order, signals chan os.Signal, change func(*Runner)) run {
	t.Helper()
	out := t.TempDir()
	rec, err := record.New(record.Options{OutDir: out, StateDir: t.TempDir(), Stream: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	if signals == nil {
		signals = make(chan os.Signal, 2)
	}
	b := &Runner{
		Order:    o,
		Rec:      rec,
		Log:      slog.New(slog.DiscardHandler),
		Engine:   f,
		Services: f,
		Network:  fakeNetwork{f},
		Repo:     f,
		Task:     f,
		Tools:    f,
		Signals:  signals,
		Burst:    time.Nanosecond,
		Space:    &rootgit.Workspace{Dir: filepath.Join(t.TempDir(), "ws")},
	}
	change(b)
	r := run{code: b.Run(t.Context()), signals: signals}
	events, err := os.ReadFile(filepath.Join(out, workorder.EventsFile))
	if err != nil {
		t.Fatal(err)
	}
	r.events = string(events)
	raw, err := os.ReadFile(filepath.Join(out, workorder.ResultFile))
	if err != nil {
		t.Fatal(err)
	}
	if r.result, err = workorder.DecodeResult(raw); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r run) steps() map[workorder.StepName]workorder.StepStatus {
	m := map[workorder.StepName]workorder.StepStatus{}
	for _, s := range r.result.Steps {
		m[s.Name] = s.Status
	}
	return m
}

func TestWholeRun(t *testing.T) {
	t.Parallel()
	f := &fake{}
	r := play(t, f, order(), nil)
	if r.code != workorder.ExitOK || r.result.Status != workorder.StatusSuccess || r.result.Branch != "agent/T-A1B2C3D4-x" ||
		r.result.HeadSHA != "h1" {
		t.Errorf("code %d, %+v", r.code, r.result)
	}
	var names []string
	for _, s := range r.result.Steps {
		names = append(names, string(s.Name))
	}
	want := []string{
		"prepare",
		"docker",
		"clone",
		"services",
		"packages",
		"tools",
		"baseline",
		"supabase",
		"env",
		"setup",
		"agent",
		"validate",
		"push",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	tail := f.calls[slices.Index(f.calls, "setup-1"):]
	if diff := cmp.Diff(
		[]string{
			"setup-1",
			"setup-2",
			"baseline",
			"save",
			"agent",
			"settle",
			"commit",
			"push true",
			"validate",
			"settle",
			"land",
			"survey",
			"result",
			"release",
			"unwatch",
			"close",
			"stop",
			"close network",
		},
		tail,
	); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// The policy is in force before anything else happens; without it nothing does.
func TestNetworkPolicyComesFirst(t *testing.T) {
	t.Parallel()
	f := &fake{}
	r := play(t, f, order(), nil)
	if f.calls[0] != "policy" || f.called("seal") || r.result.Network == nil {
		t.Errorf("calls %v, network %v", f.calls, r.result.Network)
	}
	o := order()
	o.Services = nil
	f = &fake{}
	play(t, f, o, nil)
	if diff := cmp.Diff([]string{"seal", "policy", "listen"}, f.calls[:3]); diff != "" {
		t.Errorf("without services nothing has to be fetched (-want +got):\n%s", diff)
	}
	f = &fake{policyErr: errors.New("no nft")}
	r = play(t, f, order(), nil)
	if r.code != workorder.ExitBox || r.result.Reasons.Code() != workorder.ReasonStep || f.called("setup-1") || f.called("agent") ||
		f.called("listen") {
		t.Errorf("code %d, %s, calls %v", r.code, r.result.Reasons, f.calls)
	}
}

// The clone must not wait for the engine, nor the engine for the clone.
func TestCloneAndEngineStartTogether(t *testing.T) {
	t.Parallel()
	cloning, starting := make(chan struct{}), make(chan struct{})
	f := &fake{
		clone: func(ctx context.Context) error {
			close(cloning)
			select {
			case <-starting:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
		start: func(ctx context.Context) error {
			close(starting)
			select {
			case <-cloning:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
	}
	if r := play(t, f, order(), nil); r.code != workorder.ExitOK {
		t.Errorf("code %d: %s", r.code, r.result.Reasons)
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, tc := range map[string]struct {
		fake   *fake
		status workorder.Status
		by     workorder.EndedBy
		code   int
		failed workorder.StepName // step
		agent  bool
	}{
		"engine":   {&fake{start: func(context.Context) error { return boom }}, workorder.StatusError, workorder.EndedByBox, 5, "docker", false},
		"clone":    {&fake{clone: func(context.Context) error { return boom }}, workorder.StatusError, workorder.EndedByGit, 7, "clone", false},
		"services": {&fake{up: func(context.Context) error { return boom }}, workorder.StatusFailed, workorder.EndedByServices, 5, "services", false},
		"setup": {
			&fake{shell: func(string) (int, string, error) { return 7, "no such file", nil }}, workorder.StatusFailed,
			workorder.EndedBySetup, 10, "setup", false,
		},
		"validation": {&fake{validate: func() []workorder.Validation {
			return []workorder.Validation{{Name: "test", ExitCode: 1}}
		}}, workorder.StatusFailed, workorder.EndedByValidation, 10, "validate", true},
		"push": {&fake{land: func(context.Context) land.Result {
			return land.Result{Head: "h1", Commits: []workorder.Commit{{SHA: "h1"}}, Bundle: "/out/work.bundle", Err: boom}
		}}, workorder.StatusError, workorder.EndedByGit, 7, "push", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := play(t, tc.fake, order(), nil)
			if r.code != tc.code || r.result.Status != tc.status || r.result.EndedBy != tc.by {
				t.Errorf("got code %d, %s by %s; want %d, %s by %s", r.code, r.result.Status, r.result.EndedBy, tc.code, tc.status, tc.by)
			}
			if got := r.steps()[tc.failed]; got != workorder.StepFailed {
				t.Errorf("step %s is %s", tc.failed, got)
			}
			if got := tc.fake.called("agent"); got != tc.agent {
				t.Errorf("agent ran: %v, want %v", got, tc.agent)
			}
			if len(r.result.Reasons) == 0 {
				t.Error("no reason")
			}
			if !tc.fake.called("stop") {
				t.Error("the engine was not stopped")
			}
		})
	}
}

func TestSetupReportsTheExitCode(t *testing.T) {
	t.Parallel()
	f := &fake{shell: func(c string) (int, string, error) {
		if c == "one" {
			return 7, "missing tool", nil
		}
		return 0, "", nil
	}}
	r := play(t, f, order(), nil)
	i := slices.IndexFunc(r.result.Steps, func(s workorder.Step) bool { return s.Name == "setup" })
	if s := r.result.Steps[i]; s.ExitCode == nil || *s.ExitCode != 7 || !strings.Contains(s.Error, "missing tool") {
		t.Errorf("setup step %+v", s)
	}
	if f.called("setup-2") {
		t.Error("setup went on after a failure")
	}
}

// TestFoundPartsThatFail plays a run whose services, packages and setup were found and not declared: it goes on without them.
func TestFoundPartsThatFail(t *testing.T) {
	t.Parallel()
	f := &fake{shell: func(c string) (int, string, error) {
		if c == "one" {
			return 7, "missing tool", nil
		}
		return 0, "", nil
	}, up: func(context.Context) error { return errors.New("no image") }}
	o := order()
	o.Found = true
	r := play(t, f, o, nil)
	if r.result.Status != workorder.StatusSuccess || !f.called("setup-2") || !f.called("agent") {
		t.Errorf("status %s, calls %q", r.result.Status, f.calls)
	}
	if len(f.notes) != 2 || len(r.result.Warnings) != 2 {
		t.Errorf("notes %q, warnings %q", f.notes, r.result.Warnings)
	}
}

// TestSetupThatWasAskedFor plays a run whose parts were found, but for the setup commands: one that fails ends it.
func TestSetupThatWasAskedFor(t *testing.T) {
	t.Parallel()
	f := &fake{shell: func(string) (int, string, error) { return 7, "missing tool", nil }}
	o := order()
	o.Found, o.SetupAsked = true, true
	if r := play(t, f, o, nil); r.result.EndedBy != workorder.EndedBySetup || f.called("agent") {
		t.Errorf("ended by %s, calls %q", r.result.EndedBy, f.calls)
	}
}

// TestFoundServicesUnsealed plays a run whose found services are there, but for what else comes with them: that is never forgiven.
func TestFoundServicesUnsealed(t *testing.T) {
	t.Parallel()
	f := &fake{upErr: errors.New("the network's rules are not in force"), up: func(context.Context) error { return errors.New("no image") }}
	o := order()
	o.Found = true
	if r := play(t, f, o, nil); r.result.EndedBy != workorder.EndedByServices || f.called("agent") {
		t.Errorf("ended by %s, calls %q", r.result.EndedBy, f.calls)
	}
}

// TestTools plays runs that require tools. An unavailable tool ends a run that declared it; a detected one is
// a warning, and the others are used.
func TestTools(t *testing.T) {
	t.Parallel()
	for _, found := range []bool{false, true} {
		f := &fake{tools: func(asked map[string]string) (map[string]string, error) {
			if asked["go"] != "1.26" {
				t.Errorf("asked for %v", asked)
			}
			return map[string]string{"PATH": "/opt/tools/bin:/bin", "GOTOOLCHAIN": "local"}, errors.New("no ruby")
		}}
		o := order()
		o.Found, o.Tools = found, map[string]string{"go": "1.26", "ruby": "3"}
		o.Env = map[string]string{"GOTOOLCHAIN": "auto"}
		r := play(t, f, o, nil)
		want := run{code: workorder.ExitTaskFailed}
		if found {
			want.code = workorder.ExitOK
		}
		if r.code != want.code || f.called("agent") != found || (len(f.notes) == 1 && len(r.result.Warnings) == 1) != found {
			t.Errorf("found %v: code %d, calls %q, notes %q, warnings %q", found, r.code, f.calls, f.notes, r.result.Warnings)
		}
		if !found && (r.result.EndedBy != workorder.EndedBySetup || r.steps()[workorder.StepTools] != workorder.StepFailed) {
			t.Errorf("ended by %s, steps %v", r.result.EndedBy, r.steps())
		}
		if diff := cmp.Diff(map[string]string{"PATH": "/opt/tools/bin:/bin"}, f.env); diff != "" {
			t.Error(diff)
		}
	}
}

func TestSignalLandsTheWork(t *testing.T) {
	t.Parallel()
	signals := make(chan os.Signal, 2)
	f := &fake{}
	f.agent = func(ctx context.Context) AgentEnd {
		signals <- syscall.SIGTERM
		<-ctx.Done()
		return AgentEnd{Status: workorder.StatusInterrupted, Reasons: workorder.Because(workorder.ReasonSignal, "stopped")}
	}
	r := play(t, f, order(), signals)
	if r.code != workorder.ExitInterrupted || r.result.Status != workorder.StatusInterrupted || !r.result.Pushed || !r.result.Resumable {
		t.Errorf("code %d, %+v", r.code, r.result)
	}
	if !f.called("commit") || !f.called("flush") || f.called("validate") {
		t.Errorf("calls %q", f.calls)
	}
}

// Who interrupts a second time does not want to wait; a second SIGTERM is the same wish, sent to a process and its group.
func TestSecondInterruptSkipsToTheResult(t *testing.T) {
	t.Parallel()
	signals := make(chan os.Signal, 2)
	f := &fake{}
	f.agent = func(ctx context.Context) AgentEnd {
		signals <- syscall.SIGTERM
		<-ctx.Done()
		return AgentEnd{Status: workorder.StatusInterrupted, Reasons: workorder.Because(workorder.ReasonSignal, "stopped")}
	}
	f.land = func(ctx context.Context) land.Result {
		signals <- syscall.SIGINT
		<-ctx.Done()
		return land.Result{Head: "h1", Err: context.Cause(ctx)}
	}
	r := play(t, f, order(), signals)
	if r.code != workorder.ExitInterrupted || !r.result.Reasons.Has(workorder.ReasonLanding) {
		t.Errorf("code %d, reason %q", r.code, r.result.Reasons)
	}
}

// A second signal that comes before the landing begins leaves no time for the remote, and the work is kept all the same.
func TestSecondInterruptBeforeTheLanding(t *testing.T) {
	t.Parallel()
	signals := make(chan os.Signal)
	f := &fake{}
	var box *Runner
	f.agent = func(ctx context.Context) AgentEnd {
		signals <- syscall.SIGTERM
		<-ctx.Done()
		signals <- syscall.SIGINT
		<-box.contexts.land.Done()
		return AgentEnd{Status: workorder.StatusInterrupted, Reasons: workorder.Because(workorder.ReasonSignal, "stopped")}
	}
	f.land = func(ctx context.Context) land.Result {
		return land.Result{Head: "h1", Commits: []workorder.Commit{{SHA: "h1"}}, Bundle: "/out/work.bundle", Err: context.Cause(ctx)}
	}
	r := playWith(t, f, order(), signals, func(b *Runner) { box = b })
	if r.code != workorder.ExitInterrupted || !r.result.Reasons.Has(workorder.ReasonPush) ||
		r.steps()[workorder.StepPush] != workorder.StepFailed {
		t.Errorf("code %d, %s, steps %v", r.code, r.result.Reasons, r.steps())
	}
}

func TestSecondSIGTERMIsNoHurry(t *testing.T) {
	t.Parallel()
	signals := make(chan os.Signal, 4)
	f := &fake{}
	f.agent = func(ctx context.Context) AgentEnd {
		signals <- initd.LongStop
		signals <- initd.LongStop
		signals <- syscall.SIGTERM
		<-ctx.Done()
		return AgentEnd{Status: workorder.StatusInterrupted, Reasons: workorder.Because(workorder.ReasonSignal, "stopped")}
	}
	var left time.Duration
	f.land = func(ctx context.Context) land.Result {
		signals <- syscall.SIGTERM
		signals <- syscall.SIGTERM
		for len(signals) > 0 { // until both are heard
			time.Sleep(time.Millisecond)
		}
		d, _ := ctx.Deadline()
		left = time.Until(d)
		return land.Result{Head: "h1", Commits: []workorder.Commit{{SHA: "h1"}}, Pushed: ctx.Err() == nil}
	}
	if r := play(t, f, order(), signals); !r.result.Pushed || r.result.Reasons.Code() != workorder.ReasonSignal {
		t.Errorf("%+v", r.result)
	}
	if left < workorder.ShutdownIn(workorder.LongStop).Land/2 { // more than the least stop leaves
		t.Errorf("a stop that was announced with %s leaves a landing %s", workorder.LongStop, left)
	}
}

// Changes that cannot be committed are kept as files, and the commits land.
func TestCommitThatFails(t *testing.T) {
	t.Parallel()
	f := &fake{commit: func(context.Context) error { return errors.New("could not commit sub/") }}
	r := play(t, f, order(), nil)
	if !f.called("land") || !f.called("archive") || r.result.Status != workorder.StatusError || r.result.EndedBy != workorder.EndedByGit ||
		len(r.result.Evidence) != 1 {
		t.Errorf("calls %q, %+v", f.calls, r.result)
	}
	f = &fake{commit: f.commit, land: func(context.Context) land.Result { return land.Result{Head: "b0"} }}
	if r := play(t, f, order(), nil); r.result.Status != workorder.StatusError || r.code != workorder.ExitGit {
		t.Errorf("nothing but uncommittable work: %s, exit code %d", r.result.Status, r.code)
	}
	f = &fake{commit: f.commit, archive: errors.New("tar was killed")}
	if r := play(t, f, order(), nil); r.result.Status != workorder.StatusError || !r.result.Uncommitted {
		t.Errorf("work that is nowhere: %s: %s", r.result.Status, r.result.Reasons)
	}
}

// Unreadable commits are kept with the whole work tree.
func TestUnreadableRepositoryIsArchived(t *testing.T) {
	t.Parallel()
	f := &fake{land: func(context.Context) land.Result { return land.Result{Head: "b0", Err: errors.New("bad object")} }}
	r := play(t, f, order(), nil)
	if !f.called("archive") || len(r.result.Evidence) != 1 || r.code != workorder.ExitGit {
		t.Errorf("calls %q, %+v", f.calls, r.result)
	}
}

// A commit that eats its time leaves some for the commits that exist.
func TestSlowCommitLeavesTimeToLand(t *testing.T) {
	t.Parallel()
	signals := make(chan os.Signal, 2)
	f := &fake{commit: func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }}
	f.agent = func(ctx context.Context) AgentEnd {
		signals <- syscall.SIGTERM
		<-ctx.Done()
		return AgentEnd{Status: workorder.StatusInterrupted, Reasons: workorder.Because(workorder.ReasonSignal, "stopped")}
	}
	f.land = func(ctx context.Context) land.Result {
		if ctx.Err() != nil {
			return land.Result{Err: ctx.Err()}
		}
		return land.Result{Head: "h1", Commits: []workorder.Commit{{SHA: "h1"}}, Pushed: true}
	}
	if r := play(t, f, order(), signals); !r.result.Pushed {
		t.Errorf("%+v", r.result)
	}
}

func TestTimeoutInSetup(t *testing.T) {
	t.Parallel()
	o := order()
	o.TimeoutMinutes = 0.001
	f := &fake{}
	f.up = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	r := play(t, f, o, nil)
	if r.code != workorder.ExitTimeout || r.result.Status != workorder.StatusTimeout || r.result.Reasons.Code() != workorder.ReasonTimeout {
		t.Errorf("code %d, %s: %q", r.code, r.result.Status, r.result.Reasons)
	}
}

func TestTaskWithoutRepository(t *testing.T) {
	t.Parallel()
	f := &fake{land: func(context.Context) land.Result { t.Error("landed"); return land.Result{} }}
	r := play(t, f, &workorder.Order{TaskID: "T-A1B2C3D4", TimeoutMinutes: 1}, nil)
	if f.called("clone") || f.called("start") || r.steps()["push"] != workorder.StepSkipped {
		t.Errorf("calls %q, steps %v", f.calls, r.steps())
	}
}

// The plan is what runs: the steps of a result are those of the plan, in its order, and a step that the order skips is skipped in both.
func TestPlan(t *testing.T) {
	t.Parallel()
	rebase := rebaseOrder()
	repair := order()
	repair.Repair.MaxAttempts, repair.Services = 1, nil
	plan := order()
	plan.Mode = workorder.ModePlan
	for name, o := range map[string]*workorder.Order{
		"a task": order(), "repair": repair, "a plan": plan, "a rebase": rebase,
		"no repository": {TaskID: "T-A1B2C3D4", TimeoutMinutes: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fake{plan: func() (string, string, error) { return "p", "plan.md", nil }}
			if o.Mode == workorder.ModeRebase {
				f.cloned = rebasedTask()
			}
			var text string // before anything runs, as `entrypoint boot --plan` prints it
			r := playBox(t, f, o, func(b *Runner) {
				if o.Mode == workorder.ModeRebase {
					b.Rebaser = &fakeRebaser{f: f, head: "n1"}
				}
				text = b.Plan()
			})
			printed, skipped := map[string]string{}, map[string]bool{}
			var names []string
			for line := range strings.Lines(text) {
				if !strings.HasPrefix(line, " ") {
					name, title, _ := strings.Cut(strings.TrimSpace(line), " ")
					names, printed[name] = append(names, name), strings.TrimSpace(title)
				} else if strings.HasPrefix(strings.TrimSpace(line), "skipped: ") {
					skipped[names[len(names)-1]] = true
				}
			}
			// Skipped by what the steps before found out; all else that is skipped is so by the order.
			late := map[workorder.StepName]bool{workorder.StepAgent: o.Mode == workorder.ModeRebase, workorder.StepRepair: true}
			for _, s := range r.result.Steps {
				if s.Status == workorder.StepSkipped && !skipped[string(s.Name)] && !late[s.Name] {
					t.Errorf("step %s was skipped, and the plan does not say so:\n%s", s.Name, text)
				}
			}
			at := 0
			for _, s := range r.result.Steps {
				i := slices.Index(names, string(s.Name))
				if i < at || printed[string(s.Name)] == "" || skipped[string(s.Name)] && s.Status != workorder.StepSkipped {
					t.Errorf("step %s (%s) is the %dth of the plan:\n%s", s.Name, s.Status, i, text)
				}
				at = i
			}
			if len(r.result.Steps) < 10 || len(names) < len(r.result.Steps) {
				t.Errorf("%d steps ran, the plan has %v", len(r.result.Steps), names)
			}
		})
	}
}
