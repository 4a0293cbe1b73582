package publish

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Claimed is what a box has to begin with.
type Claimed struct {
	// State is as it is now on the remote, our attempt (the last one) and our lease
	// included. Its TargetBranch is the task's branch, whatever the order calls it.
	State      *workorder.State
	Attempt    int    // our number
	Continues  bool   // there was work of the task before
	Base       string // base branch
	BaseSHA    string // the commit that the task started from
	Head       string // where the branch is to start: the remote branch's head, or BaseSHA
	Checkpoint string // commit to restore, "" for none
	// Bundled says that Head comes from the bundle.
	Bundled bool
	// bundleAll is the attempt of which the bundle has everything, its checkpoints included.
	bundleAll int
	kept      map[string]string // refs to push with the first save
}

// What the remote may know of the task, against the order's mode.
var (
	ErrExists  = errors.New("the remote knows the task already")
	ErrUnknown = errors.New("the remote does not know the task")
)

// HeldError says that another box works on the task.
type HeldError struct {
	TaskID    string
	Holder    string // host name of the box
	AttemptID string
	RenewedAt time.Time // when it last pushed, on its own clock
}

func (e *HeldError) Error() string {
	if e.AttemptID == "" {
		return fmt.Sprintf("the lease of task %s was taken from this box", e.TaskID)
	}
	return fmt.Sprintf("another box (host %s, attempt %s) works on task %s", e.Holder, e.AttemptID, e.TaskID)
}

// EndedBy is what this error ends a run by.
func (e *HeldError) EndedBy() workorder.EndedBy { return workorder.ByLease }

const (
	// watchShare is the part of a lease's time after which we look again whether it was renewed.
	watchShare = 12
	watchLeast = 100 * time.Millisecond
	watchMost  = 5 * time.Second
	// claimTries bounds a swap that the remote refuses though nobody changed the ref:
	// another one may be in the middle of the same, for as long as a push takes.
	claimTries = 5
	claimPause = 300 * time.Millisecond
	// askTime bounds asking the remote for its refs.
	askTime = 30 * time.Second
)

// Claim takes the task's lease by compare and swap. It is called after Fetch, whose results
// it is given, and before Checkout.
//
// Where the mode does not go on, a task that the remote knows is an error that is ErrExists, if the order's IfExists
// does not say otherwise: then it is gone on with, which the order's mode says from then on, or a *DoneError tells what came of it.
// Where it goes on, one that it does not know begins anew where the order has its text,
// and is else ErrUnknown, of kind git.KindNotFound.
// A lease that nobody holds, or whose attempt the order says to be over, is
// taken at once. Any other one is watched on our own clock: a *HeldError as soon as its holder shows
// that it lives, and when it does not for its time, its box counts as lost. From then on
// others are told that we live, until Release.
func (p *Publisher) Claim(ctx context.Context, base, sha string) (*Claimed, error) {
	if !workorder.ValidAttemptID(p.Order.AttemptID) {
		return nil, errors.New("take the task's lease: the order names no attempt")
	}
	if p.incarnation == "" {
		p.incarnation = workorder.NewAttemptID()
	}
	first, watched := "", false
	for try := 1; ; try++ {
		seen, err := p.look(ctx)
		if err != nil {
			return nil, err
		}
		if done := p.done(ctx, seen); done != nil {
			return nil, done
		}
		c, next, err := p.plan(ctx, seen, base, sha)
		if err != nil {
			return nil, err
		}
		at := seen.refs[workorder.StateRef(p.Order.TaskID)]
		l := p.holder(seen.state)
		switch {
		case l != nil && try > 1 && at != first:
			return nil, p.held(l) // it was taken or renewed while we looked: its box lives
		case l != nil && !watched:
			first, watched = at, true
			lives, err := p.watch(ctx, seen, l)
			if err != nil {
				return nil, err
			}
			if lives {
				return nil, p.held(l)
			}
			// What was planned with is as old as the watch.
			if err := p.Refresh(ctx); err != nil {
				return nil, err
			}
			continue
		}
		first = at
		won, err := p.swap(ctx, seen, next)
		if won {
			p.won(ctx, seen, c)
			return c, nil
		}
		if git.KindOf(err) != git.KindRejected || try >= claimTries {
			return nil, fmt.Errorf("take the task's lease (%s): %w", workorder.StateRef(p.Order.TaskID), err)
		}
		if err := p.afterPause(ctx); err != nil {
			return nil, err
		}
	}
}

