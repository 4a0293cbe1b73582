package boot

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/land"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// fakeRebaser scripts what comes of a rebase.
type fakeRebaser struct {
	f          *fake
	begun      Rebasing
	err        error
	unfinished string
	problems   []string
	head       string // "": n1
	gone       bool   // the new head is unknown
	cmpErr     error
	kept       string
	posted     *workorder.Rebased
}

func (r *fakeRebaser) Begin(context.Context) (Rebasing, error) {
	r.f.did("rebase")
	r.begun.Rebased.Onto, r.begun.Rebased.OldBase, r.begun.Rebased.NewBase, r.begun.Rebased.OldHead = "next", "b0", "b1", "h0"
	r.begun.Rebased.Backup, r.begun.SideRef = "refs/backup", "refs/beside"
	return r.begun, r.err
}
func (r *fakeRebaser) PromptConflicts() { r.f.did("ask") }
func (r *fakeRebaser) Unfinished(context.Context) (string, error) {
	r.f.did("unfinished")
	return r.unfinished, nil
}

func (r *fakeRebaser) Compare(_ context.Context, out *workorder.Rebased) ([]string, error) {
	r.f.did("compare")
	if out.NewHead = r.head; r.head == "" {
		out.NewHead = "n1"
	}
	if r.gone {
		out.NewHead = ""
	}
	return r.problems, r.cmpErr
}

func (r *fakeRebaser) Move(context.Context, *workorder.Rebased) error { r.f.did("move"); return nil }
func (r *fakeRebaser) SideRef() string                                { return r.kept }
func (r *fakeRebaser) Comment(_ context.Context, res *workorder.Result) (string, error) {
	r.posted = res.Rebased
	return "", nil
}

// twoSides proves as its lists say: the transition of the one check, by the first commit.
type twoSides struct {
	f     *fake
	sides map[string]workorder.Transition
}

func (twoSides) Endless(string) []workorder.LeftOut { return nil }

func (twoSides) RecordBaseline(context.Context) error { return nil }
func (waiting) RecordBaseline(context.Context) error  { return nil }

func (p twoSides) Prove(_ context.Context, base, head string) (*workorder.Proof, []workorder.Evidence, error) {
	p.f.did("prove " + base + " " + head)
	c := workorder.CheckProof{Name: "test", Transition: p.sides[base]}
	passed := c.Transition == workorder.TransitionStillPasses || c.Transition == workorder.TransitionBroken
	c.Base = &workorder.CheckRun{Passed: passed}
	switch c.Transition {
	case workorder.TransitionNotCompared:
		return &workorder.Proof{
			Base:    base,
			Head:    head,
			Checks:  []workorder.CheckProof{c},
			Reasons: workorder.Because(workorder.ReasonSetup, "head was not run: setup failed"),
		}, nil, nil
	case workorder.TransitionNewFails: // base was not run
		c.Base = nil
		c.Head = &workorder.CheckRun{}
	default:
		c.Head = &workorder.CheckRun{Passed: c.Transition == workorder.TransitionStillPasses || c.Transition == workorder.TransitionFixed}
	}
	return &workorder.Proof{Base: base, Head: head, Checks: []workorder.CheckProof{c}}, nil, nil
}

func (p twoSides) Checks(ctx context.Context, base, head string) (*workorder.Proof, error) {
	proof, _, err := p.Prove(ctx, base, head)
	p.f.did("only checks " + base)
	return proof, err
}

func rebaseOrder() *workorder.Order {
	o := order()
	o.Mode, o.Rebase = workorder.ModeRebase, &workorder.Rebase{}
	return o
}

func rebasedTask() *rootgit.CloneResult {
	return &rootgit.CloneResult{
		Result: claimed("h0", 2, &workorder.State{Task: "do it"}), Pushed: true,
		Restored: &workorder.Restored{Head: "h0", Verified: true}, Commits: []workorder.Commit{{SHA: "h0"}},
	}
}

