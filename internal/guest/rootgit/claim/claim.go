// Package claim takes the task's lease on the remote, and returns the state that a box starts from.
package claim

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/evidence"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Claimer takes the task's lease.
type Claimer struct {
	*remote.Remote
	Feedback *evidence.Feedback

	// Bundle is a file of commits that an earlier attempt could not push; empty if there is none.
	Bundle string
}

// Result is the state that a box starts from.
type Result struct {
	// State is the remote's current state, with this box's attempt, its lease and the branch's name.
	State      *workorder.State
	Attempt    int    // number of this box's attempt
	Continues  bool   // the task has earlier work
	Base       string // base branch
	BaseSHA    string // the commit that the task started from
	Head       string // first head of the branch: the remote branch's head, or BaseSHA
	Checkpoint string // commit to restore, empty for none
	// Bundled means that Head comes from the bundle.
	Bundled bool
	// BundleAll is the attempt whose whole work the bundle has, its checkpoints included.
	BundleAll int
	Kept      map[string]string // refs to push with the first save
}

// Errors for a task that the order's mode expects to be new, or to exist.
var (
	ErrTaskExists  = errors.New("the remote knows the task already")
	ErrTaskUnknown = errors.New("the remote does not know the task")
)

const (
	// watchShare is the part of a lease's time after which its renewal is checked again.
	watchShare = 12
	watchLeast = 100 * time.Millisecond
	watchMost  = 5 * time.Second
	// claimTries bounds a swap that the remote refuses although the ref did not change: another box may be pushing.
	claimTries = 5
	claimPause = 300 * time.Millisecond
)

// Claim takes the task's lease by compare and swap. Call it after Fetch, with its results, and before Checkout.
//
// If the mode starts a new task and the remote already has the task, Claim returns ErrTaskExists, unless the order's
// IfExists allows more: then the task is continued, or a *DoneError returns its result. If the mode continues a task
// that the remote does not have, the task starts from scratch if the order has its text; otherwise the error is
// ErrTaskUnknown, of kind git.KindNotFound.
//
// A lease that is free or over according to the order is taken at once. Any other is watched by this box's own clock:
// Claim returns a *LeaseHeldError at the holder's next heartbeat; without one for the lease's time, its box counts as
// lost. Then this box's heartbeat runs until Release.
func (ls *Claimer) Claim(ctx context.Context, base, sha string) (*Result, error) {
	if !workorder.ValidAttemptID(ls.Repos.Order.AttemptID) {
		return nil, errors.New("take the task's lease: the order names no attempt")
	}
	if ls.Ledger.BoxID == "" {
		ls.Ledger.BoxID = workorder.NewAttemptID()
	}
	first, watched := "", false
	for try := 1; ; try++ {
		seen, err := ls.look(ctx)
		if err != nil {
			return nil, err
		}
		if done := ls.done(ctx, seen); done != nil {
			return nil, done
		}
		c, next, err := ls.plan(ctx, seen, base, sha)
		if err != nil {
			return nil, err
		}
		at := seen.refs[workorder.StateRef(ls.Repos.Order.TaskID)]
		l := ls.holder(seen.state)
		switch {
		case l != nil && try > 1 && at != first:
			return nil, ls.Heartbeat.HeldError(l) // it was taken or renewed meanwhile: its box is alive
		case l != nil && !watched:
			first, watched = at, true
			lives, err := ls.watch(ctx, seen, l)
			if err != nil {
				return nil, err
			}
			if lives {
				return nil, ls.Heartbeat.HeldError(l)
			}
			// The mirror is as old as the watch.
			if err := ls.Repos.Refresh(ctx); err != nil {
				return nil, err
			}
			continue
		}
		first = at
		won, err := ls.swap(ctx, seen, next)
		if won {
			ls.won(ctx, seen, c)
			return c, nil
		}
		if git.KindOf(err) != git.KindRejected || try >= claimTries {
			return nil, fmt.Errorf("take the task's lease (%s): %w", workorder.StateRef(ls.Repos.Order.TaskID), err)
		}
		if err := ls.afterPause(ctx); err != nil {
			return nil, err
		}
	}
}

func (ls *Claimer) afterPause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(claimPause):
	}
	return ls.Repos.Refresh(ctx)
}

// remoteTask is the task as the mirror shows it.
type remoteTask struct {
	refs   map[string]string
	branch string
	state  *workorder.State // nil if there is none
	// damaged is the content of the state's ref if it is not a state.
	damaged string
}

