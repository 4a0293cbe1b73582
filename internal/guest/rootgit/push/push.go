// Package push pushes the task's refs to the remote, with its state as the fence.
package push

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/heartbeat"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/ledger"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/repos"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Pusher pushes the task's refs and its state in one step.
type Pusher struct {
	repos  *repos.Repos
	book   *ledger.Book
	remote *remote.Remote
	heart  *heartbeat.Heart

	// Usage returns the agent's usage so far; nil if unknown.
	Usage func() workorder.Usage

	// refused are the changes that the remote refused while the agent worked, by ref.
	refused map[string]refusal
	// alone means that a push of everything failed, so the most important refs are pushed separately.
	alone bool
}

// New returns a Pusher.
func New(repos *repos.Repos, book *ledger.Book, remote *remote.Remote, heart *heartbeat.Heart) *Pusher {
	return &Pusher{repos: repos, book: book, remote: remote, heart: heart}
}

// Push pushes the state, as edit changes it, and changes of the task's refs in
// one step. The state goes with every push and so fences it: a box that lost
// the lease cannot move the branch and gets a *HeldError.
func (p *Pusher) Push(ctx context.Context, cs []remote.Change, cp *workorder.Checkpoint, edit func(*workorder.State)) error {
	led := p.book.Ledger
	if by, lost := p.book.Fence.Loser(); lost {
		return p.forfeit(by)
	}
	if led.Pending != nil {
		if err := p.Reconcile(ctx); err != nil {
			return err
		}
	}
	cs = slices.DeleteFunc(slices.Clone(cs), func(c remote.Change) bool { return led.Refs[c.Ref] == c.SHA })
	next := ledger.CopyState(led.State)
	edit(next)
	p.rebase(next, cs)
	if led.Apart && next.Lease == nil && len(cs) > 0 {
		// The end goes last: if the rest does not arrive, the attempt is not over.
		if err := p.Push(ctx, cs, cp, p.renewed); err != nil {
			return err
		}
		return p.Push(ctx, nil, nil, edit)
	}
	commit, err := p.book.Record(ctx, next)
	if err != nil {
		// The disk has no room for a new state. The remote's state fences as well, and the work matters more.
		if commit = led.Refs[workorder.StateRef(p.repos.Order.TaskID)]; commit == "" || len(cs) == 0 {
			return err
		}
		next = led.State
	}
	state := remote.Change{Ref: workorder.StateRef(p.repos.Order.TaskID), SHA: commit}
	led.Pending = &ledger.Aim{State: next, Refs: map[string]string{state.Ref: commit}, Checkpoint: cp}
	p.book.Sending(commit)
	for _, c := range cs {
		led.Pending.Refs[c.Ref] = c.SHA
		if c.Ref == workorder.BranchRef(p.book.Branch()) {
			led.Tips = append(led.Tips[max(0, len(led.Tips)-maxTips+1):], c.SHA)
		}
	}
	p.book.Note()
	var refused map[string]string
	switch {
	case !led.Apart:
		refused, err = p.remote.Send(ctx, append([]remote.Change{state}, cs...), true)
		if err != nil && strings.Contains(err.Error(), "does not support --atomic") {
			led.Apart, led.Pending = true, nil // nothing was sent
			return p.Push(ctx, cs, cp, edit)
		}
		if whole, ok := errors.AsType[*remote.RefusedError](err); ok && len(cs) > 0 && whole.Whole(len(cs)+1) {
			// A hook may have refused all because of one ref. Nothing has arrived: the state goes alone, and then what is not refused.
			led.Apart, led.Pending = true, nil
			err = p.Push(ctx, cs, cp, edit)
			led.Apart = false
			p.book.Note()
			return err
		}
	default:
		// The lease first: without it nothing else is sent.
		if refused, err = p.remote.Send(ctx, []remote.Change{state}, false); err == nil && len(cs) > 0 {
			led.Refs[state.Ref], led.State = commit, next
			refused, err = p.remote.SendEach(ctx, cs)
		}
	}
	switch {
	case err == nil:
		p.adopt(led.Pending.Refs)
		led.Pending = nil
		p.book.Note()
	case len(refused) > 0:
		if rerr := p.Reconcile(ctx); rerr != nil {
			return rerr
		}
	}
	return err
}

// maxTips bounds the recorded commits of this box's own pushes: late pushes are few.
const maxTips = 20

