package publish

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

// change is one ref of the remote and what it is to become; sha "" deletes it.
type change struct{ ref, sha string }

// refusedError is a push of which the remote, or a lease, refused some refs.
type refusedError struct {
	why map[string]string // by ref
	err error
}

func (e *refusedError) Error() string {
	var all []string
	for _, ref := range slices.Sorted(maps.Keys(e.why)) {
		all = append(all, ref+" "+e.why[ref])
	}
	return "the remote refused " + strings.Join(all, ", ")
}

func (e *refusedError) Unwrap() error { return e.err }

// send pushes changes over one connection, each only if the remote has what the
// ledger says. together: all or none.
func (p *Publisher) send(ctx context.Context, cs []change, together bool) (refused map[string]string, err error) {
	args := []string{"push", "--porcelain", "--no-verify"}
	if together {
		args = append(args, "--atomic")
	}
	for _, c := range cs {
		args = append(args, "--force-with-lease="+c.ref+":"+p.led.Refs[c.ref])
	}
	args = append(args, "--", p.Order.CloneURL)
	for _, c := range cs {
		args = append(args, c.sha+":"+c.ref)
	}
	out, err := p.authed(p.outbox()).Output(ctx, args...)
	if err == nil {
		return nil, nil
	}
	refused = map[string]string{}
	for line := range strings.Lines(string(out)) {
		// "!<tab>from:to<tab>[remote rejected] (reason)"; with "atomic" for a reason it is another ref's fault.
		f := strings.Split(strings.TrimSpace(line), "\t")
		if len(f) != 3 || f[0] != "!" || strings.Contains(f[2], "atomic") {
			continue
		}
		_, to, _ := strings.Cut(f[1], ":")
		refused[to] = f[2]
	}
	if len(refused) == 0 {
		return nil, err
	}
	return refused, &refusedError{why: refused, err: &git.Error{Verb: "push", Kind: git.KindRejected, Err: err}}
}

// push brings the state, as edit changes it, and changes of the task's refs to the remote in
// one step. The state goes with every push and so fences it: whoever has lost
// the lease cannot move the branch. Then the error is a *HeldError.
func (p *Publisher) push(ctx context.Context, cs []change, cp *workorder.Checkpoint, edit func(*workorder.State)) error {
	led := p.led
	if by, lost := p.pulse.loser(); lost {
		return p.forfeit(by)
	}
	if led.Pending != nil {
		if err := p.reconcile(ctx); err != nil {
			return err
		}
	}
	cs = slices.DeleteFunc(slices.Clone(cs), func(c change) bool { return led.Refs[c.ref] == c.sha })
	next := copyState(led.State)
	edit(next)
	p.rebase(next, cs)
	if led.Apart && next.Lease == nil && len(cs) > 0 {
		// The end goes last: where the rest does not arrive, the attempt is not over.
		if err := p.push(ctx, cs, cp, p.renewed); err != nil {
			return err
		}
		return p.push(ctx, nil, nil, edit)
	}
	commit, err := p.record(ctx, next)
	if err != nil {
		// There is no room for it. What the remote has fences as well, and the work counts more.
		if commit = led.Refs[workorder.StateRef(p.Order.TaskID)]; commit == "" || len(cs) == 0 {
			return err
		}
		next = led.State
	}
	state := change{workorder.StateRef(p.Order.TaskID), commit}
	led.Pending = &aim{State: next, Refs: map[string]string{state.ref: commit}, Checkpoint: cp}
	p.sending(commit)
	for _, c := range cs {
		led.Pending.Refs[c.ref] = c.sha
		if c.ref == workorder.BranchRef(p.branch()) {
			led.Tips = append(led.Tips[max(0, len(led.Tips)-maxTips+1):], c.sha)
		}
	}
	p.jot()
	var refused map[string]string
	switch {
	case !led.Apart:
		refused, err = p.send(ctx, append([]change{state}, cs...), true)
		if err != nil && strings.Contains(err.Error(), "does not support --atomic") {
			led.Apart, led.Pending = true, nil // nothing was sent
			return p.push(ctx, cs, cp, edit)
		}
	default:
		// The lease first: without it nothing else is sent.
		if refused, err = p.send(ctx, []change{state}, false); err == nil && len(cs) > 0 {
			led.Refs[state.ref], led.State = commit, next
			refused, err = p.send(ctx, cs, false)
		}
	}
	switch {
	case err == nil:
		p.adopt(led.Pending.Refs)
		led.Pending = nil
		p.jot()
	case len(refused) > 0:
		if rerr := p.reconcile(ctx); rerr != nil {
			return rerr
		}
	}
	return err
}