func (ls *Claimer) look(ctx context.Context) (remoteTask, error) {
	id := ls.Repos.Order.TaskID
	out, err := ls.Repos.Mirror().Output(ctx, "for-each-ref", "--format=%(objectname) %(refname)", workorder.TaskRefs(id), "refs/heads/agent/")
	if err != nil {
		return remoteTask{}, err
	}
	v := remoteTask{branch: ls.Repos.Order.TargetBranch}
	if at := remote.TaskRefs(out, id, "")[workorder.StateRef(id)]; at != "" {
		if v.state, err = ls.Ledger.ReadState(ctx, ls.Repos.Mirror(), at); err != nil {
			if ctx.Err() != nil || ls.newer(ctx, at) {
				return remoteTask{}, err
			}
			v.damaged = at
		}
	}
	if v.state != nil {
		v.branch = v.state.TargetBranch
	} else if v.branch, err = ls.known(out); err != nil {
		return remoteTask{}, err
	}
	v.refs = remote.TaskRefs(out, id, v.branch)
	return v, nil
}

func (ls *Claimer) sayDamaged(v remoteTask) {
	if v.damaged == "" {
		return
	}
	id := ls.Repos.Order.TaskID
	ls.Repos.Warn(
		"the remote's state of task %s cannot be read: earlier attempts are unknown, and it is kept as %s", id,
		workorder.KeptRef(id, "state-"+v.damaged[:12]),
	)
}

// newer reports whether an unreadable state has a later version: this box must not replace it.
func (ls *Claimer) newer(ctx context.Context, commit string) bool {
	var s struct {
		Version int `json:"version"`
	}
	out, err := ls.Repos.Mirror().Output(ctx, "cat-file", "blob", commit+":"+workorder.StateFile)
	return err == nil && json.Unmarshal(out, &s) == nil && s.Version > workorder.Version
}

// known finds the task's branch among refs if no state names it. The id alone is only the beginning of the branch's name.
func (ls *Claimer) known(refs []byte) (string, error) {
	own := "refs/heads/agent/" + ls.Repos.Order.TaskID
	var found []string
	for line := range strings.Lines(string(refs)) {
		f := strings.Fields(line)
		if len(f) != 2 {
			continue
		}
		if f[1] == workorder.BranchRef(ls.Repos.Order.TargetBranch) {
			return ls.Repos.Order.TargetBranch, nil
		}
		if f[1] == own || strings.HasPrefix(f[1], own+"-") {
			found = append(found, strings.TrimPrefix(f[1], "refs/heads/"))
		}
	}
	switch len(found) {
	case 0:
		return ls.Repos.Order.TargetBranch, nil
	case 1:
		return found[0], nil
	}
	return "", &git.Error{
		Verb: "fetch", Kind: git.KindRejected,
		Err: fmt.Errorf(
			"the remote has several branches of task %s (%s) and no record of the right one: remove all but one", ls.Repos.Order.TaskID,
			strings.Join(found, ", "),
		),
	}
}

// holder returns another box's lease that is in force; nil if there is none.
func (ls *Claimer) holder(s *workorder.State) *workorder.TaskLease {
	if s == nil || s.Lease == nil || ls.Ledger.Holds(s.Lease) || slices.Contains(ls.Repos.Order.Ended, s.Lease.AttemptID) {
		return nil
	}
	return s.Lease
}

