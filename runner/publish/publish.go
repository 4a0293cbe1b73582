// Package publish brings the agent's work to the remote without trusting the
// agent's repository. It keeps two bare repositories of its own:
//
//	mirror   what the remote has; fetched with the credential, read by everybody
//	outbox   empty but for its alternates: the mirror's and the work tree's
//	         objects. Commit ids that git, run as the agent's user, reports are pushed from here.
//
// Hooks, configuration, filters and remotes of the work tree therefore cannot
// matter, and the credential never meets the agent's files. Only the task's own refs are pushed:
// its branch, and refs/sandbox-agent/<id>/* for what the agent committed elsewhere.
//
// Order of calls: Fetch, Checkout, then Commit, Land and Archive any number of
// times. Not safe for concurrent use, except Refresh.
package publish

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

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
	return git.Repo{Dir: p.Workspace, Tree: true, User: p.User, Env: p.identity()}
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
	t.Tree = false // it is none yet
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
	return p.connect(filepath.Join(p.Workspace, ".git/objects"))
}

// connect makes the outbox see the mirror's objects and the work tree's.
func (p *Publisher) connect(objects string) error {
	info := filepath.Join(p.outboxDir(), "objects/info")
	if err := os.MkdirAll(info, 0o755); err != nil {
		return fmt.Errorf("prepare outbox: %w", err)
	}
	alternates := p.mirrorDir() + "/objects\n" + objects + "\n"
	if err := os.WriteFile(filepath.Join(info, "alternates"), []byte(alternates), 0o644); err != nil {
		return fmt.Errorf("prepare outbox: %w", err)
	}
	return nil
}

// reconnect follows the work tree's objects to where the agent may have moved
// them (a .git that is a file, a separate git folder).
func (p *Publisher) reconnect(ctx context.Context) error {
	out, err := p.tree().Output(ctx, "rev-parse", "--path-format=absolute", "--git-path", "objects")
	if err != nil {
		return err
	}
	path := strings.TrimSuffix(string(out), "\n")
	if !filepath.IsAbs(path) || strings.ContainsAny(path, "\n\"") {
		return fmt.Errorf("the work tree's objects lie at %q", path)
	}
	return p.connect(path)
}
