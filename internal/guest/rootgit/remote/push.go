package remote

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Pusher pushes the task's refs and its state in one step.
type Pusher struct {
	*Remote

	// Usage returns the agent's usage so far; nil if unknown.
	Usage func() workorder.Usage

	// refused are the changes that the remote refused while the agent worked, by ref.
	refused map[string]refusal
	// alone means that a push of everything failed, so the most important refs are pushed separately.
	alone bool
}

// Push pushes the state, as edit changes it, and changes of the task's refs in one step. The state fences: a box that
// lost the lease cannot move the branch and gets a *LeaseHeldError.
func (p *Pusher) Push(ctx context.Context, cs []Change, cp *workorder.Checkpoint, edit func(*workorder.State)) error {
	led := p.Ledger
	if by, lost := p.Ledger.Fence.LostTo(); lost {
		return p.forfeit(by)
	}
	if led.Pending != nil {
		if err := p.Reconcile(ctx); err != nil {
			return err
		}
	}
	cs = slices.DeleteFunc(slices.Clone(cs), func(c Change) bool { return led.Refs[c.Ref] == c.SHA })
	next := CopyState(led.State)
	edit(next)
	p.rebase(next, cs)
	if led.Apart && next.Lease == nil && len(cs) > 0 {
		// The end goes last: if the rest does not arrive, the attempt is not over.
		if err := p.Push(ctx, cs, cp, p.renewed); err != nil {
			return err
		}
		return p.Push(ctx, nil, nil, edit)
	}
	commit, err := p.Ledger.Record(next)
	if err != nil {
		// The disk has no room for a new state. The remote's state fences as well, and the work matters more.
		if commit = led.Refs[workorder.StateRef(p.Repos.Order.TaskID)]; commit == "" || len(cs) == 0 {
			return err
		}
		next = led.State
	}
	state := Change{Ref: workorder.StateRef(p.Repos.Order.TaskID), SHA: commit}
	led.Pending = &PushTarget{State: next, Refs: map[string]string{state.Ref: commit}, Checkpoint: cp}
	p.Ledger.Sending(commit)
	for _, c := range cs {
		led.Pending.Refs[c.Ref] = c.SHA
		if c.Ref == workorder.BranchRef(p.Ledger.Branch()) {
			led.Tips = append(led.Tips[max(0, len(led.Tips)-maxTips+1):], c.SHA)
		}
	}
	p.Ledger.StoreBestEffort()
	var refused map[string]string
	switch {
	case !led.Apart:
		refused, err = p.Send(ctx, append([]Change{state}, cs...), true)
		if err != nil && strings.Contains(err.Error(), "does not support --atomic") {
			led.Apart, led.Pending = true, nil // nothing was sent
			return p.Push(ctx, cs, cp, edit)
		}
		if whole, ok := errors.AsType[*RefusedError](err); ok && len(cs) > 0 && whole.whole(len(cs)+1) {
			// A hook may have refused all because of one ref. Nothing has arrived: the state goes alone, and then what is not refused.
			led.Apart, led.Pending = true, nil
			err = p.Push(ctx, cs, cp, edit)
			led.Apart = false
			p.Ledger.StoreBestEffort()
			return err
		}
	default:
		// The lease first: without it nothing else is sent.
		if refused, err = p.Send(ctx, []Change{state}, false); err == nil && len(cs) > 0 {
			led.Refs[state.Ref], led.State = commit, next
			refused, err = p.sendEach(ctx, cs)
		}
	}
	switch {
	case err == nil:
		p.adopt(led.Pending.Refs)
		led.Pending = nil
		p.Ledger.StoreBestEffort()
	case len(refused) > 0:
		if rerr := p.Reconcile(ctx); rerr != nil {
			return rerr
		}
	}
	return err
}

// maxTips bounds the recorded commits of this box's own pushes: late pushes are few.
const maxTips = 20