// plan returns the start of this box's attempt and the state that records it.
func (ls *Claimer) plan(ctx context.Context, v remoteTask, base, sha string) (*Result, *workorder.State, error) {
	o, now := ls.Repos.Order, time.Now().UTC()
	head := v.refs[workorder.BranchRef(v.branch)]
	checkpoint := v.refs[workorder.CheckpointRef(o.TaskID)]
	known := v.state != nil || v.damaged != "" || head != "" || checkpoint != ""
	// The push that took the lease may have succeeded although its answer was lost.
	ours := v.state != nil && ls.Ledger.OwnAttempt(v.state) != nil
	goesOn := o.Mode.Continues() || !ours && ls.onWith(v)
	newPlan := o.Mode == workorder.ModePlan && head == "" && checkpoint == "" && onlyPlans(v.state)
	switch {
	case !goesOn && known && !ours && !newPlan:
		return nil, nil, fmt.Errorf("%w: `sandbox-agent continue %s`", &existsError{o.TaskID}, o.TaskID)
	case o.Mode.Continues() && !known && strings.TrimSpace(o.Task) == "":
		return nil, nil, &git.Error{
			Verb: "fetch", Kind: git.KindNotFound, Err: fmt.Errorf("%w: no branch and no state of %s on %s", ErrTaskUnknown, o.TaskID, o.Repo),
		}
	}
	// A task whose first box vanished too early begins now.
	c := &Result{Continues: goesOn && known, Base: base, BaseSHA: sha, Head: head}
	s := v.state
	if s == nil {
		s = &workorder.State{
			TaskID: o.TaskID, Project: o.Project, Task: ls.Repos.Mask(o.Task), TargetBranch: v.branch,
			BaseBranch: base, CreatedAt: now,
		}
	} else {
		s = remote.CopyState(s)
		if newPlan {
			s.Task, s.BaseBranch, s.BaseSHA = ls.Repos.Mask(o.Task), base, sha
		}
		if text := ls.Repos.Mask(o.Task); c.Continues && strings.TrimSpace(text) != "" && text != s.Task && !slices.Contains(s.Added, text) {
			s.Added = append(s.Added, text)
		}
		if s.BaseBranch != "" {
			c.Base = s.BaseBranch
		}
	}
	c.BaseSHA = ls.origin(ctx, s, sha, cmp.Or(head, ls.parent(ctx, checkpoint)))
	s.BaseSHA = c.BaseSHA
	c.Head = cmp.Or(c.Head, c.BaseSHA)
	if c.Continues {
		if err := ls.takeBundle(ctx, v, c); err != nil {
			return nil, nil, err
		}
		c.Checkpoint = checkpoint
	}
	if v.damaged != "" {
		c.keep(workorder.KeptRef(o.TaskID, "state-"+v.damaged[:12]), v.damaged)
	}
	ls.Feedback.AddTo(s, c.Head)
	mode := o.Mode
	if c.Continues && !mode.Continues() {
		mode = workorder.ModeContinue
	}
	ls.enrol(s, mode, now)
	c.Attempt = s.Find(o.AttemptID).Number
	s.Lease = ls.Ledger.Lease()
	return c, s, nil
}

// parent returns the commit below a checkpoint; empty if there is none or it cannot be read.
func (ls *Claimer) parent(ctx context.Context, checkpoint string) string {
	if checkpoint == "" {
		return ""
	}
	sha, err := ls.Repos.Mirror().Resolve(ctx, checkpoint+"^1")
	if err != nil {
		return ""
	}
	return sha
}

// origin returns the commit that the task started from, or else the merge base of branch and base.
func (ls *Claimer) origin(ctx context.Context, s *workorder.State, base, head string) string {
	if git.ValidSHA(s.BaseSHA) && ls.Repos.Mirror().Run(ctx, "cat-file", "-e", s.BaseSHA+"^{commit}") == nil {
		return s.BaseSHA
	}
	if head == "" {
		return base
	}
	out, err := ls.Repos.Mirror().Output(ctx, "merge-base", base, head)
	if sha := strings.TrimSpace(string(out)); err == nil && git.ValidSHA(sha) {
		return sha
	}
	return base
}

// enrol appends this box's attempt, and marks attempts without a recorded end as lost.
func (ls *Claimer) enrol(s *workorder.State, mode workorder.Mode, now time.Time) {
	id := ls.Repos.Order.AttemptID
	if a := s.Find(id); a != nil && a.Incarnation != ls.Ledger.BoxID {
		// A box had the same order before: that attempt, with its cost, remains as a separate one.
		if a.ID = a.Incarnation; !workorder.ValidAttemptID(a.ID) {
			a.ID = workorder.NewAttemptID()
		}
	}
	for i := range s.Attempts {
		a := &s.Attempts[i]
		if a.ID == id {
			continue
		}
		// The host may know more about a vanished box than the remote.
		if usd, ok := ls.Repos.Order.SpentUSDByAttempt[a.ID]; ok && (a.Usage.CostUSD == nil || *a.Usage.CostUSD < usd) {
			a.Usage.CostUSD = &usd
		}
		if a.Status == "" {
			a.Status, a.EndedBy, a.EndedAt = workorder.StatusLost, workorder.EndedByHost, now
			a.Reasons = workorder.Because(workorder.ReasonVanished, "the sandbox vanished: it stopped giving signs of life")
		}
	}
	if s.Find(id) != nil {
		return
	}
	number := 1
	if last := s.Last(); last != nil {
		number = last.Number + 1
	}
	s.Attempts = append(s.Attempts, workorder.Attempt{ID: id, Number: number, Incarnation: ls.Ledger.BoxID, Mode: mode, StartedAt: now})
}