// afterPause looks at the remote anew, a moment later.
func (p *Publisher) afterPause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(claimPause):
	}
	return p.Refresh(ctx)
}

// view is the task as the mirror has it.
type view struct {
	refs   map[string]string
	branch string
	state  *workorder.State // nil: none
	// damaged is what the state's ref has where that is no state.
	damaged string
}

func (p *Publisher) look(ctx context.Context) (view, error) {
	id := p.Order.TaskID
	out, err := p.Mirror().Output(ctx, "for-each-ref", "--format=%(objectname) %(refname)", workorder.TaskRefs(id), "refs/heads/agent/")
	if err != nil {
		return view{}, err
	}
	v := view{branch: p.Order.TargetBranch}
	if at := taskRefs(out, id, "")[workorder.StateRef(id)]; at != "" {
		if v.state, err = p.readState(ctx, p.Mirror(), at); err != nil {
			if ctx.Err() != nil || p.newer(ctx, at) {
				return view{}, err
			}
			v.damaged = at
		}
	}
	if v.state != nil {
		v.branch = v.state.TargetBranch
	} else if v.branch, err = p.known(out); err != nil {
		return view{}, err
	}
	v.refs = taskRefs(out, id, v.branch)
	return v, nil
}

// sayDamaged says that the state which was replaced told nothing.
func (p *Publisher) sayDamaged(v view) {
	if v.damaged == "" {
		return
	}
	id := p.Order.TaskID
	p.Emit(workorder.Event{Type: workorder.EventWarning, Text: fmt.Sprintf("what the remote has as the state of task %s cannot be read: earlier attempts are not known, and it is kept as %s", id, workorder.KeptRef(id, "state-"+v.damaged[:12]))})
}

// newer reports whether a state that we cannot read is of a later version: it is not ours to replace.
func (p *Publisher) newer(ctx context.Context, commit string) bool {
	var s struct {
		Version int `json:"version"`
	}
	out, err := p.Mirror().Output(ctx, "cat-file", "blob", commit+":"+workorder.StateFile)
	return err == nil && json.Unmarshal(out, &s) == nil && s.Version > workorder.Version
}

// known is the task's branch among refs, where no state names it: whoever knows
// only the task's id does not know the end of the branch's name.
func (p *Publisher) known(refs []byte) (string, error) {
	own := "refs/heads/agent/" + p.Order.TaskID
	var found []string
	for line := range strings.Lines(string(refs)) {
		f := strings.Fields(line)
		if len(f) != 2 {
			continue
		}
		if f[1] == workorder.BranchRef(p.Order.TargetBranch) {
			return p.Order.TargetBranch, nil
		}
		if f[1] == own || strings.HasPrefix(f[1], own+"-") {
			found = append(found, strings.TrimPrefix(f[1], "refs/heads/"))
		}
	}
	switch len(found) {
	case 0:
		return p.Order.TargetBranch, nil
	case 1:
		return found[0], nil
	}
	return "", &git.Error{Verb: "fetch", Kind: git.KindRejected, Err: fmt.Errorf("the remote has several branches of task %s (%s) and nothing that says which one counts: remove all but one", p.Order.TaskID, strings.Join(found, ", "))}
}

// holder is the lease that keeps us out; nil: none does.
func (p *Publisher) holder(s *workorder.State) *workorder.Lease {
	if s == nil || s.Lease == nil || p.holds(s.Lease) || slices.Contains(p.Order.Ended, s.Lease.AttemptID) {
		return nil
	}
	return s.Lease
}

func (p *Publisher) held(l *workorder.Lease) *HeldError {
	e := &HeldError{TaskID: p.Order.TaskID}
	if l != nil {
		e.Holder, e.AttemptID, e.RenewedAt = l.Holder, l.AttemptID, l.RenewedAt
	}
	return e
}