func (p *Pusher) adopt(refs map[string]string) {
	led, id := p.Ledger, p.Repos.Order.TaskID
	for ref, sha := range refs {
		if sha == "" {
			delete(led.Refs, ref)
		} else {
			led.Refs[ref] = sha
		}
		delete(led.Keep, ref)
	}
	if sha, ok := refs[workorder.StateRef(id)]; ok && led.Pending != nil && sha == led.Pending.Refs[workorder.StateRef(id)] {
		led.State = led.Pending.State
	}
	switch sha, ok := refs[workorder.CheckpointRef(id)]; {
	case !ok:
	case sha == "":
		led.Checkpoint = nil
	case led.Pending != nil && led.Pending.Checkpoint != nil && led.Pending.Checkpoint.SHA == sha:
		led.Checkpoint = led.Pending.Checkpoint
	}
}

// Reconcile reads the remote's refs after a push with an unknown result. A lost lease is a *LeaseHeldError.
func (p *Pusher) Reconcile(ctx context.Context) error {
	led, id := p.Ledger, p.Repos.Order.TaskID
	seen, err := p.Repos.RemoteRefs(ctx, p.Ledger.Branch())
	if err != nil {
		return err
	}
	state, branch := workorder.StateRef(id), workorder.BranchRef(p.Ledger.Branch())
	if sha := seen[state]; sha != "" && sha != led.Refs[state] && (led.Pending == nil || sha != led.Pending.Refs[state]) {
		if err := p.unexpected(ctx, sha); err != nil {
			return err
		}
	}
	delete(seen, workorder.AliveRef(id))
	now := map[string]string{state: seen[state]}
	for ref := range led.Refs {
		now[ref] = seen[ref]
	}
	maps.Copy(now, seen)
	if at := seen[branch]; at != "" && at != led.Refs[branch] && !p.ourTip(ctx, at) {
		led.Foreign = at
		delete(now, branch)
	} else {
		led.Foreign = ""
	}
	p.adopt(now)
	led.Pending = nil
	p.Ledger.StoreBestEffort()
	return nil
}

// ourTip reports whether this box made the commit of the remote's branch. On a full disk the ledger may be old.
func (p *Pusher) ourTip(ctx context.Context, at string) bool {
	if slices.Contains(p.Ledger.Tips, at) || len(p.Ledger.Tips) == 0 {
		return len(p.Ledger.Tips) > 0
	}
	in, err := p.Repos.Outbox().IsAncestor(ctx, at, p.Ledger.Tips[len(p.Ledger.Tips)-1])
	return err == nil && in
}

// unexpected reads an unexpected state. It is this box's if a push took effect late.
func (p *Pusher) unexpected(ctx context.Context, sha string) error {
	var s *workorder.State
	var err error
	if slices.Contains(p.Ledger.Sent, sha) {
		s, err = p.Ledger.ReadState(ctx, p.Repos.Outbox(), sha)
	} else {
		s, err = p.FetchState(ctx, "unexpected")
	}
	switch {
	case err != nil:
		return err
	case s != nil && p.Ledger.IsOwn(s):
		p.Ledger.State = s
		return nil
	}
	return p.forfeit(p.Heartbeat.reportLost(s))
}

// forfeit records in the ledger that the lease is lost: rescue reads it.
func (p *Pusher) forfeit(by *workorder.TaskLease) error {
	if !p.Ledger.Lost {
		p.Ledger.Lost, p.Ledger.State.Lease, p.Ledger.Pending = true, by, nil
		p.Ledger.StoreBestEffort()
	}
	return p.Heartbeat.HeldError(by)
}

// renewed renews the lease in a state and updates the attempt's usage: a box that vanishes costs money, too.
func (p *Pusher) renewed(s *workorder.State) {
	s.Lease = p.Ledger.Lease()
	if a := s.Find(p.Repos.Order.AttemptID); a != nil && p.Usage != nil {
		a.Usage = p.Usage()
	}
}

