// Package publish brings the agent's work to the remote without trusting the
// agent's repository. It keeps two bare repositories of its own:
//
//	mirror   what the remote has; fetched with the credential, read by everybody
//	outbox   empty but for its alternates: the mirror's and the work tree's
//	         objects. Commit ids that git, run as the agent's user, reports are pushed from here.
//
// Hooks, configuration, filters and remotes of the work tree therefore cannot
// matter, and the credential never meets the agent's files. Only the task's own branch can be pushed.
//
// Order of calls: Fetch, Checkout, then Commit and Land any number of times. Not safe for concurrent use.
package publish

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Publisher moves commits between the remote, our repositories and the work tree.
type Publisher struct {
	Order     *workorder.Order
	Dir       string           // root of our repositories; readable by the agent, writable by us only
	Workspace string           // the work tree
	User      *proc.Credential // the agent's user; nil: the caller
	Home      string           // the agent's home
	Auth      *git.Auth        // nil: the remote needs none
	Emit      func(workorder.Event)
}

// Bounds of single operations. The whole landing is bounded by the caller's context.
const (
	// pushTries and pushPause: a remote that restarts is back within seconds;
	// one that is really down must not eat the time the result needs.
	pushTries = 3
	pushPause = 700 * time.Millisecond
	// maxCommits bounds the list in the result.
	maxCommits = 200
)

func (p *Publisher) mirrorDir() string { return filepath.Join(p.Dir, "mirror.git") }
func (p *Publisher) outboxDir() string { return filepath.Join(p.Dir, "outbox.git") }

// Mirror is our copy of the remote, without credential.
func (p *Publisher) Mirror() git.Repo { return git.Repo{Dir: p.mirrorDir(), Bare: true} }

func (p *Publisher) authed(r git.Repo) git.Repo {
	r.Auth = p.Auth
	return r
}

// tree is the agent's work tree, used as the agent.
func (p *Publisher) tree() git.Repo {
	return git.Repo{Dir: p.Workspace, User: p.User, Env: p.identity()}
}

func (p *Publisher) identity() []string {
	a := p.Order.Author
	return []string{
		"HOME=" + p.Home,
		"GIT_AUTHOR_NAME=" + a.Name, "GIT_AUTHOR_EMAIL=" + a.Email,
		"GIT_COMMITTER_NAME=" + a.Name, "GIT_COMMITTER_EMAIL=" + a.Email,
	}
}

// Fetch brings the remote's branches and tags into the mirror and returns the
// base branch (asked of the remote when the order names none) and its commit.
// A base branch that the remote does not have is an error of kind git.KindNotFound.
func (p *Publisher) Fetch(ctx context.Context) (base, sha string, err error) {
	for _, dir := range []string{p.mirrorDir(), p.outboxDir()} {
		if err := initBare(ctx, dir); err != nil {
			return "", "", err
		}
	}
	if err := p.Refresh(ctx); err != nil {
		return "", "", err
	}
	base = p.Order.Branch
	if base == "" {
		if base, err = p.authed(p.Mirror()).DefaultBranch(ctx, p.Order.CloneURL); err != nil {
			return "", "", err
		}
		if base == "" {
			return "", "", &git.Error{Verb: "clone", Kind: git.KindNotFound, Err: fmt.Errorf("the remote %s has no default branch (is it empty?); push a first commit or name `branch`", p.Order.Repo)}
		}
	}
	if sha, err = p.Mirror().Resolve(ctx, "refs/heads/"+base); err != nil {
		return "", "", err
	}
	if sha == "" {
		return "", "", &git.Error{Verb: "clone", Kind: git.KindNotFound, Err: fmt.Errorf("the remote %s has no branch %q", p.Order.Repo, base)}
	}
	return base, sha, nil
}

// Refresh updates the mirror from the remote. It is safe to call while others read the mirror.
func (p *Publisher) Refresh(ctx context.Context) error {
	return p.authed(p.Mirror()).Run(ctx, "fetch", "--quiet", "--prune", "--no-write-fetch-head", "--no-auto-maintenance",
		"--", p.Order.CloneURL, "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
}

func initBare(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make repository: %w", err)
	}
	return git.Repo{Dir: dir, Bare: true}.Run(ctx, "init", "--quiet", "--bare", "--template=", "--", dir)
}

