// Package remote changes refs of the remote by compare and swap, and asks for them.
package remote

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/ledger"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/repos"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Remote changes the remote's refs by compare and swap with the ledger's values.
type Remote struct {
	repos *repos.Repos
	book  *ledger.Book
}

// New returns a Remote.
func New(repos *repos.Repos, book *ledger.Book) *Remote {
	return &Remote{repos: repos, book: book}
}

// Change is a new value for one ref of the remote; an empty sha deletes it.
type Change struct{ Ref, SHA string }

// RefusedError means that the remote, or a lease, refused some refs of a push.
type RefusedError struct {
	Why map[string]string // by ref
	Err error
}

func (e *RefusedError) Error() string {
	var all []string
	for _, ref := range slices.Sorted(maps.Keys(e.Why)) {
		all = append(all, ref+" "+e.Why[ref])
	}
	return "the remote refused " + strings.Join(all, ", ")
}

func (e *RefusedError) Unwrap() error { return e.Err }

// Send pushes changes over one connection, each only if the remote has the
// ledger's value. together means all or none.
func (r *Remote) Send(ctx context.Context, cs []Change, together bool) (refused map[string]string, err error) {
	args := []string{"push", "--porcelain", "--no-verify"}
	if together {
		args = append(args, "--atomic")
	}
	for _, c := range cs {
		args = append(args, "--force-with-lease="+c.Ref+":"+r.book.Refs[c.Ref])
	}
	args = append(args, "--", r.repos.Order.CloneURL)
	for _, c := range cs {
		args = append(args, c.SHA+":"+c.Ref)
	}
	out, err := r.repos.Authed(r.repos.Outbox()).Output(ctx, args...)
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
	return refused, &RefusedError{Why: refused, Err: &git.Error{Verb: "push", Kind: git.KindRejected, Err: err}}
}

// FetchState reads the remote's current state, through a ref of the mirror
// that is used only here. The state is nil if it exists but cannot be read.
func (r *Remote) FetchState(ctx context.Context, name string) (*workorder.State, error) {
	ctx, cancel := context.WithTimeout(ctx, repos.AskTime)
	defer cancel()
	ref := "refs/seen/" + name
	if err := r.repos.Authed(r.repos.Mirror()).Run(ctx, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance",
		"--", r.repos.Order.CloneURL, "+"+workorder.StateRef(r.repos.Order.TaskID)+":"+ref); err != nil {
		return nil, err
	}
	s, err := r.book.ReadState(ctx, r.repos.Mirror(), ref)
	if err != nil && ctx.Err() == nil {
		return nil, nil
	}
	return s, err
}