// adopt records refs as the remote's current ones.
func (p *Pusher) adopt(refs map[string]string) {
	led, id := p.book.Ledger, p.repos.Order.TaskID
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

// Reconcile reads the remote's refs after a push that was refused or whose result is unknown. If another box
// has the lease, the error is a *HeldError.
func (p *Pusher) Reconcile(ctx context.Context) error {
	led, id := p.book.Ledger, p.repos.Order.TaskID
	seen, err := p.repos.RemoteRefs(ctx, p.book.Branch())
	if err != nil {
		return err
	}
	state, branch := workorder.StateRef(id), workorder.BranchRef(p.book.Branch())
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
	p.book.Note()
	return nil
}

// ourTip reports whether this box made the commit of the remote's branch: one that it sent, or an ancestor of
// it. On a full disk the ledger may be older than the last push.
func (p *Pusher) ourTip(ctx context.Context, at string) bool {
	if slices.Contains(p.book.Tips, at) || len(p.book.Tips) == 0 {
		return len(p.book.Tips) > 0
	}
	in, err := p.repos.Outbox().IsAncestor(ctx, at, p.book.Tips[len(p.book.Tips)-1])
	return err == nil && in
}

// unexpected reads an unexpected state. It is this box's if a push took effect late, even one that ended its
// attempt.
func (p *Pusher) unexpected(ctx context.Context, sha string) error {
	var s *workorder.State
	var err error
	if slices.Contains(p.book.Sent, sha) {
		s, err = p.book.ReadState(ctx, p.repos.Outbox(), sha)
	} else {
		s, err = p.remote.FetchState(ctx, "unexpected")
	}
	switch {
	case err != nil:
		return err
	case s != nil && p.book.Ours(s):
		p.book.State = s
		return nil
	}
	return p.forfeit(p.heart.Lose(s))
}

// forfeit records in the ledger that the lease is lost: rescue reads it.
func (p *Pusher) forfeit(by *workorder.Lease) error {
	if !p.book.Lost {
		p.book.Lost, p.book.State.Lease, p.book.Pending = true, by, nil
		p.book.Note()
	}
	return p.heart.Held(by)
}

// renewed renews the lease in a state and updates the attempt's usage: a box that vanishes costs money, too.
func (p *Pusher) renewed(s *workorder.State) {
	s.Lease = p.book.Lease()
	if a := s.Find(p.repos.Order.AttemptID); a != nil && p.Usage != nil {
		a.Usage = p.Usage()
	}
}

// Move adds the changes that bring the branch to head, and keeps the commit that it replaces. It adds nothing if
// the branch is there already or would have no work.
func (p *Pusher) Move(ctx context.Context, cs []remote.Change, head string) ([]remote.Change, error) {
	led, ref := p.book.Ledger, workorder.BranchRef(p.book.Branch())
	was := led.Refs[ref]
	if led.Foreign != "" || head == was {
		return cs, nil
	}
	if was == "" {
		none, err := p.repos.Outbox().IsAncestor(ctx, head, led.State.BaseSHA)
		if err != nil || none {
			return cs, err
		}
		return append(cs, remote.Change{Ref: ref, SHA: head}), nil
	}
	return p.moved(ctx, cs, remote.Change{Ref: ref, SHA: head})
}

// moved adds c, and a ref that keeps the commit that c replaces, unless c contains it.
func (p *Pusher) moved(ctx context.Context, cs []remote.Change, c remote.Change) ([]remote.Change, error) {
	led := p.book.Ledger
	was := led.Refs[c.Ref]
	if was == "" || was == c.SHA || led.Moved != nil && led.Moved.OldHead == was {
		return append(cs, c), nil
	}
	if p.repos.Outbox().Run(ctx, "cat-file", "-e", was+"^{commit}") != nil {
		// The agent's own copy is gone; the remote still has it.
		fetch, cancel := context.WithTimeout(ctx, repos.AskTime)
		err := p.repos.Refresh(fetch)
		cancel()
		if err != nil {
			return cs, err
		}
	}
	for _, in := range []string{c.SHA, led.State.BaseSHA} {
		if reachable, err := p.repos.Outbox().IsAncestor(ctx, was, in); err != nil {
			return cs, err
		} else if reachable {
			return append(cs, c), nil
		}
	}
	if kept := (remote.Change{Ref: p.replacedRef(was), SHA: was}); !slices.Contains(cs, kept) {
		cs = append(cs, kept)
	}
	led.Replaced = append(slices.DeleteFunc(led.Replaced, func(s string) bool { return s == was }), was)
	for len(led.Replaced) > maxReplaced {
		cs = append(cs, remote.Change{Ref: p.replacedRef(led.Replaced[0]), SHA: ""})
		led.Replaced = led.Replaced[1:]
	}
	return append(cs, c), nil
}

// Aside adds a ref kept next to the branch. If its name is taken, or its relation to the remote's ref is
// unknown, it gets a name with its id: it never blocks the branch.
func (p *Pusher) Aside(ctx context.Context, cs []remote.Change, c remote.Change) []remote.Change {
	taken := func(o remote.Change) bool { return o.Ref == c.Ref && o.SHA != c.SHA }
	if slices.ContainsFunc(cs, func(o remote.Change) bool { return o.Ref == c.Ref && o.SHA == c.SHA }) {
		return cs
	}
	if !slices.ContainsFunc(cs, taken) {
		if more, err := p.moved(ctx, cs, c); err == nil {
			return more
		}
	}
	return append(cs, remote.Change{Ref: workorder.KeptRef(p.repos.Order.TaskID, "also-"+c.SHA[:12]), SHA: c.SHA})
}

// All pushes everything in one step. If that fails for any reason, the
// branch, the checkpoint and the state go first, and then the rest, one ref at
// a time: a *remote.RefusedError names the refs of the rest that did not arrive. end is the attempt's
// end; nil if it is not over.
func (p *Pusher) All(ctx context.Context, cs []remote.Change, cp *workorder.Checkpoint, end func(*workorder.State)) error {
	edit := p.renewed
	if end != nil {
		edit = end
	}
	var core, rest []remote.Change
	for _, c := range cs {
		switch {
		case strings.HasPrefix(c.Ref, workorder.KeptRef(p.repos.Order.TaskID, "")) && p.book.Refs[c.Ref] != c.SHA && !backs(p.book.Moved, c):
			rest = append(rest, c)
		default:
			core = append(core, c)
		}
	}
	if len(rest) == 0 || !p.alone {
		err := p.Push(ctx, cs, cp, edit)
		p.alone = len(rest) > 0 && err != nil
		var held *heartbeat.HeldError
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

// pushKept pushes refs next to the branch, one at a time. Another box's refs are safe: each ref is moved only
// from its last seen value.
func (p *Pusher) pushKept(ctx context.Context, cs []remote.Change) error {
	cs = slices.DeleteFunc(cs, func(c remote.Change) bool { return p.book.Refs[c.Ref] == c.SHA })
	if len(cs) == 0 {
		return nil
	}
	p.book.Pending = &ledger.Aim{State: p.book.State, Refs: map[string]string{}}
	for _, c := range cs {
		p.book.Pending.Refs[c.Ref] = c.SHA
	}
	p.book.Note()
	why, err := p.remote.SendEach(ctx, cs)
	if err == nil {
		p.adopt(p.book.Pending.Refs)
		p.book.Pending = nil
		p.book.Note()
		return nil
	}
	if rerr := p.Reconcile(ctx); rerr != nil {
		return rerr
	}
	missing := map[string]string{}
	for _, c := range cs {
		if p.book.Refs[c.Ref] != c.SHA {
			if missing[c.Ref] = why[c.Ref]; why[c.Ref] == "" {
				missing[c.Ref] = err.Error()
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return &remote.RefusedError{Why: missing, Err: &git.Error{Verb: "push", Kind: git.KindRejected, Err: err}}
}

// maxReplaced bounds the kept commits that the agent rewrote: an
// agent that amends its commit every minute leaves as many.
const maxReplaced = 20

func (p *Pusher) replacedRef(sha string) string {
	return workorder.KeptRef(p.repos.Order.TaskID, "replaced-"+sha[:12])
}

// Kept adds the refs that an earlier step left for the next push.
func (p *Pusher) Kept() (cs []remote.Change) {
	for _, ref := range slices.Sorted(maps.Keys(p.book.Keep)) {
		cs = append(cs, remote.Change{Ref: ref, SHA: p.book.Keep[ref]})
	}
	return cs
}

// Said reports the refs that a push brought to the remote.
func (p *Pusher) Said(cs []remote.Change, start time.Time) {
	for _, c := range cs {
		switch {
		case c.SHA == "" || p.book.Refs[c.Ref] != c.SHA:
		case c.Ref == workorder.CheckpointRef(p.repos.Order.TaskID):
			p.repos.Emit(
				workorder.Event{Type: workorder.EventCheckpoint, Name: c.Ref, Status: "ok", Text: c.SHA, DurationMS: time.Since(start).Milliseconds()},
			)
		default:
			p.repos.Emit(
				workorder.Event{Type: workorder.EventPush, Name: c.Ref, Status: "ok", Text: c.SHA, DurationMS: time.Since(start).Milliseconds()},
			)
		}
	}
}
