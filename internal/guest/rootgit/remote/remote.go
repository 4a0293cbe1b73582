// Package remote is root's side of the task's remote: repositories, ledger, pushes by compare and swap, heartbeat and the agent's refs.
package remote

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Remote changes the remote's refs by compare and swap with the ledger's values. Its parts share it.
type Remote struct {
	Repos     *Repos
	Ledger    *Ledger
	Heartbeat *Heartbeat
	Pusher    *Pusher
	AgentRefs *AgentRefs
	Stop      *StopState

	scan *scanner // nil if pushes are not searched for secrets
}

// New returns a Remote that has read nothing yet.
func New(repos *Repos) *Remote {
	r := &Remote{Repos: repos, Ledger: &Ledger{repos: repos}, Stop: &StopState{}}
	r.Heartbeat, r.Pusher, r.AgentRefs = &Heartbeat{Remote: r}, &Pusher{Remote: r}, &AgentRefs{Remote: r}
	return r
}

// Change is a new value for one ref of the remote; an empty sha deletes it.
type Change struct {
	Ref, SHA string
	Name     string // the agent's name of a ref next to the branch, of which Ref may have a part; else empty
}

// RefusedError means that the remote, or a lease, refused some refs of a push.
type RefusedError struct {
	Why map[string]string // by ref
	// Said is the remote's output about it, in one line; empty if it printed nothing.
	Said string
	Err  error
}

func (e *RefusedError) Error() string {
	var all []string
	for _, ref := range slices.Sorted(maps.Keys(e.Why)) {
		all = append(all, ref+" "+e.Why[ref])
	}
	if secret := SecretIn(e.Err); secret != nil {
		return secret.Error()
	}
	said := ""
	if e.Said != "" {
		said = "; its message: " + e.Said
	}
	return "the remote refused " + strings.Join(all, ", ") + said
}

// whole reports whether the remote refused every ref of a push of n, so that a rule about one of them may have refused the others.
func (e *RefusedError) whole(n int) bool {
	for _, why := range e.Why {
		if !strings.HasPrefix(why, "[remote rejected]") {
			return false
		}
	}
	return n > 1 && len(e.Why) == n
}

func (e *RefusedError) Unwrap() error { return e.Err }

// Send pushes changes over one connection, each only if the remote has the ledger's value. together: all or none.
func (r *Remote) Send(ctx context.Context, cs []Change, together bool) (refused map[string]string, err error) {
	if refused, err = r.refusedSecrets(ctx, cs); err != nil {
		return refused, err
	}
	args := []string{"push", "--porcelain", "--no-verify"}
	if together {
		args = append(args, "--atomic")
	}
	for _, c := range cs {
		args = append(args, "--force-with-lease="+c.Ref+":"+r.Ledger.Refs[c.Ref])
	}
	args = append(args, "--", r.Repos.Order.CloneURL)
	for _, c := range cs {
		args = append(args, c.SHA+":"+c.Ref)
	}
	out, err := r.Repos.authed(r.Repos.Outbox()).Output(ctx, args...)
	if err == nil {
		return nil, nil
	}
	refused = map[string]string{}
	for line := range strings.Lines(string(out)) {
		// "!<tab>from:to<tab>[remote rejected] (reason)"; the reason "atomic" means that another ref was refused.
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
	return refused, &RefusedError{Why: refused, Said: r.masked(err), Err: &git.Error{Verb: "push", Kind: git.KindRejected, Err: err}}
}

// sendEach is Send of changes that do not belong together: if the remote refuses all of them, each goes alone.
func (r *Remote) sendEach(ctx context.Context, cs []Change) (refused map[string]string, err error) {
	refused, err = r.Send(ctx, cs, false)
	whole, ok := errors.AsType[*RefusedError](err)
	if !ok || !whole.whole(len(cs)) {
		return refused, err
	}
	all := &RefusedError{Why: map[string]string{}, Err: whole.Err}
	for _, c := range cs {
		_, err := r.Send(ctx, []Change{c}, false)
		one, ok := errors.AsType[*RefusedError](err)
		switch {
		case ok:
			maps.Copy(all.Why, one.Why)
			if !strings.Contains(all.Said, one.Said) {
				all.Said = strings.TrimPrefix(all.Said+"; "+one.Said, "; ")
			}
		case err != nil:
			return all.Why, err
		}
	}
	if len(all.Why) == 0 {
		return nil, nil
	}
	return all.Why, all
}

const (
	// maxSaid and maxSaidLines bound a remote's message.
	maxSaid      = 2000
	maxSaidLines = 30
)

var userInfo = lazyregexp.New(`://[^/\s@]+@`)

// masked returns the remote's output during a push, which may contain a rejected credential.
func (r *Remote) masked(err error) string {
	ee, ok := errors.AsType[*proc.ExitError](err)
	if !ok {
		return ""
	}
	var lines []string
	for line := range strings.Lines(ee.Stderr) {
		after, is := strings.CutPrefix(line, "remote:")
		if line = text.Words(text.Printable(text.Clean(after))); is && strings.ContainsFunc(line, unicode.IsLetter) && len(lines) < maxSaidLines {
			lines = append(lines, line)
		}
	}
	return text.Cut(r.Repos.Mask(userInfo.ReplaceAllString(strings.Join(lines, " | "), "://")), maxSaid)
}

// FetchState reads the remote's state through a ref of the mirror. The state is nil if it cannot be read.
func (r *Remote) FetchState(ctx context.Context, name string) (*workorder.State, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	ref := "refs/seen/" + name
	if err := r.Repos.fetch(ctx, workorder.StateRef(r.Repos.Order.TaskID), ref); err != nil {
		return nil, err
	}
	s, err := r.Ledger.ReadState(ctx, r.Repos.Mirror(), ref)
	if err != nil && ctx.Err() == nil {
		return nil, nil
	}
	return s, err
}
