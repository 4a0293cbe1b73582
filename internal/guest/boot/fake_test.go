package boot

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/claim"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/land"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// fake plays every part around boot; a test scripts it by replacing functions.
type fake struct {
	mu    sync.Mutex
	calls []string

	start    func(context.Context) error
	up       func(context.Context) error
	clone    func(context.Context) error
	shell    func(command string) (int, string, error)
	agent    func(context.Context) AgentEnd
	validate func() []workorder.Validation
	plan     func() (text, path string, err error)
	repair   func(round int, checks []workorder.Validation, used workorder.Usage) AgentEnd
	land     func(context.Context) land.Result
	commit   func(context.Context) error
	archive  error
	cloned   *rootgit.CloneResult // nil: of a new task
	lost     chan struct{}
	notes    []string
	recorded *workorder.Attempt // by Land
	released *workorder.Attempt
	told     *workorder.State // by Continue

	policyErr  error
	upErr      error
	surfaceErr error

	evidenceErr error
	result      func(context.Context) error
	tools       func(asked map[string]string) (map[string]string, error)
	env         map[string]string // set by boot
}

func (f *fake) Install(_ context.Context, asked map[string]string) (map[string]string, error) {
	f.did("tools")
	return f.tools(asked)
}

func (f *fake) did(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, what)
}

func (f *fake) called(what string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Contains(f.calls, what)
}

func (f *fake) Listen(context.Context) error { f.did("listen"); return nil }
func (f *fake) Mark(context.Context) error   { return nil }
func (f *fake) Start(ctx context.Context) error {
	f.did("start")
	if f.start != nil {
		return f.start(ctx)
	}
	return nil
}
func (f *fake) StartOnDemand(context.Context) error { return nil }
func (f *fake) Describe(h *workorder.Platform)      { h.StorageDriver = "overlay2" }
func (f *fake) Stop(context.Context)                { f.did("stop") }

func (f *fake) Up(ctx context.Context) (down, err error) {
	f.did("up")
	if f.up != nil {
		down = f.up(ctx)
	}
	return down, f.upErr
}

func (f *fake) Reset(context.Context) error                         { f.did("reset"); return nil }
func (f *fake) Supabase(context.Context) (map[string]string, error) { return nil, nil }
func (f *fake) Ends() []workorder.ServiceEnd                        { return nil }
func (f *fake) Unwatch()                                            { f.did("unwatch") }

type fakeNetwork struct{ f *fake }

func (n fakeNetwork) Up(context.Context) error   { n.f.did("policy"); return n.f.policyErr }
func (n fakeNetwork) Seal(context.Context) error { n.f.did("seal"); return nil }
func (n fakeNetwork) Report(r *workorder.Result) {
	r.Network = &workorder.NetworkReport{Mode: workorder.NetworkFull}
}
func (n fakeNetwork) Close() { n.f.did("close network") }

func (f *fake) Clone(ctx context.Context) (rootgit.CloneResult, error) {
	f.did("clone")
	if f.clone != nil {
		if err := f.clone(ctx); err != nil {
			return rootgit.CloneResult{}, err
		}
	}
	if f.cloned != nil {
		return *f.cloned, nil
	}
	return rootgit.CloneResult{Result: claimed("b0", 1, &workorder.State{})}, nil
}

// claimed is the lease's part of a clone.
func claimed(head string, attempt int, state *workorder.State) claim.Result {
	return claim.Result{Base: "main", BaseSHA: "b0", Head: head, Attempt: attempt, State: state}
}

func (f *fake) Recheckout(context.Context) error         { f.did("again"); return nil }
func (f *fake) Save()                                    { f.did("save") }
func (f *fake) AnnounceStop(time.Duration)               {}
func (f *fake) SaveNow()                                 { f.did("flush") }
func (f *fake) Push(_ context.Context, commitsOnly bool) { f.did(fmt.Sprint("push ", commitsOnly)) }
func (f *fake) StopSaving(context.Context)               { f.did("settle") }
func (f *fake) Lost() <-chan struct{}                    { return f.lost }

func (f *fake) Release(_ context.Context, end workorder.Attempt) error {
	f.did("release")
	f.released = &end
	return nil
}

func (f *fake) Continue(c rootgit.CloneResult) {
	f.did("continue")
	f.told = c.State
}

func (f *fake) Commit(ctx context.Context) error {
	f.did("commit")
	if f.commit != nil {
		return f.commit(ctx)
	}
	return nil
}

func (f *fake) Evidence(_ context.Context, paths []string) (sha string, left []string, err error) {
	f.did(fmt.Sprint("evidence ", paths))
	return "e1", []string{"left"}, f.evidenceErr
}

func (f *fake) Result(ctx context.Context) ([]string, error) {
	f.did("result")
	if f.result != nil {
		return nil, f.result(ctx)
	}
	return nil, nil
}

func (f *fake) Changes(context.Context, string, string) (map[string][]workorder.FileChange, error) {
	return map[string][]workorder.FileChange{"h1": {{Path: "a", Added: 1}}}, nil
}

func (f *fake) RecordSetupFiles(context.Context) ([]string, error) {
	f.did("baseline")
	return nil, nil
}

func (f *fake) Archive(context.Context, bool) (string, error) {
	f.did("archive")
	return "evidence/left.tar.gz", f.archive
}

func (f *fake) Land(ctx context.Context, _ string, end land.RecordAttempt) land.Result {
	f.did("land")
	l := land.Result{Head: "h1", Commits: []workorder.Commit{{SHA: "h1"}}, Pushed: true}
	if f.land != nil {
		l = f.land(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if end != nil {
		a := end(l.Commits, l.Head)
		f.recorded = &a
	}
	return l
}
func (f *fake) Close() { f.did("close") }

func (f *fake) Shell(_ context.Context, name, command string) (int, string, error) {
	f.did(name)
	if f.shell != nil {
		return f.shell(command)
	}
	return 0, "", nil
}

func (f *fake) Note(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notes = append(f.notes, text)
}

func (f *fake) Agent(ctx context.Context) AgentEnd {
	f.did("agent")
	if f.agent != nil {
		return f.agent(ctx)
	}
	return AgentEnd{Status: workorder.StatusSuccess}
}

func (f *fake) Plan() (text, path string, err error) { return f.plan() }

func (f *fake) Repair(_ context.Context, round int, checks []workorder.Validation, used workorder.Usage) AgentEnd {
	f.did(fmt.Sprint("repair ", round))
	return f.repair(round, checks, used)
}

func (f *fake) Validate(context.Context) []workorder.Validation {
	f.did("validate")
	if f.validate != nil {
		return f.validate()
	}
	return nil
}

// Verdict is the runner's affair; here it only has to be asked.
func (f *fake) Verdict(checks []workorder.Validation, commits int, cause error) workorder.Ending {
	switch {
	case cause != nil:
		return because(workorder.StatusInterrupted, workorder.EndedBySignal, workorder.ReasonSignal, "%v", cause)
	case slices.ContainsFunc(checks, func(v workorder.Validation) bool { return !v.Passed }):
		return because(workorder.StatusFailed, workorder.EndedByValidation, workorder.ReasonValidation, "validation")
	case commits == 0:
		return workorder.Ending{Status: workorder.StatusNoChanges, EndedBy: workorder.EndedByAgent}
	}
	return workorder.Succeeded()
}

func (f *fake) Setenv(name, value string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.env == nil {
		f.env = map[string]string{}
	}
	f.env[name] = value
}