// Checkout clones the mirror into the (empty) work tree as the agent's user, on
// a new task branch at base. The objects are copied: what the agent does to
// its own cannot reach ours.
func (p *Publisher) Checkout(ctx context.Context, base, sha string) error {
	t := p.tree()
	if err := t.Run(ctx, "clone", "--quiet", "--no-hardlinks", "--no-checkout", "--template=", "--branch", base,
		"--", p.mirrorDir(), p.Workspace); err != nil {
		return err
	}
	// The mirror is an implementation detail; the agent sees the real remote.
	if err := t.Run(ctx, "remote", "set-url", "origin", p.Order.CloneURL); err != nil {
		return err
	}
	if err := t.Run(ctx, "checkout", "--quiet", "--no-track", "-B", p.Order.TargetBranch, sha); err != nil {
		return err
	}
	alternates := p.mirrorDir() + "/objects\n" + filepath.Join(p.Workspace, ".git/objects") + "\n"
	info := filepath.Join(p.outboxDir(), "objects/info")
	if err := os.MkdirAll(info, 0o755); err != nil {
		return fmt.Errorf("prepare outbox: %w", err)
	}
	if err := os.WriteFile(filepath.Join(info, "alternates"), []byte(alternates), 0o644); err != nil {
		return fmt.Errorf("prepare outbox: %w", err)
	}
	return nil
}

// Landed says what a landing did.
type Landed struct {
	Head    string // commit that is, or should be, on the branch; equals base when there is nothing
	Commits []workorder.Commit
	Pushed  bool
	// Bundle is the file that holds the commits because they could not be pushed.
	Bundle   string
	Warnings []string
	// Err is why the work is not on the remote; Bundle may still hold it.
	Err error
}

// Land pushes the task's branch and writes a bundle to bundlePath when it
// cannot be pushed. It may be called again: a branch that is already there is not pushed twice.
func (p *Publisher) Land(ctx context.Context, base, bundlePath string) Landed {
	var l Landed
	head, warning, err := p.head(ctx, base)
	if warning != "" {
		l.Warnings = append(l.Warnings, warning)
	}
	if err != nil {
		l.Err = fmt.Errorf("read the work tree's commits: %w", err)
		return l
	}
	l.Head = head
	if head == base {
		return l
	}
	outbox := git.Repo{Dir: p.outboxDir(), Bare: true}
	cs, err := outbox.Log(ctx, base, head, maxCommits)
	if err != nil {
		l.Err = fmt.Errorf("read the work tree's commits: %w", err)
		return l
	}
	for _, c := range cs {
		l.Commits = append(l.Commits, workorder.Commit(c))
	}
	if err := p.push(ctx, outbox, head); err != nil {
		l.Err = err
		if berr := p.bundle(ctx, outbox, base, head, bundlePath); berr != nil {
			l.Err = errors.Join(l.Err, berr)
		} else {
			l.Bundle = bundlePath
		}
		return l
	}
	l.Pushed = true
	return l
}

// Commit commits what the agent left uncommitted, untracked files that are not
// ignored included, as the agent's user and with hooks off. Nothing to commit is no error.
func (p *Publisher) Commit(ctx context.Context, message string) error {
	t := p.tree()
	dirty, err := t.Dirty(ctx)
	if err != nil || !dirty {
		return err
	}
	p.unlock(ctx)
	if err := t.Run(ctx, "add", "--all"); err != nil {
		return err
	}
	err = t.Run(ctx, "commit", "--quiet", "--no-verify", "--no-gpg-sign", "--message", message)
	if err == nil {
		return nil
	}
	// Only ignored submodule dirt: nothing to commit is no failure.
	if again, derr := t.Dirty(ctx); derr == nil && !again {
		return nil
	}
	return err
}

