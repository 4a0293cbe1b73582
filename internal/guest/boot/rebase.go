package boot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/record"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// rebaseBudget bounds moving the commits, which takes git seconds for hundreds.
	rebaseBudget = 10 * time.Minute
	// compareTime bounds comparing the commits before and after.
	compareTime = 2 * time.Minute
)

// Rebaser puts the task's commits on a new base. From Begin to Move the branch on the remote stays where it is, however the run ends:
// what is saved or landed meanwhile goes beside it.
type Rebaser interface {
	// Begin moves the commits in the work tree, as far as git can by itself. An error may tell by EndedByer what it means.
	Begin(ctx context.Context) (Rebasing, error)
	// Ask makes the conflict what the agent is asked about.
	Ask()
	// Unfinished says why the conflicts do not count as resolved; empty: they do.
	Unfinished(ctx context.Context) (why string, err error)
	// Compare compares the commits before and after, and fills r. problems say what must not be.
	Compare(ctx context.Context, r *workorder.Rebased) (problems []string, err error)
	// Move makes the new head what the next push brings to the branch.
	Move(ctx context.Context, r *workorder.Rebased) error
	// Kept is the ref that keeps the new commits where the branch did not take them; empty: there is none.
	Kept() string
	// Comment says on the pull request what moved. why is not empty when it did not try.
	Comment(ctx context.Context, r *workorder.Result) (why string, err error)
}

// Rebasing is what Begin did.
type Rebasing struct {
	Rebased workorder.Rebased
	Nothing string // why there is nothing to move
	// Conflict tells that the agent is needed; NoAgent why it must not be asked.
	Conflict bool
	NoAgent  string
	Beside   string // the ref for what does not become the branch's
}

// rebaseSteps puts the step after the clone: whatever works on the tree comes after it.
func (b *Box) rebaseSteps(steps []step) []step {
	if b.Rebaser == nil {
		return steps
	}
	for i := range steps {
		s := &steps[i]
		s.after = slices.Clone(s.after)
		for k := range s.after {
			if s.after[k] == workorder.StepClone {
				s.after[k] = workorder.StepRebase
			}
		}
		if s.name == workorder.StepSetup {
			skip := s.skip
			s.skip = func() string {
				switch x := b.rebasing; {
				case x != nil && x.Nothing != "":
					return "there is nothing to rebase"
				case x != nil && x.Conflict:
					return "it runs when the conflicts are resolved"
				}
				return skip()
			}
		}
	}
	at := slices.IndexFunc(steps, func(s step) bool { return s.name == workorder.StepClone }) + 1
	return slices.Insert(steps, at, step{
		name: workorder.StepRebase, does: "put the task's commits on the new base", after: []workorder.StepName{workorder.StepClone}, budget: rebaseBudget,
		run: func(ctx context.Context) error {
			x, err := b.Rebaser.Begin(ctx)
			if err != nil {
				return err
			}
			b.rebasing = &x
			if x.Nothing == "" {
				b.showRebased()
			}
			return nil
		},
	})
}

// showRebased makes what is known of the rebase the result's.
func (b *Box) showRebased() {
	r := b.rebasing.Rebased
	b.Rec.Update(func(res *workorder.Result) { res.Rebased = &r })
}

// workRebase is work for a rebase: an agent only where commits conflict, and no push before the checks have said
// that the new head is not worse than what it comes from.
func (b *Box) workRebase(ctx context.Context, interrupt context.CancelCauseFunc) ending {
	x := b.rebasing
	if x.Nothing != "" {
		return b.nothingMoved(x.Nothing)
	}
	stop := b.watchLease(interrupt)
	defer stop()
	var over *ending
	if x.Conflict {
		over = b.resolve(ctx)
	} else {
		if s := b.cloned.State; s != nil && s.Task != "" {
			b.Order.Task = s.Task
		}
		b.committed = true // what setup left is nobody's work
		b.Rec.StepFinished(workorder.StepAgent, &record.Skip{Reason: "the rebase has no conflicts"}, nil)
	}
	if over == nil {
		over = b.compareMoved(ctx)
	}
	e := ending{ran: true}
	if over != nil {
		e = *over
		b.skipChecks("the rebase is not complete")
	} else {
		b.checkMoved(ctx, &e)
	}
	e.cause = context.Cause(ctx)
	if e.Status == "" && !b.moved && ctx.Err() != nil || errors.Is(e.cause, ErrLease) {
		e.Ending = cutShort(ctx).Ending
	}
	return e
}

