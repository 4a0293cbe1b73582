// Package remote changes refs of the remote by compare and swap, and queries them.
package remote

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/ledger"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/repos"
	"github.com/sandbox-agent/sandbox-agent/internal/pattern"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Remote changes the remote's refs by compare and swap with the ledger's values.
type Remote struct {
	repos *repos.Repos
	book  *ledger.Book
	scan  *scanner // nil if pushes are not searched for secrets
}

// New returns a Remote.
func New(repos *repos.Repos, book *ledger.Book) *Remote {
	return &Remote{repos: repos, book: book}
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

// Whole reports whether the remote refused every ref of a push of n, so that a rule about one of them may have refused the others.
func (e *RefusedError) Whole(n int) bool {
	for _, why := range e.Why {
		if !strings.HasPrefix(why, "[remote rejected]") {
			return false
		}
	}
	return n > 1 && len(e.Why) == n
}

func (e *RefusedError) Unwrap() error { return e.Err }

// Send pushes changes over one connection, each only if the remote has the
// ledger's value. together means all or none.
func (r *Remote) Send(ctx context.Context, cs []Change, together bool) (refused map[string]string, err error) {
	if refused, err = r.refusedSecrets(ctx, cs); err != nil {
		return refused, err
	}
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
	return refused, &RefusedError{Why: refused, Said: r.said(err), Err: &git.Error{Verb: "push", Kind: git.KindRejected, Err: err}}
}

// SendEach is Send of changes that do not belong together: if the remote refuses all of them, each goes alone.
func (r *Remote) SendEach(ctx context.Context, cs []Change) (refused map[string]string, err error) {
	refused, err = r.Send(ctx, cs, false)
	whole, ok := errors.AsType[*RefusedError](err)
	if !ok || !whole.Whole(len(cs)) {
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
	// maxSaid and maxSaidLines bound a remote's message: GitHub's text about a rule has some 20 lines.
	maxSaid      = 2000
	maxSaidLines = 30
)

// userInfo matches the credential in a URL.
var userInfo = pattern.New(`://[^/\s@]+@`)

// said returns the remote's output during a push, which git repeats line by line. It may contain anything,
// for example a rejected credential.
func (r *Remote) said(err error) string {
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
	return text.Cut(r.repos.Mask(userInfo.ReplaceAllString(strings.Join(lines, " | "), "://")), maxSaid)
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