// watch waits until the lease's holder has been silent for the lease's time, or the state changed. lives: not silent.
func (ls *Claimer) watch(ctx context.Context, seen remoteTask, l *workorder.TaskLease) (lives bool, err error) {
	state, alive := workorder.StateRef(ls.Repos.Order.TaskID), workorder.AliveRef(ls.Repos.Order.TaskID)
	var first map[string]string
	ttl := workorder.LeaseMisses * workorder.LeaseRenewal // no box takes longer
	if s := l.TTLSeconds; s > 0 && s < ttl.Seconds() && !math.IsNaN(s) {
		ttl = time.Duration(s * float64(time.Second))
	}
	ls.Repos.Emit(workorder.Event{
		Type: workorder.EventLease, Status: "waiting",
		Text: fmt.Sprintf("the sandbox on host %s had task %s; watching it for %s", l.Holder, ls.Repos.Order.TaskID, ttl),
	})
	over := time.NewTimer(ttl)
	defer over.Stop()
	every := time.NewTicker(min(max(ttl/watchShare, watchLeast), watchMost))
	defer every.Stop()
	for done := false; ; {
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-over.C:
			done = true // one last check: the swap fails anyway if it was renewed
		case <-every.C:
		}
		refs, err := ls.Repos.RemoteRefs(ctx, seen.branch)
		if err == nil && first == nil {
			first = refs
		}
		switch {
		case err != nil && ctx.Err() != nil:
			return false, context.Cause(ctx)
		case err != nil && done:
			return false, err
		case err == nil && refs[state] != seen.refs[state]:
			return false, nil
		case err == nil && refs[alive] != first[alive]:
			return true, nil
		case done:
			return false, nil
		}
	}
}

// swap replaces the seen state by next and begins the ledger.
func (ls *Claimer) swap(ctx context.Context, v remoteTask, next *workorder.State) (won bool, err error) {
	var checkpoint *workorder.Checkpoint
	if sha := v.refs[workorder.CheckpointRef(ls.Repos.Order.TaskID)]; sha != "" {
		if checkpoint, err = ls.described(ctx, sha); err != nil && ctx.Err() != nil {
			return false, err // Checkout reports a damaged one
		}
	}
	commit, err := ls.Ledger.Record(next)
	if err != nil {
		return false, err
	}
	ref := workorder.StateRef(ls.Repos.Order.TaskID)
	// Recorded first: if the push is cut off, Release finds out how it ended.
	led := ls.Ledger
	led.Begin(next, v.refs)
	led.Checkpoint, led.Pending = checkpoint, &remote.PushTarget{State: next, Refs: map[string]string{ref: commit}}
	led.Sending(commit)
	if err := led.Store(); err != nil {
		return false, err
	}
	if _, err = ls.Send(ctx, []remote.Change{{Ref: ref, SHA: commit}}, false); err != nil {
		// The push may have succeeded all the same.
		refs, askErr := ls.Repos.RemoteRefs(ctx, next.TargetBranch)
		if askErr != nil {
			return false, errors.Join(err, askErr)
		}
		if refs[ref] != commit {
			return false, errors.Join(err, led.Discard())
		}
	}
	led.Refs[ref], led.Pending = commit, nil
	return true, led.Store()
}

// described returns a checkpoint of the mirror in the form that results use.
func (ls *Claimer) described(ctx context.Context, sha string) (*workorder.Checkpoint, error) {
	out, err := ls.Repos.Mirror().Output(ctx, "show", "--no-patch", "--format=%T %ct", sha, "--")
	if err != nil {
		return nil, fmt.Errorf("read checkpoint: %w", err)
	}
	var c workorder.Checkpoint
	var at int64
	if _, err := fmt.Sscanf(string(out), "%s %d", &c.Tree, &at); err != nil {
		return nil, fmt.Errorf("read checkpoint %s: %w", sha, err)
	}
	c.SHA, c.At = sha, time.Unix(at, 0).UTC()
	return &c, nil
}