func TestRebase(t *testing.T) {
	t.Parallel()
	failing := func() []workorder.Validation { return []workorder.Validation{{Name: "test", ExitCode: 1}} }
	passing := func() []workorder.Validation { return []workorder.Validation{{Name: "test", Passed: true}} }
	for name, tc := range map[string]struct {
		rebaser  fakeRebaser
		validate func() []workorder.Validation
		agent    AgentEnd
		sides    map[string]workorder.Transition // nil: no prover
		spent    bool
		refuse   bool // the push

		status workorder.Status
		code   int
		reason workorder.ReasonCode
		names  string // in the reason
		pushed bool
		did    []string
		not    []string
	}{
		"clean": {
			validate: passing, sides: map[string]workorder.Transition{"b1": workorder.TransitionStillPasses},
			status: workorder.StatusSuccess, pushed: true, did: []string{"rebase", "setup-1", "validate", "prove b1 n1", "move", "land"},
			not: []string{"agent", "ask", "commit", "save"},
		},
		"clean, without clean checkouts": {validate: passing, status: workorder.StatusSuccess, pushed: true, did: []string{"move"}},
		// No agent, so that what was spent does not matter.
		"clean, nothing left to spend": {validate: passing, spent: true, status: workorder.StatusSuccess, pushed: true},
		"clean, what git made is odd": {
			rebaser: fakeRebaser{problems: []string{"odd"}}, validate: passing, status: workorder.StatusSuccess,
			pushed: true,
		},
		"breaks a check": {
			validate: failing, sides: map[string]workorder.Transition{"b1": workorder.TransitionBroken, "h0": workorder.TransitionBroken},
			rebaser: fakeRebaser{kept: "refs/beside"},
			status:  workorder.StatusFailed, code: workorder.ExitTaskFailed, reason: workorder.ReasonWorse, names: "test ",
			did: []string{"only checks h0", "land"}, not: []string{"move"},
		},
		"breaks a check that fails on the old head": {
			validate: failing, sides: map[string]workorder.Transition{"b1": workorder.TransitionBroken, "h0": workorder.TransitionStillFails},
			status: workorder.StatusFailed, code: workorder.ExitTaskFailed, reason: workorder.ReasonWorse, names: "test ",
			did: []string{"only checks h0"}, not: []string{"move"},
		},
		"breaks a check only in a clean checkout": {
			validate: passing, sides: map[string]workorder.Transition{"b1": workorder.TransitionBroken},
			status: workorder.StatusFailed, code: workorder.ExitTaskFailed, reason: workorder.ReasonWorse, names: "test ",
			did: []string{"prove b1 n1"}, not: []string{"move", "only checks h0"},
		},
		"passes in the work tree, and cannot be run in a clean checkout": {
			validate: passing, sides: map[string]workorder.Transition{"b1": workorder.TransitionNotCompared},
			status: workorder.StatusFailed, code: workorder.ExitTaskFailed, reason: workorder.ReasonWorse, names: "head was not run: setup failed",
			not: []string{"move"},
		},
		"passes in the work tree only": {
			validate: passing, sides: map[string]workorder.Transition{"b1": workorder.TransitionNewFails},
			status: workorder.StatusFailed, code: workorder.ExitTaskFailed, reason: workorder.ReasonWorse, names: "test ",
			did: []string{"prove b1 n1"}, not: []string{"move", "only checks h0"},
		},
		"passes in the work tree, fails in both clean checkouts": {
			validate: passing, sides: map[string]workorder.Transition{"b1": workorder.TransitionStillFails},
			status: workorder.StatusUnproven, code: workorder.ExitUnproven, reason: workorder.ReasonAsBefore, pushed: true, did: []string{"move"},
		},
		"not worse": {
			validate: failing, sides: map[string]workorder.Transition{"b1": workorder.TransitionStillFails, "h0": workorder.TransitionStillFails},
			status: workorder.StatusUnproven, code: workorder.ExitUnproven, pushed: true, reason: workorder.ReasonAsBefore, names: "test",
			did: []string{"move", "only checks h0"}, not: []string{"only checks b1"}, // pages are looked at once
		},
		"fails, and earlier results are unknown": {
			validate: failing, status: workorder.StatusFailed, code: workorder.ExitTaskFailed, reason: workorder.ReasonWorse, names: "1",
			not: []string{"move"},
		},
		"clean, setup put it back": {
			rebaser: fakeRebaser{gone: true, problems: []string{"put back"}},
			status:  workorder.StatusFailed, code: workorder.ExitTaskFailed, reason: workorder.ReasonRebase, names: "put back",
			did: []string{"land"}, not: []string{"validate", "move"},
		},
		"clean, unreadable": {
			rebaser: fakeRebaser{gone: true, cmpErr: errors.New("git is gone")},
			status:  workorder.StatusError, code: workorder.ExitGit, reason: workorder.ReasonRebase, names: "git is gone", did: []string{"land"},
			not: []string{"validate", "move"},
		},
		"clean, not compared": {
			rebaser: fakeRebaser{cmpErr: errors.New("slow")}, validate: passing, status: workorder.StatusSuccess,
			pushed: true, did: []string{"move"},
		},
		"conflicts, resolved": {
			rebaser: fakeRebaser{begun: Rebasing{Conflict: true}}, agent: AgentEnd{Status: workorder.StatusSuccess}, validate: passing,
			sides: map[string]workorder.Transition{"b1": workorder.TransitionStillPasses}, status: workorder.StatusSuccess, pushed: true,
			did: []string{"continue", "ask", "save", "agent", "unfinished", "commit", "setup-1", "validate", "move"},
		},
		"conflicts, unresolved": {
			rebaser: fakeRebaser{begun: Rebasing{Conflict: true}, unfinished: "the rebase is still in progress", kept: "refs/beside"},
			agent:   AgentEnd{Status: workorder.StatusSuccess},
			status:  workorder.StatusFailed, code: workorder.ExitTaskFailed, reason: workorder.ReasonUnresolved, names: "still in progress",
			did: []string{"land"}, not: []string{"commit", "setup-1", "validate", "move"},
		},
		"conflicts, a commit is gone": {
			rebaser: fakeRebaser{begun: Rebasing{Conflict: true}, problems: []string{"a commit is gone"}},
			agent:   AgentEnd{Status: workorder.StatusSuccess},
			status:  workorder.StatusFailed, code: workorder.ExitTaskFailed, reason: workorder.ReasonUnresolved, names: "a commit is gone",
			not: []string{"validate", "move"},
		},
		"conflicts, no agent may run": {
			rebaser: fakeRebaser{begun: Rebasing{Conflict: true, AgentBlocked: "hooks"}},
			status:  workorder.StatusFailed, code: workorder.ExitTaskFailed, reason: workorder.ReasonConflicts, names: "hooks",
			not: []string{"agent", "validate", "move", "land"},
		},
		"conflicts, nothing left to spend": {
			rebaser: fakeRebaser{begun: Rebasing{Conflict: true}}, spent: true,
			status: workorder.StatusBudgetExceeded, code: workorder.ExitBudget, reason: workorder.ReasonBudget, names: "max_budget_usd",
			not: []string{"agent", "move", "land"},
		},
		"up to date": {
			rebaser: fakeRebaser{begun: Rebasing{SkipReason: "it is on main already"}},
			status:  workorder.StatusNoChanges, reason: workorder.ReasonUnchanged, names: "it is on main already", not: []string{
				"setup-1",
				"agent", "validate", "move", "land",
			},
		},
		"all of it is in the base": {
			rebaser: fakeRebaser{head: "b1"}, status: workorder.StatusNoChanges, reason: workorder.ReasonUnchanged, names: "next",
			did: []string{"settle"}, not: []string{"validate", "move", "land"},
		},
		"refused": {
			rebaser: fakeRebaser{err: errors.New("somebody else pushed")},
			status:  workorder.StatusError, code: workorder.ExitGit, reason: workorder.ReasonRebase, names: "somebody else pushed",
			not: []string{"setup-1", "agent", "move", "land"},
		},
		"pushed by somebody else meanwhile": {
			validate: passing, refuse: true, rebaser: fakeRebaser{kept: "refs/x"},
			status: workorder.StatusError, code: workorder.ExitGit, reason: workorder.ReasonLeft, names: "rejected", did: []string{"move", "land"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fake{validate: tc.validate, cloned: rebasedTask(), agent: func(context.Context) AgentEnd { return tc.agent }}
			f.land = func(context.Context) land.Result {
				switch {
				case tc.refuse:
					return land.Result{Head: "n1", Commits: []workorder.Commit{{SHA: "n1"}}, Err: errors.New("rejected")}
				case f.called("move"):
					return land.Result{Head: "n1", Commits: []workorder.Commit{{SHA: "n1"}}, Pushed: true}
				}
				return land.Result{Head: "h0", Commits: []workorder.Commit{{SHA: "h0"}}, Pushed: true}
			}
			var p Prover
			if tc.sides != nil {
				p = twoSides{f, tc.sides}
			}
			r := &tc.rebaser
			r.f = f
			o := rebaseOrder()
			if tc.spent {
				cost, limit := 2.0, 1.0
				f.cloned.State.Attempts, o.MaxBudgetUSD = []workorder.Attempt{{Usage: workorder.Usage{CostUSD: &cost}}}, &limit
			}
			got := playWith(t, f, o, nil, func(b *Runner) { b.Rebaser, b.Prover = r, p })
			res := got.result
			if res.Status != tc.status || got.code != tc.code || (tc.reason != "") != res.Reasons.Has(tc.reason) ||
				!strings.Contains(res.Reasons.String(), tc.names) {
				t.Errorf("code %d, %s: %s", got.code, res.Status, res.Reasons)
			}
			for _, what := range tc.did {
				if !f.called(what) {
					t.Errorf("no %s in %v", what, f.calls)
				}
			}
			for _, what := range tc.not {
				if f.called(what) {
					t.Errorf("%s in %v", what, f.calls)
				}
			}
			wantHead, wantBase, wantBranch := "h0", "b0", "main"
			if tc.pushed {
				wantHead, wantBase, wantBranch = "n1", "b1", r.begun.Rebased.Onto
			}
			if res.BaseBranch != wantBranch && tc.rebaser.err == nil {
				t.Errorf("base branch %s", res.BaseBranch)
			}
			if tc.rebaser.err == nil && (res.HeadSHA != wantHead || res.BaseSHA != wantBase) {
				t.Errorf("head %s, base %s", res.HeadSHA, res.BaseSHA)
			}
			if x := res.Rebased; (x != nil && x.Pushed) != tc.pushed || (r.posted != nil) != tc.pushed ||
				x != nil && !x.Pushed && x.Kept != r.kept {
				t.Errorf("%+v, posted %+v", x, r.posted)
			}
			vouched := ""
			if tc.pushed {
				vouched = "n1"
			}
			if f.released == nil || f.released.HeadSHA != vouched || f.recorded != nil && !tc.refuse && f.recorded.HeadSHA != vouched {
				t.Errorf("released %+v", f.released)
			}
			if x := slices.Index(f.calls, "move"); x >= 0 && (slices.Index(f.calls, "validate") > x || slices.Index(f.calls, "land") < x) {
				t.Errorf("the order of things: %v", f.calls)
			}
		})
	}
}

