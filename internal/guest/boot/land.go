package boot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/land"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/tree"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/record"
	"github.com/sandbox-agent/sandbox-agent/internal/pullrequest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func (b *lander) commit(ctx context.Context) error {
	err := b.Repo.Commit(ctx)
	// Trying again after validation would only commit the files that validation left.
	b.work.left = nil
	if _, partly := errors.AsType[*tree.UncommittedError](err); partly {
		b.work.left, b.work.committed = err, true
		return nil
	}
	b.work.committed = err == nil
	return err
}

// neverPushed returns why the order has nothing pushed.
func (b *lander) neverPushed() string {
	switch {
	case b.Order.Repo == "":
		return "the task has no repository"
	case b.Order.Mode == workorder.ModePlan:
		return whyNoPush
	}
	return ""
}

// nothingToPush returns why there is nothing to push after all. It is called once the work is over.
func (b *lander) nothingToPush() string {
	switch {
	case b.prep.cloned == nil:
		return "there is no clone"
	case b.move.rebasing != nil && b.move.rebasing.SkipReason != "":
		return "there is nothing to rebase"
	case !b.work.ran:
		return "the agent never ran"
	}
	return ""
}

// push pushes the work, whatever the ending was. If it is cut short, the work is kept as files.
func (b *lander) push(context.Context) error {
	limit := workorder.LandLimit
	if errors.Is(context.Cause(b.contexts.run), errStopSignal) {
		limit = b.shutdown().Land
	}
	ctx, cancel := context.WithTimeoutCause(b.contexts.land, limit, fmt.Errorf("landing took longer than %s", limit))
	defer cancel()
	b.unreserve()
	// A push under way has all of the agent's work. Interrupting it would waste it.
	settle, settled := context.WithTimeout(ctx, limit*7/8)
	b.Repo.StopSaving(settle)
	settled()
	left := b.work.left
	if !b.work.committed && (b.Rebaser == nil || b.move.moved) { // in the middle of a rebase a commit would contain its conflicts
		// A separate slice of time: the existing commits have to land, however long the search for changes takes.
		slice, done := context.WithTimeoutCause(ctx, limit/2, fmt.Errorf("not done within %s", limit/2))
		if left = b.commit(slice); left == nil {
			left = b.work.left
		}
		done()
	}
	end := func(commits []workorder.Commit, head string) workorder.Attempt {
		r := b.Rec.Result()
		r.Validation = b.work.checks
		r.End(b.judgeOf(len(commits)))
		return AttemptOf(&r, b.move.vouched(head))
	}
	if b.report.keepsLease() {
		end = nil
	}
	l := b.Repo.Land(ctx, b.prep.cloned.BaseSHA, end)
	l.ArchiveLeftovers(ctx, left, b.Repo.Archive)
	for _, w := range l.Warnings {
		b.Rec.Emit(workorder.Event{Type: workorder.EventWarning, Text: w})
	}
	err := l.Err
	if err == nil && l.CommitCount() == 0 {
		err = &record.Skip{Reason: "no changes"}
	}
	b.landed(l)
	return err
}

func (b *lander) landed(l land.Result) {
	b.result = l
	b.move.rebaseLanded(&b.result)
}

// unreserve frees the disk space reserved for the landing.
func (b *lander) unreserve() {
	if err := b.Rec.ReleaseForLanding(); err != nil {
		b.Rec.Warn(err.Error())
	}
}

// asItWas is the landing of a run that changed nothing: the branch stays as earlier attempts left it.
func (b *lander) asItWas() land.Result {
	c := b.prep.cloned
	if c == nil {
		return land.Result{}
	}
	l := land.Result{Head: c.Head, Commits: c.Commits, Pushed: c.Pushed && len(c.Commits) > 0, Repos: c.Repos}
	if r := c.Restored; r != nil && r.Checkpoint != "" {
		l.Checkpoint = &workorder.Checkpoint{SHA: r.Checkpoint, Tree: r.Tree}
	}
	return l
}

func (b *lander) judge() workorder.Ending {
	e := b.judgeOf(b.result.CommitCount())
	switch unresolved := b.result.Unresolved; {
	case unresolved == "":
	case e.Status.Worked(): // failed checks do not change that
		return because(workorder.StatusFailed, workorder.EndedByAgent, workorder.ReasonUnresolved, "%s", unresolved)
	default:
		e.Reasons = e.Reasons.And(workorder.ReasonUnresolved, "%s", unresolved)
	}
	return e
}