// plan is what we would begin with, and the state that says so.
func (p *Publisher) plan(ctx context.Context, v view, base, sha string) (*Claimed, *workorder.State, error) {
	o, now := p.Order, time.Now().UTC()
	head := v.refs[workorder.BranchRef(v.branch)]
	checkpoint := v.refs[workorder.CheckpointRef(o.TaskID)]
	known := v.state != nil || v.damaged != "" || head != "" || checkpoint != ""
	// The push that took the lease may have come through though we did not hear of it.
	ours := v.state != nil && p.mine(v.state) != nil
	goesOn := o.Mode.GoesOn() || !ours && p.onWith(v)
	anew := o.Mode == workorder.ModePlan && head == "" && checkpoint == "" && onlyPlans(v.state)
	switch {
	case !goesOn && known && !ours && !anew:
		return nil, nil, fmt.Errorf("%w: `sandbox-agent continue %s`", &existsError{o.TaskID}, o.TaskID)
	case o.Mode.GoesOn() && !known && strings.TrimSpace(o.Task) == "":
		return nil, nil, &git.Error{Verb: "fetch", Kind: git.KindNotFound, Err: fmt.Errorf("%w: neither a branch nor a state of %s is on %s", ErrUnknown, o.TaskID, o.Repo)}
	}
	// A task whose first box vanished before it came so far begins now.
	c := &Claimed{Continues: goesOn && known, Base: base, BaseSHA: sha, Head: head}
	s := v.state
	if s == nil {
		s = &workorder.State{
			TaskID: o.TaskID, Project: o.Project, Task: p.clean(o.Task), TargetBranch: v.branch,
			BaseBranch: base, CreatedAt: now,
		}
	} else {
		s = copyState(s)
		if anew {
			s.Task, s.BaseBranch, s.BaseSHA = p.clean(o.Task), base, sha
		}
		if text := p.clean(o.Task); c.Continues && strings.TrimSpace(text) != "" && text != s.Task && !slices.Contains(s.Added, text) {
			s.Added = append(s.Added, text)
		}
		if s.BaseBranch != "" {
			c.Base = s.BaseBranch
		}
	}
	c.BaseSHA = p.origin(ctx, s, sha, cmp.Or(head, p.parent(ctx, checkpoint)))
	s.BaseSHA = c.BaseSHA
	if c.Head == "" {
		c.Head = c.BaseSHA
	}
	if c.Continues {
		if err := p.takeBundle(ctx, v, c); err != nil {
			return nil, nil, err
		}
		c.Checkpoint = checkpoint
	}
	if v.damaged != "" {
		c.keep(workorder.KeptRef(o.TaskID, "state-"+v.damaged[:12]), v.damaged)
	}
	p.takeOn(s, c.Head)
	mode := o.Mode
	if c.Continues && !mode.GoesOn() {
		mode = workorder.ModeContinue
	}
	p.enrol(s, mode, now)
	c.Attempt = s.Find(o.AttemptID).Number
	s.Lease = p.lease()
	return c, s, nil
}

// parent is the commit under a checkpoint; "": there is none, or it cannot be read.
func (p *Publisher) parent(ctx context.Context, checkpoint string) string {
	if checkpoint == "" {
		return ""
	}
	sha, err := p.Mirror().Resolve(ctx, checkpoint+"^1")
	if err != nil {
		return ""
	}
	return sha
}

// origin is the commit that the task started from. Where the state's is not there
// (the base branch was rewritten, or there is no state) it is where the branch left its base.
func (p *Publisher) origin(ctx context.Context, s *workorder.State, base, head string) string {
	if git.ValidSHA(s.BaseSHA) && p.Mirror().Run(ctx, "cat-file", "-e", s.BaseSHA+"^{commit}") == nil {
		return s.BaseSHA
	}
	if head == "" {
		return base
	}
	out, err := p.Mirror().Output(ctx, "merge-base", base, head)
	if sha := strings.TrimSpace(string(out)); err == nil && git.ValidSHA(sha) {
		return sha
	}
	return base
}