// nothingMoved ends a run whose branch is as it should be.
func (b *Box) nothingMoved(why string) ending {
	b.Rec.StepFinished(workorder.StepAgent, &record.Skip{Reason: "there is nothing to rebase"}, nil)
	b.skipChecks("there is nothing to rebase")
	return ending{Ending: because(workorder.StatusNoChanges, workorder.ByGit, workorder.ReasonUnchanged, "%s", why)}
}

func (b *Box) skipChecks(why string) {
	b.Rec.StepFinished(workorder.StepValidate, &record.Skip{Reason: why}, nil)
	if b.Prover != nil {
		b.Rec.StepFinished(workorder.StepProof, &record.Skip{Reason: why}, nil)
	}
}

// resolve has the agent resolve the conflicts. The ending says why that did not work; nil: it did.
func (b *Box) resolve(ctx context.Context) *ending {
	x := b.rebasing
	if x.NoAgent != "" {
		b.Rec.StepFinished(workorder.StepAgent, &record.Skip{Reason: x.NoAgent}, nil)
		return &ending{Ending: because(workorder.StatusFailed, workorder.ByOrder, workorder.ReasonConflicts, "the rebase conflicts in %s, and %s; the branch is as it was", strings.Join(x.Rebased.Conflicts, ", "), x.NoAgent)}
	}
	if over := b.prepare(); over != nil {
		return over
	}
	b.Rebaser.Ask()
	b.Repo.Save()
	agent := b.agent(ctx)
	b.unreserve()
	if ctx.Err() != nil || agent.Status != workorder.StatusSuccess {
		return &ending{ran: true}
	}
	settle, settled := context.WithTimeout(ctx, commitTime/2)
	b.Repo.Settle(settle)
	settled()
	why, err := b.Rebaser.Unfinished(ctx)
	if err == nil && why == "" {
		slice, done := context.WithTimeoutCause(ctx, commitTime, fmt.Errorf("not done within %s", commitTime))
		err = b.commit(slice)
		done()
		b.Repo.Push(ctx, true)
	}
	if err != nil {
		return &ending{ran: true, Ending: because(workorder.StatusError, workorder.ByGit, workorder.ReasonRebase, "look at what became of the rebase: %v", err)}
	}
	if why != "" {
		return b.unresolved(why)
	}
	return b.setupMoved(ctx)
}

// unreserve gives back what was reserved for the landing.
func (b *Box) unreserve() {
	if err := b.Rec.ReleaseForLanding(); err != nil {
		b.Rec.Warn(err.Error())
	}
}

// unresolved is the end of a rebase that the agent did not complete.
func (b *Box) unresolved(why string) *ending {
	return &ending{ran: true, Ending: because(workorder.StatusFailed, workorder.ByAgent, workorder.ReasonUnresolved, "the conflicts are not resolved: %s; %s", why, b.whereKept())}
}

// notMoved is the end of a rebase without conflicts whose commits are gone from the work tree, where nothing but setup has run since; or of
// one that cannot be looked at.
func (b *Box) notMoved(why string, unknown bool) *ending {
	status, by := workorder.StatusFailed, workorder.BySetup
	if unknown {
		status, by = workorder.StatusError, workorder.ByGit
	}
	return &ending{ran: true, Ending: because(status, by, workorder.ReasonRebase,
		"git moved the commits, and they are not what the work tree has now: %s; %s on the remote is as it was", why, b.Order.TargetBranch)}
}

// whereKept says where to look at what did not become the branch's.
func (b *Box) whereKept() string {
	return fmt.Sprintf("%s is as it was, and the new commits are kept: `git fetch %s %s` and `git log FETCH_HEAD` show them", b.Order.TargetBranch, b.Order.Repo, b.rebasing.Beside)
}

// setupMoved runs setup in the tree without conflicts.
func (b *Box) setupMoved(ctx context.Context) *ending {
	if len(b.Order.Setup) == 0 {
		return nil
	}
	b.Rec.StepStarted(workorder.StepSetup)
	err := b.setup(ctx)
	b.Rec.StepFinished(workorder.StepSetup, err, nil)
	if err == nil || ctx.Err() != nil {
		return nil
	}
	return &ending{ran: true, Ending: because(workorder.StatusFailed, workorder.BySetup, workorder.ReasonSetup, "%s: %v; %s", workorder.StepSetup, err, b.whereKept())}
}

