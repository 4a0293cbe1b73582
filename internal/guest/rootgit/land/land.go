// Package land ends an attempt: it pushes all work, or writes it to a bundle, and releases the lease.
package land

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/claim"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/evidence"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/save"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/tree"
	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Lander lands the work.
type Lander struct {
	*tree.Tree
	Feedback *evidence.Feedback
	Saver    *save.Saver

	// Answered means that the feedback in the state was answered; it is removed with the end of the attempt.
	Answered bool
}

const (
	// pushTries and pushPause: a restarting remote is back within seconds.
	pushTries = 3
	pushPause = 700 * time.Millisecond
	// hurriedTime replaces remote.LocalTime when there is little time for pushing.
	hurriedTime = 2 * time.Second
	// bundleTime is enough to pack some hundred megabytes; a shorter landing halves its time between bundle and archive.
	bundleTime = 20 * time.Second
)

// Land pushes the task's branch, the agent's other commits, and the state, in one push; it deletes the checkpoint if
// the branch has all of its work. end returns how to record the attempt if the push succeeds; nil if the attempt is not
// over. Commits that cannot be pushed are written to bundlePath. It may be called again and pushes nothing twice.
func (ld *Lander) Land(
	ctx context.Context, base, bundlePath string, end RecordAttempt,
) (l Result) {
	limit := remote.LocalTime
	if d, ok := ctx.Deadline(); ok && time.Until(d) < remote.LocalTime {
		limit = hurriedTime
	}
	clearing, cleared := context.WithTimeout(context.WithoutCancel(ctx), hurriedTime)
	ld.Ledger.Unreserve() // the agent has ended and cannot use the space
	ld.Work.RemoveLocks(clearing)
	cleared()
	local, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	if ld.Ledger.Load() == nil && ld.Ledger.Hold != "" {
		return ld.landHeld(ctx, local, base, bundlePath, end)
	}
	w, err := ld.gather(local, base, &l)
	if err != nil {
		ld.saved(&l)
		l.Err = fmt.Errorf("read the work tree's commits: %w", err)
		return l
	}
	branch := workorder.BranchRef(ld.Ledger.Branch())
	aside := append(ld.Pusher.PendingRefs(), w.More...)
	keep := aside // for the remote, or else for the bundle
	if len(l.Commits) > 0 {
		l.Warnings = append(l.Warnings, ld.Work.NestedRepoWarnings(local, base, w.Head)...)
		keep = append([]remote.Change{{Ref: branch, SHA: w.Head}}, keep...)
	}
	ld.Pusher.ResetRefused()
	ld.Heartbeat.Start(ctx) // a push may take minutes, also in rescue
	err = ld.deliver(ctx, w, &l, end)
	l.Checkpoint = ld.Ledger.Checkpoint
	if err == nil && ld.Ledger.State.Lease == nil {
		ld.Heartbeat.StopAndDelete(ctx)
	}
	there := map[string]string{}
	for ref, sha := range ld.Ledger.Refs {
		there[sha] = ref
	}
	aside = slices.DeleteFunc(aside, func(c remote.Change) bool {
		ref, arrived := there[c.SHA]
		if name := w.Names[c.Ref]; arrived && name != "" {
			l.warn("the agent also committed to %s, which is not part of %s; it is kept as %s", name, ld.Ledger.Branch(), ref)
		}
		return arrived
	})
	landed := err == nil
	if landed {
		if keep = aside; len(keep) == 0 {
			return l
		}
		err = fmt.Errorf("%d of the agent's other branches, tags and stashes could not be kept on the remote", len(keep))
	}
	switch {
	case len(keep) == 0:
		// No work is at stake, and the lease expires by itself.
		l.warn("the task's state on the remote is out of date: %v", err)
		return l
	case landed || len(l.Commits) == 0:
		l.warn("%v", err)
	default:
		l.Err = err
	}
	if berr := ld.bundle(ctx, ld.Repos.Outbox(), base, keep, bundlePath); berr != nil {
		l.Err = errors.Join(l.Err, berr)
	} else {
		l.Bundle = bundlePath
		for _, c := range aside {
			if name := w.Names[c.Ref]; name != "" {
				l.warn("the agent also committed to %s, which is not part of %s; it is kept in the bundle", name, ld.Ledger.Branch())
			}
		}
	}
	return l
}

// saved returns the landing of a work tree whose repository the agent broke: the remote's commits.
func (ld *Lander) saved(l *Result) {
	if ld.Ledger.Load() != nil {
		return
	}
	l.Checkpoint = ld.Ledger.Checkpoint
	if l.Head = ld.Ledger.Refs[workorder.BranchRef(ld.Ledger.Branch())]; l.Head == "" && l.Checkpoint == nil {
		return
	}
	l.Pushed = l.Head != ""
	l.warn("the agent removed or broke the repository of its work tree: the remote has the work saved before that, and `continue` resumes " +
		"from there")
}