// enrol makes our attempt the last one, and those that never said how they ended lost.
func (p *Publisher) enrol(s *workorder.State, mode workorder.Mode, now time.Time) {
	id := p.Order.AttemptID
	if a := s.Find(id); a != nil && a.Incarnation != p.incarnation {
		// The same order was given to a box before: its attempt, and what that has cost, stays one of its own.
		if a.ID = a.Incarnation; !workorder.ValidAttemptID(a.ID) {
			a.ID = workorder.NewAttemptID()
		}
	}
	for i := range s.Attempts {
		a := &s.Attempts[i]
		if a.ID == id {
			continue
		}
		// A box that vanished told the remote less than the host has heard of it.
		if usd, ok := p.Order.SpentUSDByAttempt[a.ID]; ok && (a.Usage.CostUSD == nil || *a.Usage.CostUSD < usd) {
			a.Usage.CostUSD = &usd
		}
		if a.Status == "" {
			a.Status, a.EndedBy, a.EndedAt = workorder.StatusLost, workorder.ByHost, now
			a.Reason, a.ReasonCode = "the box vanished: it gave no sign of life any more", workorder.ReasonVanished
		}
	}
	if s.Find(id) != nil {
		return
	}
	number := 1
	if last := s.Last(); last != nil {
		number = last.Number + 1
	}
	s.Attempts = append(s.Attempts, workorder.Attempt{ID: id, Number: number, Incarnation: p.incarnation, Mode: mode, StartedAt: now})
}

// watch waits for as long as the lease's holder may be silent. lives: it was not. A
// state that changed ends the wait, too: it may be that the lease was given back.
func (p *Publisher) watch(ctx context.Context, seen view, l *workorder.Lease) (lives bool, err error) {
	state, alive := workorder.StateRef(p.Order.TaskID), workorder.AliveRef(p.Order.TaskID)
	var first map[string]string
	ttl := workorder.LeaseMisses * workorder.LeaseRenewal // no box takes longer
	if s := l.TTLSeconds; s > 0 && s < ttl.Seconds() && !math.IsNaN(s) {
		ttl = time.Duration(s * float64(time.Second))
	}
	p.Emit(workorder.Event{
		Type: workorder.EventLease, Status: "waiting",
		Text: fmt.Sprintf("the box on host %s had task %s; it is watched for %s", l.Holder, p.Order.TaskID, ttl),
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
			done = true // one last look: the swap fails anyway if it was renewed
		case <-every.C:
		}
		refs, err := p.remoteRefs(ctx, seen.branch)
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

// remoteRefs asks the remote for the task's refs.
func (p *Publisher) remoteRefs(ctx context.Context, branch string) (map[string]string, error) {
	return p.ask(ctx, branch, workorder.TaskRefs(p.Order.TaskID)+"*", workorder.BranchRef(branch))
}

// ask asks the remote for those of the task's refs that fit the patterns.
func (p *Publisher) ask(ctx context.Context, branch string, patterns ...string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	out, err := p.authed(p.Mirror()).Output(ctx, append([]string{"ls-remote", "--quiet", "--refs", "--", p.Order.CloneURL}, patterns...)...)
	if err != nil {
		return nil, err
	}
	return taskRefs(out, p.Order.TaskID, branch), nil
}

// swap replaces the state that was seen by next and begins the ledger.
func (p *Publisher) swap(ctx context.Context, v view, next *workorder.State) (won bool, err error) {
	led := &ledger{State: next, Refs: maps.Clone(v.refs), Incarnation: p.incarnation}
	if sha := v.refs[workorder.CheckpointRef(p.Order.TaskID)]; sha != "" {
		if led.Checkpoint, err = p.described(ctx, sha); err != nil && ctx.Err() != nil {
			return false, err // one that is damaged is for Checkout to say
		}
	}
	commit, err := p.record(ctx, next)
	if err != nil {
		return false, err
	}
	ref := workorder.StateRef(p.Order.TaskID)
	// Noted before it is done: where the push is cut off, Release finds out how it ended.
	led.Pending = &aim{State: next, Refs: map[string]string{ref: commit}}
	p.led = led
	p.sending(commit)
	if err := p.store(); err != nil {
		return false, err
	}
	if _, err = p.send(ctx, []change{{ref, commit}}, false); err != nil {
		// It may have come through all the same.
		refs, askErr := p.remoteRefs(ctx, next.TargetBranch)
		if askErr != nil {
			return false, errors.Join(err, askErr)
		}
		if refs[ref] != commit {
			p.led = nil
			return false, errors.Join(err, os.Remove(p.ledgerFile()))
		}
	}
	led.Refs[ref], led.Pending = commit, nil
	return true, p.store()
}

// described is a checkpoint of the mirror as results name it.
func (p *Publisher) described(ctx context.Context, sha string) (*workorder.Checkpoint, error) {
	out, err := p.Mirror().Output(ctx, "show", "--no-patch", "--format=%T %ct", sha, "--")
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