// A signal, whenever it comes, moves nothing that was not checked.
func TestRebaseIsStopped(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"setup", "agent", "validate"} {
		signals := make(chan os.Signal) // who sends goes on when it was taken
		f := &fake{}
		stop := func(at string) {
			if at == when {
				signals <- syscall.SIGTERM
			}
		}
		f.shell = func(string) (int, string, error) { stop("setup"); return 0, "", nil }
		f.agent = func(ctx context.Context) AgentEnd {
			if stop("agent"); when == "agent" {
				<-ctx.Done()
			}
			return AgentEnd{Status: workorder.StatusSuccess}
		}
		var b *Runner
		f.validate = func() []workorder.Validation {
			stop("validate")
			return []workorder.Validation{{Name: "test", Passed: true}}
		}
		r := &fakeRebaser{f: f, begun: Rebasing{Conflict: when == "agent"}}
		f.cloned = rebasedTask()
		slow := waiting{f}
		got := playWith(t, f, rebaseOrder(), signals, func(box *Runner) { b = box; box.Rebaser, box.Prover = r, slow })
		if got.code != workorder.ExitInterrupted || f.called("move") || b.move.moved {
			t.Errorf("%s: code %d, %s: %s, %v", when, got.code, got.result.Status, got.result.Reasons, f.calls)
		}
	}
}

// waiting is a proof that ends with the run.
type waiting struct{ f *fake }

func (waiting) Endless(string) []workorder.LeftOut { return nil }

func (w waiting) Prove(ctx context.Context, base, head string) (*workorder.Proof, []workorder.Evidence, error) {
	w.f.did("prove")
	<-ctx.Done()
	return &workorder.Proof{Base: base, Head: head}, nil, nil
}

func (w waiting) Checks(ctx context.Context, base, head string) (*workorder.Proof, error) {
	p, _, err := w.Prove(ctx, base, head)
	return p, err
}