// arrived returns head if the remote has it, else "".
func (ld *Lander) arrived(sha string) string {
	if sha == ld.Ledger.Refs[workorder.BranchRef(ld.Ledger.Branch())] || sha == ld.Ledger.State.BaseSHA {
		return sha
	}
	return ""
}

func (ld *Lander) gather(ctx context.Context, base string, l *Result) (remote.Commits, error) {
	if err := ld.Ledger.Load(); err != nil {
		return remote.Commits{}, err
	}
	if err := ld.Repos.Reconnect(ctx); err != nil {
		return remote.Commits{}, err
	}
	w, warnings, err := ld.AgentRefs.Find(ctx, base)
	if err != nil {
		return remote.Commits{}, err
	}
	l.Warnings = warnings
	if l.Commits, err = remote.Log(ctx, ld.Repos.Outbox(), base, w.Head); err != nil {
		return remote.Commits{}, err
	}
	if l.Head = w.Head; len(l.Commits) == 0 {
		l.Head, w.Head = base, base // a head behind the base leaves nothing to push either
	}
	return w, nil
}

// edit returns the landing's change of the state; nil if the attempt is not over.
func (ld *Lander) edit(l *Result, end RecordAttempt) func(*workorder.State) {
	if end == nil {
		return nil
	}
	a := end(l.Commits, l.Head)
	return func(s *workorder.State) { ld.ended(s, a) }
}

// deliver pushes the work. A refused branch's commits are kept next to it, and Release records the end.
func (ld *Lander) deliver(ctx context.Context, w remote.Commits, l *Result, end RecordAttempt) error {
	branch := workorder.BranchRef(ld.Ledger.Branch())
	if (ld.Ledger.Pending != nil || ld.Ledger.Foreign != "") && !ld.Ledger.Lost {
		if err := ld.Pusher.Reconcile(ctx); err != nil {
			return fmt.Errorf("push %s to %s: %w", ld.Ledger.Branch(), ld.Repos.Order.Repo, err)
		}
	}
	cs := ld.Pusher.PendingRefs()
	for _, c := range w.More {
		cs = ld.Pusher.AddSideRef(ctx, cs, c)
	}
	cs, err := ld.Pusher.AddBranchMove(ctx, cs, w.Head)
	if err != nil {
		return err
	}
	foreign := ld.Ledger.Foreign != ""
	if !foreign {
		all := cs
		if ld.Ledger.Committed && !w.Cut {
			// This push has all of its commits.
			all = append(slices.Clone(cs), remote.Change{Ref: workorder.CheckpointRef(ld.Repos.Order.TaskID), SHA: ""})
		}
		all = ld.superfluous(all)
		err = ld.tries(ctx, all, ld.edit(l, end))
		if err == nil {
			l.Pushed = len(l.Commits) > 0
			return nil
		}
		var refused *remote.RefusedError
		if !errors.As(err, &refused) {
			return fmt.Errorf("push %s to %s: %w", ld.Ledger.Branch(), ld.Repos.Order.Repo, err)
		}
		cs = slices.DeleteFunc(cs, func(c remote.Change) bool { _, not := refused.Why[c.Ref]; return not })
		if _, not := refused.Why[branch]; !not {
			// A ref next to the branch failed: the branch lands all the same.
			if again := ld.tries(ctx, cs, ld.edit(l, end)); again != nil {
				return errors.Join(err, again)
			}
			l.Pushed = len(l.Commits) > 0
			l.warn("%v", err)
			return nil
		}
	}
	why := fmt.Errorf("the remote %s has a %s with other commits; it was left unchanged", ld.Repos.Order.Repo, ld.Ledger.Branch())
	if !foreign {
		why = fmt.Errorf("the remote %s refuses %s: %w%s", ld.Repos.Order.Repo, ld.Ledger.Branch(), err, ld.authorHint(err))
	}
	err = &git.Error{Verb: "push", Kind: git.KindRejected, Err: why}
	beside := workorder.KeptRef(ld.Repos.Order.TaskID, ld.Ledger.Branch())
	cs = ld.Pusher.AddSideRef(
		ctx, slices.DeleteFunc(cs, func(c remote.Change) bool { return c.Ref == branch }), remote.Change{Ref: beside, SHA: w.Head},
	)
	if kerr := ld.tries(ctx, cs, nil); remote.SecretIn(kerr) != nil && remote.SecretIn(err) != nil {
		return err // the error reports it
	} else if kerr != nil {
		return errors.Join(err, kerr)
	}
	l.warn("the commits of %s are kept on the remote as %s", ld.Ledger.Branch(), beside)
	return err
}

var aboutAuthor = lazyregexp.New(`(?i)\b(author|committer|e-?mail|GH007|identity)\b`)

// authorHint names the key that sets the commit author, if the remote's message is about that.
func (ld *Lander) authorHint(err error) string {
	refused, ok := errors.AsType[*remote.RefusedError](err)
	if !ok || !aboutAuthor.MatchString(refused.Said) {
		return ""
	}
	return fmt.Sprintf(" (the commits are by %s; set another author with author: in the project file or --author)", ld.Repos.Order.Author)
}

