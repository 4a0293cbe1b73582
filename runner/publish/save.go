package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// saveTime bounds one save's push, however large: longer means that it is stuck.
const saveTime = 10 * time.Minute

// saved is what one save did.
type saved struct {
	tree, head string
	// snapErr and pushErr are what went wrong on the way; each leaves the other's part done.
	snapErr, pushErr error
	pushed           bool // something reached the remote
}

// save brings commits and, with checkpoint, uncommitted work to the remote, in one
// connection. Where nothing changed there is no connection.
func (p *Publisher) save(ctx context.Context, checkpoint bool) (s saved) {
	if err := p.op.take(ctx); err != nil {
		return saved{snapErr: err}
	}
	defer p.op.give()
	start := time.Now()
	local, cancel := context.WithTimeout(ctx, snapTime)
	defer cancel()
	if p.led.Hold != "" {
		return p.saveHeld(ctx, local, checkpoint, start)
	}
	p.smallFirst(ctx)
	cs := p.kept()
	var cp *workorder.Checkpoint
	at, err := p.commits(local, &s, &cs)
	var elsewhere error
	if err == nil {
		cs, elsewhere = p.beside(local, cs, s.head)
	}
	if err == nil && checkpoint {
		cp, err = p.checkpoint(local, at, &s, &cs)
	} else if err == nil && p.led.Committed && p.onBranch(at, s.head) {
		cs = append(cs, change{workorder.CheckpointRef(p.Order.TaskID), ""})
	}
	s.snapErr = errors.Join(err, elsewhere)
	cs = slices.DeleteFunc(cs, func(c change) bool {
		return p.led.Refs[c.ref] == c.sha || p.waits(c)
	})
	if len(cs) == 0 {
		return s
	}
	ctx, stop := context.WithTimeout(ctx, saveTime)
	defer stop()
	s.pushErr = p.pushRest(ctx, cs, cp, start)
	s.pushed = s.pushErr == nil
	return s
}

// commits adds what moves the branch to where the agent has it.
func (p *Publisher) commits(ctx context.Context, s *saved, cs *[]change) (at string, err error) {
	if err := p.reconnect(ctx); err != nil {
		return "", err
	}
	t, err := p.tip(ctx, p.led.State.BaseSHA)
	if err != nil {
		return "", err
	}
	s.head = t.head
	*cs, err = p.move(ctx, *cs, t.head)
	if t.at == "" {
		t.at = t.head // an unborn branch
	}
	return t.at, err
}

// beside adds the agent's commits on branches and tags of its own, and its stash. A HEAD
// on no branch is the checkpoint's parent and needs no ref.
func (p *Publisher) beside(ctx context.Context, cs []change, head string) ([]change, error) {
	others, err := p.others(ctx, p.led.State.BaseSHA, head, head)
	for _, o := range others[:min(len(others), maxRefs)] {
		cs = p.aside(ctx, cs, change{workorder.KeptRef(p.Order.TaskID, o.ref), o.sha})
	}
	return cs, err
}