// maxTips bounds the commits that are taken for ours on the branch: late pushes are few.
const maxTips = 20

// adopt takes refs for what the remote has now.
func (p *Publisher) adopt(refs map[string]string) {
	led, id := p.led, p.Order.TaskID
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

// reconcile asks the remote what it has, after a push whose end is not known or
// that was refused. Another box's lease there is a *HeldError.
func (p *Publisher) reconcile(ctx context.Context) error {
	led, id := p.led, p.Order.TaskID
	seen, err := p.remoteRefs(ctx, p.branch())
	if err != nil {
		return err
	}
	state, branch := workorder.StateRef(id), workorder.BranchRef(p.branch())
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
	p.jot()
	return nil
}

// ourTip reports whether a commit of the branch on the remote is ours: one that we
// sent, or part of what we send. The ledger may be older than our last push, on a disk that is full.
func (p *Publisher) ourTip(ctx context.Context, at string) bool {
	if slices.Contains(p.led.Tips, at) || len(p.led.Tips) == 0 {
		return len(p.led.Tips) > 0
	}
	in, err := p.outbox().IsAncestor(ctx, at, p.led.Tips[len(p.led.Tips)-1])
	return err == nil && in
}

// sending notes a state that may be on the remote from now on.
func (p *Publisher) sending(commit string) {
	p.led.Sent = append(p.led.Sent[max(0, len(p.led.Sent)-maxSent+1):], commit)
	p.pulse.sending(commit)
}

// unexpected reads a state that we did not expect. It is ours when a push of ours
// took its time, even one that ended our attempt.
func (p *Publisher) unexpected(ctx context.Context, sha string) error {
	var s *workorder.State
	var err error
	if slices.Contains(p.led.Sent, sha) {
		s, err = p.readState(ctx, p.outbox(), sha)
	} else {
		s, err = p.fetchState(ctx, "unexpected")
	}
	switch {
	case err != nil:
		return err
	case s != nil && p.ours(s):
		p.led.State = s
		return nil
	}
	return p.forfeit(p.lose(s))
}

// forfeit makes the ledger say that the lease is lost: rescue reads it.
func (p *Publisher) forfeit(by *workorder.Lease) error {
	if !p.led.Lost {
		p.led.Lost, p.led.State.Lease, p.led.Pending = true, by, nil
		p.jot()
	}
	return p.held(by)
}

// renewed renews the lease in a state, and what our attempt has used so far: a box
// that vanishes has been paid for, too.
func (p *Publisher) renewed(s *workorder.State) {
	s.Lease = p.lease()
	if a := s.Find(p.Order.AttemptID); a != nil && p.Usage != nil {
		a.Usage = p.Usage()
	}
}

// move adds what it takes to bring the branch to head: nothing where it is
// there or would be a branch without work, and what it replaces is kept.
func (p *Publisher) move(ctx context.Context, cs []change, head string) ([]change, error) {
	led, ref := p.led, workorder.BranchRef(p.branch())
	was := led.Refs[ref]
	if led.Foreign != "" || head == was {
		return cs, nil
	}
	if was == "" {
		none, err := p.outbox().IsAncestor(ctx, head, led.State.BaseSHA)
		if err != nil || none {
			return cs, err
		}
		return append(cs, change{ref, head}), nil
	}
	return p.moved(ctx, cs, change{ref, head})
}

// moved adds c, and a ref that keeps what c replaces, unless that is part of it.
func (p *Publisher) moved(ctx context.Context, cs []change, c change) ([]change, error) {
	led := p.led
	was := led.Refs[c.ref]
	if was == "" || was == c.sha || led.Moved != nil && led.Moved.OldHead == was {
		return append(cs, c), nil
	}
	if p.outbox().Run(ctx, "cat-file", "-e", was+"^{commit}") != nil {
		// The agent's own copy is gone for good; the remote has it still.
		fetch, cancel := context.WithTimeout(ctx, askTime)
		err := p.Refresh(fetch)
		cancel()
		if err != nil {
			return cs, err
		}
	}
	for _, in := range []string{c.sha, led.State.BaseSHA} {
		if reachable, err := p.outbox().IsAncestor(ctx, was, in); err != nil {
			return cs, err
		} else if reachable {
			return append(cs, c), nil
		}
	}
	if kept := (change{p.replacedRef(was), was}); !slices.Contains(cs, kept) {
		cs = append(cs, kept)
	}
	led.Replaced = append(slices.DeleteFunc(led.Replaced, func(s string) bool { return s == was }), was)
	for len(led.Replaced) > maxReplaced {
		cs = append(cs, change{p.replacedRef(led.Replaced[0]), ""})
		led.Replaced = led.Replaced[1:]
	}
	return append(cs, c), nil
}

// aside adds what is kept beside the branch. What can be said of nothing on the
// remote, or goes by a name that is taken, gets a name with its id: it never stands in the branch's way.
func (p *Publisher) aside(ctx context.Context, cs []change, c change) []change {
	taken := func(o change) bool { return o.ref == c.ref && o.sha != c.sha }
	if slices.Contains(cs, c) {
		return cs
	}
	if !slices.ContainsFunc(cs, taken) {
		if more, err := p.moved(ctx, cs, c); err == nil {
			return more
		}
	}
	return append(cs, change{workorder.KeptRef(p.Order.TaskID, "also-"+c.sha[:12]), c.sha})
}

// pushAll pushes everything in one step. Where that fails, for whatever reason, the
// branch, the checkpoint and the state go alone, and then the rest, each ref for
// itself: a *refusedError says what of the rest did not arrive. end is how the
// attempt ends, nil: it does not.
func (p *Publisher) pushAll(ctx context.Context, cs []change, cp *workorder.Checkpoint, end func(*workorder.State)) error {
	edit := p.renewed
	if end != nil {
		edit = end
	}
	var core, rest []change
	for _, c := range cs {
		switch {
		case strings.HasPrefix(c.ref, workorder.KeptRef(p.Order.TaskID, "")) && p.led.Refs[c.ref] != c.sha && !p.led.Moved.backs(c):
			rest = append(rest, c)
		default:
			core = append(core, c)
		}
	}
	if len(rest) == 0 || !p.alone {
		err := p.push(ctx, cs, cp, edit)
		p.alone = len(rest) > 0 && err != nil
		var held *HeldError
		if k := git.KindOf(err); !p.alone || errors.As(err, &held) || k == git.KindAuth || k == git.KindUnreachable || ctx.Err() != nil {
			return err
		}
	}
	if err := p.push(ctx, core, cp, p.renewed); err != nil {
		return err
	}
	if err := p.pushKept(ctx, rest); err != nil {
		return err
	}
	p.alone = false
	if end == nil {
		return nil
	}
	return p.push(ctx, nil, nil, end)
}

// pushKept pushes refs beside the branch, each for itself. Another box's are safe:
// each is moved only from where we believe it to be.
func (p *Publisher) pushKept(ctx context.Context, cs []change) error {
	cs = slices.DeleteFunc(cs, func(c change) bool { return p.led.Refs[c.ref] == c.sha })
	if len(cs) == 0 {
		return nil
	}
	p.led.Pending = &aim{State: p.led.State, Refs: map[string]string{}}
	for _, c := range cs {
		p.led.Pending.Refs[c.ref] = c.sha
	}
	p.jot()
	why, err := p.send(ctx, cs, false)
	if err == nil {
		p.adopt(p.led.Pending.Refs)
		p.led.Pending = nil
		p.jot()
		return nil
	}
	if rerr := p.reconcile(ctx); rerr != nil {
		return rerr
	}
	missing := map[string]string{}
	for _, c := range cs {
		if p.led.Refs[c.ref] != c.sha {
			if missing[c.ref] = why[c.ref]; why[c.ref] == "" {
				missing[c.ref] = err.Error()
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return &refusedError{why: missing, err: &git.Error{Verb: "push", Kind: git.KindRejected, Err: err}}
}

// maxReplaced bounds the commits that are kept though the agent rewrote them: an
// agent that amends its commit every minute leaves as many.
const maxReplaced = 20

func (p *Publisher) replacedRef(sha string) string {
	return workorder.KeptRef(p.Order.TaskID, "replaced-"+sha[:12])
}

// kept adds what an earlier step wanted to be kept with the next push.
func (p *Publisher) kept() (cs []change) {
	for _, ref := range slices.Sorted(maps.Keys(p.led.Keep)) {
		cs = append(cs, change{ref, p.led.Keep[ref]})
	}
	return cs
}

// said reports refs that a push brought to the remote.
func (p *Publisher) said(cs []change, start time.Time) {
	for _, c := range cs {
		switch {
		case c.sha == "" || p.led.Refs[c.ref] != c.sha:
		case c.ref == workorder.CheckpointRef(p.Order.TaskID):
			p.Emit(workorder.Event{Type: workorder.EventCheckpoint, Name: c.ref, Status: "ok", Text: c.sha, DurationMS: time.Since(start).Milliseconds()})
		default:
			p.Emit(workorder.Event{Type: workorder.EventPush, Name: c.ref, Status: "ok", Text: c.sha, DurationMS: time.Since(start).Milliseconds()})
		}
	}
}