// AddBranchMove adds the changes that bring the branch to head, and keeps the commit that it replaces.
func (p *Pusher) AddBranchMove(ctx context.Context, cs []Change, head string) ([]Change, error) {
	led, ref := p.Ledger, workorder.BranchRef(p.Ledger.Branch())
	was := led.Refs[ref]
	if led.Foreign != "" || head == was {
		return cs, nil
	}
	if was == "" {
		none, err := p.Repos.Outbox().IsAncestor(ctx, head, led.State.BaseSHA)
		if err != nil || none {
			return cs, err
		}
		return append(cs, Change{Ref: ref, SHA: head}), nil
	}
	return p.moved(ctx, cs, Change{Ref: ref, SHA: head})
}

// moved adds c, and a ref that keeps the commit that c replaces, unless c contains it.
func (p *Pusher) moved(ctx context.Context, cs []Change, c Change) ([]Change, error) {
	led := p.Ledger
	was := led.Refs[c.Ref]
	if was == "" || was == c.SHA || led.Moved != nil && led.Moved.OldHead == was {
		return append(cs, c), nil
	}
	if p.Repos.Outbox().Run(ctx, "cat-file", "-e", was+"^{commit}") != nil {
		// The agent's own copy is gone; the remote still has it.
		fetch, cancel := context.WithTimeout(ctx, askTime)
		err := p.Repos.Refresh(fetch)
		cancel()
		if err != nil {
			return cs, err
		}
	}
	for _, in := range []string{c.SHA, led.State.BaseSHA} {
		if reachable, err := p.Repos.Outbox().IsAncestor(ctx, was, in); err != nil {
			return cs, err
		} else if reachable {
			return append(cs, c), nil
		}
	}
	if kept := (Change{Ref: p.replacedRef(was), SHA: was}); !slices.Contains(cs, kept) {
		cs = append(cs, kept)
	}
	led.Replaced = append(slices.DeleteFunc(led.Replaced, func(s string) bool { return s == was }), was)
	for len(led.Replaced) > maxReplaced {
		cs = append(cs, Change{Ref: p.replacedRef(led.Replaced[0]), SHA: ""})
		led.Replaced = led.Replaced[1:]
	}
	return append(cs, c), nil
}

// AddSideRef adds a ref next to the branch. If its name is taken, it gets a name with its id: it never blocks the branch.
func (p *Pusher) AddSideRef(ctx context.Context, cs []Change, c Change) []Change {
	taken := func(o Change) bool { return o.Ref == c.Ref && o.SHA != c.SHA }
	if slices.ContainsFunc(cs, func(o Change) bool { return o.Ref == c.Ref && o.SHA == c.SHA }) {
		return cs
	}
	if !slices.ContainsFunc(cs, taken) {
		if more, err := p.moved(ctx, cs, c); err == nil {
			return more
		}
	}
	return append(cs, Change{Ref: workorder.KeptRef(p.Repos.Order.TaskID, "also-"+c.SHA[:12]), SHA: c.SHA})
}

// PushAll pushes everything in one step. If that fails, the branch, the checkpoint and the state go first, then the
// rest, one ref at a time: a *RefusedError names what did not arrive. end is the attempt's end; nil if it is not over.
func (p *Pusher) PushAll(ctx context.Context, cs []Change, cp *workorder.Checkpoint, end func(*workorder.State)) error {
	edit := p.renewed
	if end != nil {
		edit = end
	}
	var core, rest []Change
	for _, c := range cs {
		switch {
		case strings.HasPrefix(c.Ref, workorder.KeptRef(p.Repos.Order.TaskID, "")) && p.Ledger.Refs[c.Ref] != c.SHA && !backs(p.Ledger.Moved, c):
			rest = append(rest, c)
		default:
			core = append(core, c)
		}
	}
	if len(rest) == 0 || !p.alone {
		err := p.Push(ctx, cs, cp, edit)
		p.alone = len(rest) > 0 && err != nil
		var held *LeaseHeldError
		if k := git.KindOf(err); !p.alone || errors.As(err, &held) || k == git.KindAuth || k == git.KindUnreachable || ctx.Err() != nil {
			return err
		}
	}
	if err := p.Push(ctx, core, cp, p.renewed); err != nil {
		return err
	}
	if err := p.pushKept(ctx, rest); err != nil {
		return err
	}
	p.alone = false
	if end == nil {
		return nil
	}
	return p.Push(ctx, nil, nil, end)
}

