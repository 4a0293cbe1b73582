package boot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/land"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/pipeline"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/record"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Rebaser rebases the task's commits onto a new base. Until Move the branch on the remote does not change: work saved
// or landed meanwhile goes to a ref next to it.
type Rebaser interface {
	// Begin rebases the commits in the work tree as far as git can by itself. An error may implement EndedByer.
	Begin(ctx context.Context) (Rebasing, error)
	// PromptConflicts adds the conflict to the agent's task.
	PromptConflicts()
	// Unfinished returns why the conflicts do not count as resolved; it is empty if they do.
	Unfinished(ctx context.Context) (why string, err error)
	// Compare compares the commits before and after, and fills r. problems lists the differences that are not allowed.
	Compare(ctx context.Context, r *workorder.Rebased) (problems []string, err error)
	// Move makes the next push update the branch to the new head.
	Move(ctx context.Context, r *workorder.Rebased) error
	// SideRef returns the ref that keeps the new commits if the branch did not accept them, else empty.
	SideRef() string
	// Comment posts a comment on the pull request about the rebased commits. why is the reason if it did not try.
	Comment(ctx context.Context, r *workorder.Result) (why string, err error)
}

// Rebasing is the outcome of Begin.
type Rebasing struct {
	Rebased    workorder.Rebased
	SkipReason string // why there is nothing to move
	// Conflict means that the agent is needed; AgentBlocked is the reason why it must not run.
	Conflict     bool
	AgentBlocked string
	SideRef      string // the ref for commits that do not reach the branch
}

func (b *mover) rebaseStep() *pipeline.Step {
	if b.Rebaser == nil {
		return nil
	}
	return &pipeline.Step{
		Name: workorder.StepRebase, Title: "rebase the task's commits", After: []workorder.StepName{workorder.StepClone}, Budget: rebaseBudget,
		Run: func(ctx context.Context) error {
			x, err := b.moveCommits(ctx)
			if err != nil {
				return err
			}
			b.rebasing = &x
			if x.SkipReason == "" {
				b.showRebased()
			}
			return nil
		},
	}
}

// moveCommits rebases in a work tree that may have files of an earlier setup, and starts again without them if git
// refuses to overwrite one.
func (b *mover) moveCommits(ctx context.Context) (Rebasing, error) {
	if !b.setup.over() {
		return b.Rebaser.Begin(ctx)
	}
	if _, err := b.Repo.RecordSetupFiles(ctx); err != nil {
		return Rebasing{}, err
	}
	x, err := b.Rebaser.Begin(ctx)
	if decided := EndedByer(nil); err == nil || errors.As(err, &decided) || ctx.Err() != nil {
		return x, err
	}
	if err := errors.Join(b.SetupCache.Clear(), b.Repo.Recheckout(ctx)); err != nil {
		return Rebasing{}, err
	}
	return b.Rebaser.Begin(ctx)
}

func (b *mover) compareStep() *pipeline.Step {
	if b.Rebaser == nil {
		return nil
	}
	return &pipeline.Step{
		Name: workorder.StepCompareCommits, Title: "compare the commits before and after", After: []workorder.StepName{workorder.StepSetup},
		Budget: compareBudget, Hidden: true, Run: b.compareMoved,
	}
}

func (b *mover) moveStep() *pipeline.Step {
	if b.Rebaser == nil {
		return nil
	}
	return &pipeline.Step{
		Name: workorder.StepMoveBranch, Title: "allow the branch to move if the new head is not worse",
		After: []workorder.StepName{workorder.StepValidate, workorder.StepProof}, Hidden: true, Run: b.allowMove,
	}
}

// showRebased copies the state of the rebase into the result.
func (b *mover) showRebased() {
	r := b.rebasing.Rebased
	b.Rec.Update(func(res *workorder.Result) { res.Rebased = &r })
}

// beginRebase watches the lease and, if commits conflict, prepares the agent's task.
func (b *mover) beginRebase() error {
	x := b.rebasing
	if x.SkipReason != "" {
		return &pipeline.SkipRest{
			Reason: "there is nothing to rebase",
			Err:    &endError{because(workorder.StatusNoChanges, workorder.EndedByGit, workorder.ReasonUnchanged, "%s", x.SkipReason)},
		}
	}
	b.work.watchLease()
	if !x.Conflict {
		if s := b.prep.cloned.State; s != nil && s.Task != "" {
			b.Order.Task = s.Task
		}
		b.work.committed = true // setup's leftovers are not committed
		return nil
	}
	if x.AgentBlocked != "" {
		return stop(because(
			workorder.StatusFailed, workorder.EndedByOrder, workorder.ReasonConflicts, "the rebase conflicts in %s, and %s; the branch is unchanged",
			strings.Join(x.Rebased.Conflicts, ", "), x.AgentBlocked,
		))
	}
	if err := b.work.prepare(); err != nil {
		return err
	}
	b.work.ran = true
	return nil
}