// unlock removes the lock files of a git that was killed with the agent: of the
// index, of HEAD, of a branch. The agent is gone, so nobody holds them; each would block the commit. It is
// done as the agent, whose folder may lead anywhere. A failure shows in the commit.
func (p *Publisher) unlock(ctx context.Context) {
	_ = proc.Run(ctx, proc.Spec{
		Argv: []string{"find", ".git", "-path", ".git/objects", "-prune", "-o", "-name", "*.lock", "-type", "f", "-exec", "rm", "-f", "{}", "+"},
		Dir:  p.Workspace, User: p.User,
	})
}

// head decides which commit is the work: the task branch's or HEAD's, whichever
// contains the other. The agent may have switched branches; where the two have
// parted, the task branch is what was asked for.
func (p *Publisher) head(ctx context.Context, base string) (sha, warning string, err error) {
	t := p.tree()
	at, err := t.Head(ctx)
	if err != nil {
		return "", "", err
	}
	branch, err := t.Resolve(ctx, "refs/heads/"+p.Order.TargetBranch)
	if err != nil {
		return "", "", err
	}
	switch {
	case at == "" && branch == "":
		return base, "the work tree has no commit any more; nothing is pushed", nil
	case at == "" || at == branch:
		return branch, "", nil
	case branch == "":
		return at, fmt.Sprintf("the agent removed the branch %s; its HEAD is pushed under that name", p.Order.TargetBranch), nil
	}
	if inHead, err := t.IsAncestor(ctx, branch, at); err != nil || inHead {
		return at, "", err
	}
	if inBranch, err := t.IsAncestor(ctx, at, branch); err != nil || inBranch {
		return branch, "", err
	}
	return branch, fmt.Sprintf("the agent left HEAD at %.12s, which is not part of %s; the branch is pushed, HEAD is not", at, p.Order.TargetBranch), nil
}

func (p *Publisher) push(ctx context.Context, outbox git.Repo, head string) error {
	ref := "refs/heads/" + p.Order.TargetBranch
	var err error
	for try := range pushTries {
		if try > 0 {
			select {
			case <-ctx.Done():
				return err
			case <-time.After(pushPause):
			}
		}
		err = p.authed(outbox).Run(ctx, "push", "--quiet", "--no-verify", "--", p.Order.CloneURL, head+":"+ref)
		if err == nil {
			p.Emit(workorder.Event{Type: workorder.EventPush, Name: p.Order.TargetBranch, Status: "ok", Text: head})
			return nil
		}
		p.Emit(workorder.Event{Type: workorder.EventPush, Name: p.Order.TargetBranch, Status: "error", Text: err.Error()})
		if k := git.KindOf(err); k == git.KindAuth || k == git.KindRejected || ctx.Err() != nil {
			break // trying again cannot help
		}
	}
	return fmt.Errorf("push %s to %s: %w", p.Order.TargetBranch, p.Order.Repo, err)
}

// bundle keeps what could not be pushed as a file that `git fetch` reads.
func (p *Publisher) bundle(ctx context.Context, outbox git.Repo, base, head, path string) error {
	// The push may have used up the deadline; the bundle is local and short.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bundleTime)
	defer cancel()
	ref := "refs/heads/" + p.Order.TargetBranch
	if err := outbox.Run(ctx, "update-ref", ref, head); err != nil {
		return fmt.Errorf("keep the work as a bundle: %w", err)
	}
	if err := outbox.Run(ctx, "bundle", "create", "--quiet", path, ref, "^"+base); err != nil {
		return fmt.Errorf("keep the work as a bundle: %w", err)
	}
	return nil
}

// bundleTime is enough to pack some hundred megabytes.
const bundleTime = 20 * time.Second

// Diff is the change of head against base as text, for a human, at most limit bytes.
func (p *Publisher) Diff(ctx context.Context, base, head string, limit int) (string, error) {
	out, err := git.Repo{Dir: p.outboxDir(), Bare: true}.Output(ctx, "diff", "--stat", "--patch", "--no-ext-diff", "--no-textconv", base, head, "--")
	if len(out) > limit {
		out = append(out[:limit], "\n[…]\n"...)
	}
	return strings.ToValidUTF8(string(out), "\uFFFD"), err
}