// compareMoved compares the commits. What is wrong counts where somebody else than git moved them.
func (b *Box) compareMoved(ctx context.Context) *ending {
	x := b.rebasing
	slice, done := context.WithTimeoutCause(ctx, compareTime, fmt.Errorf("not done within %s", compareTime))
	defer done()
	problems, err := b.Rebaser.Compare(slice, &x.Rebased)
	b.showRebased()
	switch {
	case err != nil && ctx.Err() != nil:
		return nil // the end says why
	case err != nil && x.Conflict:
		return b.unresolved("the commits before and after could not be compared: " + err.Error())
	case len(problems) > 0 && x.Conflict:
		return b.unresolved(strings.Join(problems, "; "))
	}
	if x.Rebased.NewHead == "" { // nothing says what the branch is to become
		why := problems
		if err != nil {
			why = []string{err.Error()}
		}
		return b.notMoved(strings.Join(why, "; "), err != nil)
	}
	if err != nil {
		b.Rec.Warn("the commits before and after could not be compared: " + err.Error())
	}
	for _, p := range problems {
		b.Rec.Warn(p)
	}
	if x.Rebased.NewHead == x.Rebased.NewBase {
		return &ending{Ending: because(workorder.StatusNoChanges, workorder.ByGit, workorder.ReasonUnchanged,
			"all that the task's commits change is in %s already: there is nothing left to put on it, and the branch is as it was", x.Rebased.Onto)}
	}
	return nil
}

// checkMoved runs the checks on the new head and lets the branch move where it is not worse.
func (b *Box) checkMoved(ctx context.Context, e *ending) {
	var worse []string
	switch {
	case ctx.Err() != nil:
		b.skipChecks(context.Cause(ctx).Error())
		return
	case len(b.Order.Validate) == 0:
		b.skipChecks("the project has no validate commands")
	default:
		e.checks = b.validate(ctx)
		worse = b.worse(ctx, e.checks)
	}
	if ctx.Err() != nil {
		return
	}
	if len(worse) > 0 {
		e.Ending = because(workorder.StatusFailed, workorder.ByValidation, workorder.ReasonWorse, "on %s the task's commits do not hold: %s; %s; `sandbox-agent continue %s --task \"...\"` lets the agent make them fit first",
			b.rebasing.Rebased.Onto, strings.Join(worse, "; "), b.whereKept(), b.Order.TaskID)
		return
	}
	r := &b.rebasing.Rebased
	if err := b.Rebaser.Move(ctx, r); err != nil {
		e.Ending = because(workorder.StatusError, workorder.ByGit, workorder.ReasonRebase, "%v; %s", err, b.whereKept())
		return
	}
	b.moved, b.committed = true, true
	b.began, b.beganOn = b.cloned.BaseSHA, b.cloned.Base
	b.cloned.Base, b.cloned.BaseSHA = r.Onto, r.NewBase
	b.Rec.Update(func(res *workorder.Result) { res.BaseBranch, res.BaseSHA = r.Onto, r.NewBase })
}

