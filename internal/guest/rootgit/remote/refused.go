package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// refusal is a refused change, which is tried again at growing intervals.
type refusal struct {
	sha   string
	pause time.Duration
	until time.Time
}

const (
	refusedFirst = 2 * time.Second
	refusedMost  = 10 * time.Minute
)

func (p *Pusher) refuse(e *RefusedError, cs []Change) []Change {
	if p.refused == nil {
		p.refused = map[string]refusal{}
	}
	return slices.DeleteFunc(slices.Clone(cs), func(c Change) bool {
		if _, not := e.Why[c.Ref]; !not {
			return false
		}
		r := p.refused[c.Ref]
		r.sha, r.pause = c.SHA, min(max(2*r.pause, refusedFirst), refusedMost)
		r.until = time.Now().Add(r.pause)
		p.refused[c.Ref] = r
		return true
	})
}

// WasRefused reports whether the last change of a ref was refused.
func (p *Pusher) WasRefused(ref string) bool {
	_, was := p.refused[ref]
	return was
}

// ResetRefused makes the next push retry refused changes: the answer may differ by now.
func (p *Pusher) ResetRefused() { p.refused = nil }

// InBackoff reports whether a change was refused too recently to be retried.
func (p *Pusher) InBackoff(c Change) bool {
	r := p.refused[c.Ref]
	return c.SHA != "" && r.sha == c.SHA && time.Now().Before(r.until)
}

// PushAccepted pushes cs. If the remote refuses some refs, it pushes the others without them.
func (p *Pusher) PushAccepted(ctx context.Context, cs []Change, cp *workorder.Checkpoint, start time.Time) error {
	err := p.PushAll(ctx, cs, cp, nil)
	for ref, r := range p.refused {
		if p.Ledger.Refs[ref] == r.sha {
			delete(p.refused, ref)
		}
	}
	var refused *RefusedError
	if !errors.As(err, &refused) {
		if err == nil {
			p.ReportPushed(cs, start)
		}
		return err
	}
	rest := p.refuse(refused, cs)
	if _, not := p.refused[workorder.BranchRef(p.Ledger.Branch())]; not || p.Ledger.Foreign != "" {
		// The checkpoint keeps the work that the branch cannot take.
		rest = slices.DeleteFunc(rest, func(c Change) bool { return c.SHA == "" && c.Ref == workorder.CheckpointRef(p.Repos.Order.TaskID) })
	}
	if len(rest) == len(cs) {
		return err // the state itself was refused, because another client pushes now: retry later
	}
	if slices.ContainsFunc(rest, func(c Change) bool { return p.Ledger.Refs[c.Ref] != c.SHA }) {
		if again := p.PushAll(ctx, rest, cp, nil); again != nil {
			return errors.Join(err, again)
		}
	}
	p.ReportPushed(rest, start)
	return p.refusal(refused)
}

func (p *Pusher) refusal(e *RefusedError) error {
	name := p.Ledger.Branch()
	if p.Ledger.Foreign != "" {
		return &PartialPushError{
			fmt.Errorf("the remote %s has a %s with other commits (%s): it was left unchanged", p.Repos.Order.Repo, name, p.Ledger.Foreign),
		}
	}
	return &PartialPushError{fmt.Errorf("push to %s: %w", p.Repos.Order.Repo, e)}
}

// PartialPushError is a refusal that is retried later, if at all; the rest was pushed.
type PartialPushError struct{ err error }

func (e *PartialPushError) Error() string { return e.err.Error() }
func (e *PartialPushError) Unwrap() error { return e.err }