// pushKept pushes refs next to the branch, one at a time, each only from its last seen value.
func (p *Pusher) pushKept(ctx context.Context, cs []Change) error {
	cs = slices.DeleteFunc(cs, func(c Change) bool { return p.Ledger.Refs[c.Ref] == c.SHA })
	if len(cs) == 0 {
		return nil
	}
	p.Ledger.Pending = &PushTarget{State: p.Ledger.State, Refs: map[string]string{}}
	for _, c := range cs {
		p.Ledger.Pending.Refs[c.Ref] = c.SHA
	}
	p.Ledger.StoreBestEffort()
	why, err := p.sendEach(ctx, cs)
	if err == nil {
		p.adopt(p.Ledger.Pending.Refs)
		p.Ledger.Pending = nil
		p.Ledger.StoreBestEffort()
		return nil
	}
	if rerr := p.Reconcile(ctx); rerr != nil {
		return rerr
	}
	missing := map[string]string{}
	for _, c := range cs {
		if p.Ledger.Refs[c.Ref] != c.SHA {
			if missing[c.Ref] = why[c.Ref]; why[c.Ref] == "" {
				missing[c.Ref] = err.Error()
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return &RefusedError{Why: missing, Err: &git.Error{Verb: "push", Kind: git.KindRejected, Err: err}}
}

// maxReplaced bounds the kept commits that the agent rewrote, for example by amending.
const maxReplaced = 20

func (p *Pusher) replacedRef(sha string) string {
	return workorder.KeptRef(p.Repos.Order.TaskID, "replaced-"+sha[:12])
}

// PendingRefs adds the refs that an earlier step left for the next push.
func (p *Pusher) PendingRefs() (cs []Change) {
	for _, ref := range slices.Sorted(maps.Keys(p.Ledger.Keep)) {
		cs = append(cs, Change{Ref: ref, SHA: p.Ledger.Keep[ref]})
	}
	return cs
}

// ReportPushed reports the refs that a push brought to the remote.
func (p *Pusher) ReportPushed(cs []Change, start time.Time) {
	for _, c := range cs {
		switch {
		case c.SHA == "" || p.Ledger.Refs[c.Ref] != c.SHA:
		case c.Ref == workorder.CheckpointRef(p.Repos.Order.TaskID):
			p.Repos.Emit(
				workorder.Event{Type: workorder.EventCheckpoint, Name: c.Ref, Status: "ok", Text: c.SHA, DurationMS: time.Since(start).Milliseconds()},
			)
		default:
			p.Repos.Emit(
				workorder.Event{Type: workorder.EventPush, Name: c.Ref, Status: "ok", Text: c.SHA, DurationMS: time.Since(start).Milliseconds()},
			)
		}
	}
}

// backs reports whether a change is the backup, which is pushed together with the branch.
func backs(m *RebaseResult, c Change) bool {
	return m != nil && c.Ref == m.Backup && c.SHA == m.OldHead
}

// rebase writes the new base into the state, with the push that moves the branch or after it.
func (p *Pusher) rebase(next *workorder.State, cs []Change) {
	m := p.Ledger.Moved
	if m == nil {
		return
	}
	branch := workorder.BranchRef(p.Ledger.Branch())
	there := p.Ledger.Refs[branch] == m.Head
	for _, c := range cs {
		// A remote that takes refs one by one may still refuse the branch.
		there = there || c.Ref == branch && c.SHA == m.Head && !p.Ledger.Apart
	}
	if there {
		next.BaseBranch, next.BaseSHA = m.Branch, m.Base
	}
}