// worse finds the checks that fail on the new head and did not on the new base, or on the old head. Without clean checkouts nobody can
// tell: then each that fails counts.
func (b *Box) worse(ctx context.Context, checks []workorder.Validation) (worse []string) {
	failed := slices.DeleteFunc(slices.Clone(checks), func(v workorder.Validation) bool { return v.Passed })
	if b.Prover == nil {
		for i := range failed {
			worse = append(worse, fmt.Sprintf("%s fails (exit %d)", failed[i].Name, failed[i].ExitCode))
		}
		return worse
	}
	r := &b.rebasing.Rebased
	b.Rec.StepStarted(workorder.StepProof)
	var before *workorder.Proof
	if len(failed) > 0 { // first, so that the logs that stay are those of the proof that is shown
		before, _ = b.Prover.Checks(ctx, r.OldHead, r.NewHead)
	}
	p, evidence, err := b.Prover.Prove(ctx, r.NewBase, r.NewHead)
	b.Rec.Update(func(res *workorder.Result) { res.Proof, res.Evidence = p, append(res.Evidence, evidence...) })
	if err == nil && p.Reason != "" {
		b.Rec.Warn("proof: " + p.Reason)
	}
	b.Rec.StepFinished(workorder.StepProof, err, nil)
	for i := range failed {
		name := failed[i].Name
		was, now := checkOf(before, name), checkOf(p, name)
		switch {
		case broke(was):
			worse = append(worse, name+" passed on the old head and fails on the new one")
		case broke(now):
			worse = append(worse, name+" passes on the new base and fails with the task's commits on it")
		case was == nil || was.Base == nil || was.Base.Passed:
			worse = append(worse, fmt.Sprintf("%s fails (exit %d), and did not fail on the old head as far as is known", name, failed[i].ExitCode))
		default:
			b.Rec.Warn(name + " fails on the old head as well: it did not keep the branch from being moved")
		}
	}
	for i := range checks {
		if !checks[i].Passed {
			continue
		}
		// It passed in the work tree, where whoever resolved the conflicts also left what no commit has.
		switch name, c := checks[i].Name, checkOf(p, checks[i].Name); {
		case broke(c):
			worse = append(worse, name+" passes on the new base and fails with the task's commits on it, in a clean checkout")
		case c == nil || c.Head == nil:
			worse = append(worse, strings.TrimSuffix(name+" could not be run in a clean checkout of the new head: "+p.Reason, ": "))
		case !c.Head.Passed && (c.Base == nil || c.Base.Passed):
			worse = append(worse, name+" fails in a clean checkout of the new head")
		case !c.Head.Passed:
			b.Rec.Warn(name + " fails in clean checkouts of the new base and of the new head: it did not keep the branch from being moved")
		}
	}
	return worse
}

// checkOf is a check of a proof; nil: it is not there.
func checkOf(p *workorder.Proof, name string) *workorder.CheckProof {
	if p == nil {
		return nil
	}
	for i := range p.Checks {
		if p.Checks[i].Name == name {
			return &p.Checks[i]
		}
	}
	return nil
}

// broke reports whether a check, or a test of it, passed on the first side and fails on the second.
func broke(c *workorder.CheckProof) bool {
	return c != nil && (c.Transition == workorder.Broken || c.Counts[workorder.Broken] > 0)
}

// rebaseLanded notes what became of the branch. Where it did not take the new commits the task is as it was.
func (b *Box) rebaseLanded(l *Landing) {
	x := b.rebasing
	if x == nil || x.Nothing != "" {
		return
	}
	r := &x.Rebased
	if r.Pushed = b.moved && l.Err == nil && l.Pushed; !r.Pushed {
		r.Backup, r.Kept = "", b.Rebaser.Kept()
	}
	if b.moved && !r.Pushed {
		l.Head, l.Commits, l.Pushed = b.cloned.Head, b.cloned.Commits, false
		b.cloned.Base, b.cloned.BaseSHA = b.beganOn, b.began
		b.Rec.Update(func(res *workorder.Result) { res.BaseBranch, res.BaseSHA = b.beganOn, b.began })
	}
	b.showRebased()
}

// vouched is the head that the task's state may take for the task's own: a rebase that moved nothing says nothing about
// what it found, such as commits of others that it was refused for.
func (b *Box) vouched(head string) string {
	if b.Rebaser == nil || b.moved && head == b.rebasing.Rebased.NewHead {
		return head
	}
	return ""
}

// rangeDiffLater says where else the comparison is.
const rangeDiffLater = "; the result has the comparison under rebased, and the report shows it"

// rangeDiff comments on the pull request. It changes nothing about the run's status.
func (b *Box) rangeDiff(after context.Context) {
	if b.Rebaser == nil {
		return
	}
	res := b.Rec.Result()
	skip := ""
	switch {
	case res.Rebased == nil || !res.Rebased.Pushed:
		skip = "the branch was not moved"
	case after.Err() != nil:
		skip = toldToStop(rangeDiffLater)
	}
	if skip == "" {
		ctx, cancel := context.WithTimeout(after, forgeTime)
		defer cancel()
		b.Rec.StepStarted(workorder.StepRangeDiff)
		why, err := b.Rebaser.Comment(ctx, &res)
		if err != nil && after.Err() != nil {
			why = toldToStop(rangeDiffLater)
		}
		if why == "" {
			b.Rec.StepFinished(workorder.StepRangeDiff, err, nil)
			return
		}
		skip = why
	}
	b.Rec.StepFinished(workorder.StepRangeDiff, &record.Skip{Reason: skip}, nil)
}