// checkpoint adds a snapshot of the work tree, or takes away one that is not needed any more:
// the branch as it is about to be has all of it.
func (p *Publisher) checkpoint(ctx context.Context, at string, s *saved, cs *[]change) (*workorder.Checkpoint, error) {
	ref := workorder.CheckpointRef(p.Order.TaskID)
	tree, err := p.snapshot(ctx, at)
	if tree == "" {
		return nil, err
	}
	s.tree = tree
	if p.led.Committed { // it was, and the agent went on
		p.led.Committed = false
	}
	if p.onBranch(at, s.head) {
		out, terr := p.outbox().Output(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", at+"^{tree}")
		if terr != nil {
			return nil, terr
		}
		if strings.TrimSpace(string(out)) == tree {
			*cs = append(*cs, change{ref, ""})
			return nil, err
		}
	}
	if last := p.last; last.commit != "" && last.tree == tree && last.head == at {
		*cs = append(*cs, change{ref, last.commit}) // dropped again where it is on the remote
		return &workorder.Checkpoint{SHA: last.commit, Tree: tree, At: last.made}, err
	}
	commit, cerr := p.commitTree(ctx, tree, at)
	if cerr != nil {
		return nil, cerr
	}
	p.last = snapped{head: at, tree: tree, commit: commit, made: time.Now().UTC().Truncate(time.Second)}
	*cs = append(*cs, change{ref, commit})
	return &workorder.Checkpoint{SHA: commit, Tree: tree, At: p.last.made}, err
}

// onBranch reports whether what HEAD has is what the branch gets.
func (p *Publisher) onBranch(at, head string) bool {
	_, refused := p.refused[workorder.BranchRef(p.branch())]
	return at == head && p.led.Foreign == "" && !refused
}

// snapped is the last snapshot that became a commit.
type snapped struct {
	head, tree, commit string
	made               time.Time
}

// refusal is a change that the remote did not take. A hook may have a bad moment:
// it is tried again, ever more rarely.
type refusal struct {
	sha   string
	pause time.Duration
	until time.Time
}

const (
	refusedFirst = 2 * time.Second
	refusedMost  = 10 * time.Minute
)

// refuse notes what was refused of cs and returns the rest of it.
func (p *Publisher) refuse(e *refusedError, cs []change) []change {
	if p.refused == nil {
		p.refused = map[string]refusal{}
	}
	return slices.DeleteFunc(slices.Clone(cs), func(c change) bool {
		if _, not := e.why[c.ref]; !not {
			return false
		}
		r := p.refused[c.ref]
		r.sha, r.pause = c.sha, min(max(2*r.pause, refusedFirst), refusedMost)
		r.until = time.Now().Add(r.pause)
		p.refused[c.ref] = r
		return true
	})
}

// waits reports whether a change was refused so lately that it is not tried again.
func (p *Publisher) waits(c change) bool {
	r := p.refused[c.ref]
	return c.sha != "" && r.sha == c.sha && time.Now().Before(r.until)
}

// pushRest pushes, and where the remote refuses some refs, the others without them.
func (p *Publisher) pushRest(ctx context.Context, cs []change, cp *workorder.Checkpoint, start time.Time) error {
	err := p.pushAll(ctx, cs, cp, nil)
	for ref, r := range p.refused {
		if p.led.Refs[ref] == r.sha {
			delete(p.refused, ref)
		}
	}
	var refused *refusedError
	if !errors.As(err, &refused) {
		if err == nil {
			p.said(cs, start)
		}
		return err
	}
	rest := p.refuse(refused, cs)
	if _, not := p.refused[workorder.BranchRef(p.branch())]; not || p.led.Foreign != "" {
		// What the branch cannot take stays in the checkpoint.
		rest = slices.DeleteFunc(rest, func(c change) bool { return c.sha == "" && c.ref == workorder.CheckpointRef(p.Order.TaskID) })
	}
	if len(rest) == len(cs) {
		return err // the state itself, by somebody who is at it now: the next try sees clearer
	}
	if slices.ContainsFunc(rest, func(c change) bool { return p.led.Refs[c.ref] != c.sha }) {
		if again := p.pushAll(ctx, rest, cp, nil); again != nil {
			return errors.Join(err, again)
		}
	}
	p.said(rest, start)
	return p.refusal(refused)
}

// refusal is a refused branch in words for people.
func (p *Publisher) refusal(e *refusedError) error {
	name := p.branch()
	if p.led.Foreign != "" {
		return &foreignError{fmt.Errorf("the remote %s has a %s with other commits (%s): it was left as it is", p.Order.Repo, name, p.led.Foreign)}
	}
	return &foreignError{fmt.Errorf("push to %s: %w", p.Order.Repo, e)}
}

// foreignError is a refusal that is tried again in its own time, if at all; the rest was pushed.
type foreignError struct{ err error }

func (e *foreignError) Error() string { return e.err.Error() }
func (e *foreignError) Unwrap() error { return e.err }