// keepResolved commits the agent's resolution of the conflicts.
func (b *mover) keepResolved(ctx context.Context) error {
	if !b.rebasing.Conflict {
		return nil
	}
	if b.work.agentEnd.Status != workorder.StatusSuccess {
		return &pipeline.SkipRest{Reason: "the agent did not end successfully", Err: &endError{}}
	}
	settle, settled := context.WithTimeout(ctx, commitTime/2)
	b.Repo.StopSaving(settle)
	settled()
	why, err := b.Rebaser.Unfinished(ctx)
	if err == nil && why == "" {
		slice, done := context.WithTimeoutCause(ctx, commitTime, fmt.Errorf("not done within %s", commitTime))
		err = b.land.commit(slice)
		done()
		b.Repo.Push(ctx, true)
	}
	if err != nil {
		return stop(because(workorder.StatusError, workorder.EndedByGit, workorder.ReasonRebase, "inspect the result of the rebase: %v", err))
	}
	if why != "" {
		return b.unresolved(why)
	}
	return nil
}

// unresolved is the ending of a rebase that the agent did not complete.
func (b *mover) unresolved(why string) error {
	return stop(because(
		workorder.StatusFailed, workorder.EndedByAgent, workorder.ReasonUnresolved, "the conflicts are not resolved: %s; %s", why, b.whereKept(),
	))
}

// notMoved is the ending of a rebase without conflicts after which the work tree lacks the moved commits, or (unknown)
// cannot be read.
func (b *mover) notMoved(why string, unknown bool) error {
	status, by := workorder.StatusFailed, workorder.EndedBySetup
	if unknown {
		status, by = workorder.StatusError, workorder.EndedByGit
	}
	return stop(because(status, by, workorder.ReasonRebase,
		"git rebased the commits, but the work tree has others now: %s; %s on the remote is unchanged", why, b.Order.TargetBranch))
}

// whereKept describes where the commits are that did not reach the branch.
func (b *mover) whereKept() string {
	return fmt.Sprintf(
		"%s is unchanged, and the new commits are kept: `git fetch %s %s` and `git log FETCH_HEAD` show them", b.Order.TargetBranch, b.Order.Repo,
		b.rebasing.SideRef,
	)
}

// compareMoved compares the commits. Problems count if the agent took part in moving them.
func (b *mover) compareMoved(ctx context.Context) error {
	x := b.rebasing
	b.work.ran = true
	problems, err := b.Rebaser.Compare(ctx, &x.Rebased)
	b.showRebased()
	switch {
	case err != nil && b.contexts.run.Err() != nil:
		return nil // the ending has the reason
	case err != nil && x.Conflict:
		return b.unresolved("the commits before and after could not be compared: " + err.Error())
	case len(problems) > 0 && x.Conflict:
		return b.unresolved(strings.Join(problems, "; "))
	}
	if x.Rebased.NewHead == "" { // the branch's new head is unknown
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
		b.work.ran = false
		return stop(because(workorder.StatusNoChanges, workorder.EndedByGit, workorder.ReasonUnchanged,
			"%s already has all changes of the task's commits: nothing is left to rebase, and the branch is unchanged", x.Rebased.Onto))
	}
	return nil
}

// proveMoved proves the new head against the new base and, if checks fail on it, against the old head.
func (b *mover) proveMoved(ctx context.Context) error {
	r := &b.rebasing.Rebased
	if failures(b.work.checks) != nil { // first, so that the remaining logs are those of the proof that is shown
		b.before, _ = b.Prover.Checks(ctx, r.OldHead, r.NewHead)
	}
	return b.report.proof(ctx, r.NewBase, r.NewHead)
}

// allowMove allows the branch to move unless the checks show that the new head is worse.
func (b *mover) allowMove(ctx context.Context) error {
	r := &b.rebasing.Rebased
	if worse := b.worse(); len(worse) > 0 {
		return stop(because(workorder.StatusFailed, workorder.EndedByValidation, workorder.ReasonWorse,
			"on %s the task's commits fail: %s; %s; `sandbox-agent continue %s --task \"...\"` lets the agent fix them first",
			r.Onto, strings.Join(worse, "; "), b.whereKept(), b.Order.TaskID))
	}
	if err := b.Rebaser.Move(ctx, r); err != nil {
		return stop(because(workorder.StatusError, workorder.EndedByGit, workorder.ReasonRebase, "%v; %s", err, b.whereKept()))
	}
	b.moved, b.work.committed = true, true
	b.began, b.beganOn = b.prep.cloned.BaseSHA, b.prep.cloned.Base
	b.prep.cloned.Base, b.prep.cloned.BaseSHA = r.Onto, r.NewBase
	b.Rec.Update(func(res *workorder.Result) { res.BaseBranch, res.BaseSHA = r.Onto, r.NewBase })
	return nil
}

