package push

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// refusal is a change that the remote refused. A hook may fail temporarily:
// the change is tried again, at growing intervals.
type refusal struct {
	sha   string
	pause time.Duration
	until time.Time
}

const (
	refusedFirst = 2 * time.Second
	refusedMost  = 10 * time.Minute
)

// refuse records the refused changes of cs and returns the others.
func (p *Pusher) refuse(e *remote.RefusedError, cs []remote.Change) []remote.Change {
	if p.refused == nil {
		p.refused = map[string]refusal{}
	}
	return slices.DeleteFunc(slices.Clone(cs), func(c remote.Change) bool {
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

// Forgive makes the next push retry refused changes: the answer may differ by now.
func (p *Pusher) Forgive() { p.refused = nil }

// Waits reports whether a change was refused too recently to be retried.
func (p *Pusher) Waits(c remote.Change) bool {
	r := p.refused[c.Ref]
	return c.SHA != "" && r.sha == c.SHA && time.Now().Before(r.until)
}

// Rest pushes cs. If the remote refuses some refs, it pushes the others without them.
func (p *Pusher) Rest(ctx context.Context, cs []remote.Change, cp *workorder.Checkpoint, start time.Time) error {
	err := p.All(ctx, cs, cp, nil)
	for ref, r := range p.refused {
		if p.book.Refs[ref] == r.sha {
			delete(p.refused, ref)
		}
	}
	var refused *remote.RefusedError
	if !errors.As(err, &refused) {
		if err == nil {
			p.Said(cs, start)
		}
		return err
	}
	rest := p.refuse(refused, cs)
	if _, not := p.refused[workorder.BranchRef(p.book.Branch())]; not || p.book.Foreign != "" {
		// The checkpoint keeps the work that the branch cannot take.
		rest = slices.DeleteFunc(rest, func(c remote.Change) bool {
			return c.SHA == "" && c.Ref == workorder.CheckpointRef(p.repos.Order.TaskID)
		})
	}
	if len(rest) == len(cs) {
		return err // the state itself was refused, because another client pushes now: retry later
	}
	if slices.ContainsFunc(rest, func(c remote.Change) bool { return p.book.Refs[c.Ref] != c.SHA }) {
		if again := p.All(ctx, rest, cp, nil); again != nil {
			return errors.Join(err, again)
		}
	}
	p.Said(rest, start)
	return p.refusal(refused)
}

// refusal describes a refused branch for the user.
func (p *Pusher) refusal(e *remote.RefusedError) error {
	name := p.book.Branch()
	if p.book.Foreign != "" {
		return &RefusedError{
			fmt.Errorf("the remote %s has a %s with other commits (%s): it was left unchanged", p.repos.Order.Repo, name, p.book.Foreign),
		}
	}
	return &RefusedError{fmt.Errorf("push to %s: %w", p.repos.Order.Repo, e)}
}

// RefusedError is a refusal that is retried later, if at all; the rest was pushed.
type RefusedError struct{ err error }

func (e *RefusedError) Error() string { return e.err.Error() }
func (e *RefusedError) Unwrap() error { return e.err }