// tries pushes, with retries for a remote that is temporarily unreachable.
func (ld *Lander) tries(ctx context.Context, cs []remote.Change, end func(*workorder.State)) error {
	var err error
	for try := range pushTries {
		if try > 0 {
			select {
			case <-ctx.Done():
				return err
			case <-time.After(pushPause):
			}
		}
		start := time.Now()
		if err = ld.Pusher.PushAll(ctx, cs, nil, end); err == nil {
			ld.Pusher.ReportPushed(cs, start)
			return nil
		}
		ld.Repos.Emit(workorder.Event{
			Type: workorder.EventPush, Name: workorder.BranchRef(ld.Ledger.Branch()), Status: "error",
			Text: err.Error(),
		})
		var held *remote.LeaseHeldError
		var refused *remote.RefusedError
		if errors.As(err, &refused) && refused.Why[workorder.StateRef(ld.Repos.Order.TaskID)] != "" && ld.Ledger.Foreign == "" {
			continue // the ledger was out of date and is refreshed now
		}
		if k := git.KindOf(err); k == git.KindAuth || k == git.KindRejected || errors.As(err, &held) || ctx.Err() != nil {
			return err // a retry cannot help
		}
	}
	return err
}

// Release records on the remote how the attempt ended, if it has to, releases the lease and stops the heartbeat.
func (ld *Lander) Release(ctx context.Context, end workorder.Attempt) error {
	defer ld.Heartbeat.Stop()
	if err := ld.Ledger.Load(); errors.Is(err, remote.ErrUnclaimed) {
		return nil
	} else if err != nil {
		return err
	}
	if _, lost := ld.Ledger.Fence.LostTo(); lost {
		return nil
	}
	end.HeadSHA = ld.arrived(end.HeadSHA) // otherwise the next attempt would conclude that the branch was reset
	next, same := remote.CopyState(ld.Ledger.State), end
	if a := ld.Ledger.OwnAttempt(next); a != nil && !a.EndedAt.IsZero() {
		same.EndedAt = a.EndedAt // Land has recorded the end
	}
	ld.ended(next, same)
	if ld.Ledger.Pending == nil {
		was, err := ld.Ledger.State.Encode()
		if err != nil {
			return err
		}
		if now, err := next.Encode(); err != nil || bytes.Equal(was, now) {
			return err
		}
	}
	err := ld.Pusher.Push(ctx, nil, nil, func(s *workorder.State) { ld.ended(s, end) })
	if _, held := errors.AsType[*remote.LeaseHeldError](err); held {
		return nil
	}
	if err != nil {
		return fmt.Errorf("return the lease of task %s: %w", ld.Repos.Order.TaskID, err)
	}
	ld.Heartbeat.StopAndDelete(ctx)
	ld.Repos.Emit(workorder.Event{Type: workorder.EventLease, Status: "released", Text: string(end.Status)})
	return nil
}

// bundle writes the commits that could not be pushed to a file that `git fetch` reads.
func (ld *Lander) bundle(ctx context.Context, outbox git.Repo, base string, refs []remote.Change, path string) error {
	limit := bundleTime
	if ld.Stop.LessThan(ctx, bundleTime) {
		limit = ld.Stop.FileBudget() / 2
	}
	// The push may have used up the deadline; writing the bundle is local and short.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	args := []string{"bundle", "create", "--quiet", path}
	if ld.Ledger.Committed && len(refs) > 0 && refs[0].Ref == workorder.BranchRef(ld.Ledger.Branch()) {
		refs = append(
			slices.Clone(refs),
			remote.Change{
				Ref: workorder.TaskRefs(ld.Repos.Order.TaskID) + claim.LandedBy + strconv.Itoa(ld.Ledger.AttemptNumber()),
				SHA: refs[0].SHA,
			},
		)
	}
	for _, r := range refs {
		if err := outbox.Run(ctx, "update-ref", r.Ref, r.SHA); err != nil {
			return fmt.Errorf("keep the work as a bundle: %w", err)
		}
		args = append(args, r.Ref)
	}
	if err := outbox.Run(ctx, append(args, "^"+base)...); err != nil {
		return fmt.Errorf("keep the work as a bundle: %w", err)
	}
	return nil
}

func (ld *Lander) ended(s *workorder.State, end workorder.Attempt) {
	end.ID = ld.Repos.Order.AttemptID
	end.Reasons, end.Agent.Final, end.Plan = end.Reasons.Each(ld.Repos.Mask), ld.Repos.Mask(end.Agent.Final), ld.Repos.Mask(end.Plan)
	if a := s.Find(end.ID); a != nil {
		end.Number, end.Mode, end.StartedAt, end.Incarnation = a.Number, a.Mode, a.StartedAt, a.Incarnation
		*a = end
	} else {
		s.Attempts = append(s.Attempts, end)
	}
	s.Lease = nil
	if ld.Answered {
		ld.Feedback.RemoveAnswered(s, end.HeadSHA)
	}
}