// judgeOf returns the verdict on a run that pushed this many commits.
func (b *lander) judgeOf(commits int) workorder.Ending {
	if b.end.Status != "" {
		return b.end.Ending
	}
	v := b.Task.Verdict(b.work.checks, commits, b.end.cause)
	if red := v.Status == workorder.StatusFailed &&
		v.EndedBy == workorder.EndedByValidation; !red && v.Status != workorder.StatusSuccess ||
		b.Rebaser != nil && !b.move.moved {
		return v
	}
	proof := b.Rec.Result().Proof
	if proof != nil && proof.Head != b.result.Head {
		proof = nil // it covers other commits
	}
	same := commits == 0 && b.prep.cloned != nil && b.Order.Repo != ""
	e := redChecks(b.Task.Verdict(nil, commits, b.end.cause), b.Order.Strict, b.work.checks, proof, same, b.move.moved, b.Order.Found)
	for _, why := range v.Reasons { // names of lost services
		if e.Status != workorder.StatusSuccess && !e.Reasons.Has(why.Code) && why.Code == workorder.ReasonServiceLost {
			e.Reasons = append(slices.Clip(e.Reasons), why)
		}
	}
	return e
}

// release returns the task's lease. The run is over and its result is stored.
func (b *lander) release(context.Context) error {
	// A separate time limit, because a stop ends the context of earlier steps.
	ctx, cancel := lingering(b.contexts.after, releaseTime, workorder.ReleaseGrace)
	defer cancel()
	r := b.Rec.Result()
	err := b.Repo.Release(ctx, AttemptOf(&r, b.move.vouched(b.result.Head)))
	if err != nil {
		b.Log.Warn("release the task's lease", "error", err)
	}
	return err
}

// releaseTime bounds one small push. Without it, the lease expires by itself.
const releaseTime = 15 * time.Second

// uncommitted is the detail for changes that exist only in the box.
const uncommitted = "changes of the agent could neither be committed nor kept as files in time: they are copied out of the sandbox " +
	"after it has stopped"

// finish decides the verdict and writes the result.
func (b *lander) finish() {
	e, l := &b.end, b.result
	e.Ending = b.judge()
	good := e.Status.Worked()
	switch {
	case l.Large && good:
		e.Ending = because(
			workorder.StatusError, workorder.EndedByGit, workorder.ReasonUncommitted,
			"files that the agent left are too large to be committed or kept: the warnings name them",
		)
	case l.Lost && good:
		e.Ending = because(workorder.StatusError, workorder.EndedByAgent, workorder.ReasonLost, uncommitted)
	case l.Archive != "" && good && len(l.Commits) == 0:
		// There are changes, but not in git.
		e.Ending = because(
			workorder.StatusError, workorder.EndedByGit, workorder.ReasonUncommitted,
			"the agent's changes could not be committed; they are kept in %s",
			l.Archive,
		)
	case l.Archive != "" && good:
		// The checks ran on other files than the branch has.
		e.Ending = because(
			workorder.StatusError, workorder.EndedByGit, workorder.ReasonUncommitted,
			"some of the agent's changes could not be committed; they are kept in %s", l.Archive,
		)
	case l.Archive != "":
		e.Reasons = e.Reasons.And(workorder.ReasonUncommitted, "files that could not be committed are kept in %s", l.Archive)
	case l.Large:
		e.Reasons = e.Reasons.And(
			workorder.ReasonUncommitted, "files that the agent left are too large to be committed or kept: the warnings name them",
		)
	}
	if l.Lost && !e.Reasons.Has(workorder.ReasonLost) {
		e.Reasons = e.Reasons.And(workorder.ReasonLost, uncommitted)
	}
	if why, failed := l.Failed(); failed {
		e.notLanded(why)
	}
	for _, why := range l.RepoReasons {
		e.notLanded(why)
	}
	err := b.Rec.Finish(func(r *workorder.Result) {
		r.End(e.Ending)
		r.Validation = b.work.checks
		if b.Services != nil {
			r.Services = b.Services.Ends()
		}
		b.Engine.Describe(&r.Platform)
		b.Network.Report(r)
		l.CopyTo(r)
		if e.told != nil {
			copyEarlier(e.told, r)
		}
		r.NextCommand = pullrequest.NextCommand(pullrequest.Task{ID: b.Order.TaskID, Mode: b.Order.Mode, Repo: b.Order.Repo}, r)
	})
	if err != nil {
		b.Log.Error("write result", "error", err)
	}
}

// notLanded adds that work is not on a remote.
func (e *ending) notLanded(why workorder.Reason) {
	// Unpushed work is the worst news, unless the run had failed before; then it is added.
	switch e.Status {
	case workorder.StatusUnproven: // which becomes unproven again if the host brings the commits to the repository
		e.Ending = workorder.Ending{
			Status: workorder.StatusError, EndedBy: workorder.EndedByGit, Reasons: append(workorder.Reasons{why}, e.Reasons...),
		}
	case workorder.StatusSuccess, workorder.StatusNoChanges:
		e.Ending = workorder.Ending{Status: workorder.StatusError, EndedBy: workorder.EndedByGit, Reasons: workorder.Reasons{why}}
	default:
		e.Reasons = append(slices.Clip(e.Reasons), why)
	}
}