// worse lists the checks that fail on the new head but not on the new base or on the old head. Without clean checkouts
// each failed check counts.
func (b *mover) worse() (worse []string) {
	checks := b.work.checks
	failed := slices.DeleteFunc(slices.Clone(checks), func(v workorder.Validation) bool { return v.Passed })
	if b.Prover == nil {
		for i := range failed {
			worse = append(worse, fmt.Sprintf("%s fails (exit %d)", failed[i].Name, failed[i].ExitCode))
		}
		return worse
	}
	before, p := b.before, cmp.Or(b.Rec.Result().Proof, &workorder.Proof{})
	for i := range failed {
		name := failed[i].Name
		was, now := checkOf(before, name), checkOf(p, name)
		switch {
		case broke(was):
			worse = append(worse, name+" passed on the old head and fails on the new one")
		case broke(now):
			worse = append(worse, name+" passes on the new base and fails with the task's commits on it")
		case was == nil || was.Base == nil || was.Base.Passed:
			worse = append(worse, fmt.Sprintf("%s fails (exit %d); no failure on the old head is known", name, failed[i].ExitCode))
		default:
			b.Rec.Warn(name + " fails on the old head as well: it did not prevent the move of the branch")
		}
	}
	for i := range checks {
		if !checks[i].Passed {
			continue
		}
		// It passed in the work tree, which also has files of the conflict resolution that are in no commit.
		switch name, c := checks[i].Name, checkOf(p, checks[i].Name); {
		case broke(c):
			worse = append(worse, name+" passes on the new base and fails with the task's commits on it, in a clean checkout")
		case c == nil || c.Head == nil:
			worse = append(worse, strings.TrimSuffix(name+" could not be run in a clean checkout of the new head: "+p.Reasons.String(), ": "))
		case !c.Head.Passed && (c.Base == nil || c.Base.Passed):
			worse = append(worse, name+" fails in a clean checkout of the new head")
		case !c.Head.Passed:
			b.Rec.Warn(name + " fails in clean checkouts of the new base and of the new head: it did not prevent the move of the branch")
		}
	}
	return worse
}

// checkOf returns a check of a proof; nil if the proof lacks it.
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

// broke reports whether a check, or one of its tests, passed on the first side and fails on the second.
func broke(c *workorder.CheckProof) bool {
	return c != nil && (c.Transition == workorder.TransitionBroken || c.Counts[workorder.TransitionBroken] > 0)
}

// rebaseLanded records the outcome for the branch. If the branch did not take the new commits, the task is unchanged.
func (b *mover) rebaseLanded(l *land.Result) {
	x := b.rebasing
	if x == nil || x.SkipReason != "" {
		return
	}
	r := &x.Rebased
	if r.Pushed = b.moved && l.Err == nil && l.Pushed; !r.Pushed {
		r.Backup, r.Kept = "", b.Rebaser.SideRef()
	}
	if b.moved && !r.Pushed {
		l.Head, l.Commits, l.Pushed = b.prep.cloned.Head, b.prep.cloned.Commits, false
		b.prep.cloned.Base, b.prep.cloned.BaseSHA = b.beganOn, b.began
		b.Rec.Update(func(res *workorder.Result) { res.BaseBranch, res.BaseSHA = b.beganOn, b.began })
	}
	b.showRebased()
}

// vouched is the head that the task's state may record as the task's own. A rebase that moved nothing does not vouch
// for the commits that it found.
func (b *mover) vouched(head string) string {
	if b.Rebaser == nil || b.moved && head == b.rebasing.Rebased.NewHead {
		return head
	}
	return ""
}

// wasMoved reports whether the branch took the new commits.
func (b *mover) wasMoved() bool {
	r := b.Rec.Result().Rebased
	return r != nil && r.Pushed
}

// rangeDiff comments on the pull request. It does not change the run's status.
func (b *mover) rangeDiff(ctx context.Context) error {
	res := b.Rec.Result()
	why, err := b.Rebaser.Comment(ctx, &res)
	if why != "" {
		return &record.Skip{Reason: why}
	}
	return err
}
