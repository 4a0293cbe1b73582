// Package publish brings the agent's work to the remote without trusting the
// agent's repository. It keeps two bare repositories of its own:
//
//	mirror   what the remote has; fetched with the credential, read by everybody
//	outbox   empty but for its alternates: the mirror's and the work tree's
//	         objects. Commit ids that git, run as the agent's user, reports are pushed from here.
//
// Hooks, configuration, filters and remotes of the work tree therefore cannot
// matter, and the credential never meets the agent's files. Only the task's own refs are pushed:
// its branch, and refs/sandbox-agent/<id>/*: the task's state with the lease, the
// checkpoint of what is uncommitted, and what the agent committed elsewhere or rewrote.
//
// Order of calls: Fetch, Claim, Checkout, Unarchive, Neutralize, Baseline; then Keep while the agent works, and
// after Keeper.Stop Commit, Land and Archive any number of times; Release at
// the end. Commit, Land, Archive and Release also work in another process with
// the same Dir. From Claim to Release a goroutine tells others that we live. Not safe for
// concurrent use; between Keeper.Begin and Keeper.Stop the Keeper is the one user, except for Refresh, Baseline, Neutralize and Unfinished, which
// take turns with it, and Mirror and Objects.
package publish

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Publisher moves commits between the remote, our repositories and the work tree.
type Publisher struct {
	Order     *workorder.Order
	Dir       string           // root of our repositories; readable by the agent, writable by us only
	BeforeDir string           // where Before is kept, outside of Dir on its file system; "": it is not
	Workspace string           // the work tree
	User      *proc.Credential // the agent's user; nil: the caller
	Home      string           // the agent's home
	Auth      *git.Auth        // nil: the remote needs none
	Emit      func(workorder.Event)
	// Bundle is a file of commits that an earlier attempt could not push; "": none.
	Bundle string
	// Usage is what the agent has used so far; nil: it is not known.
	Usage func() workorder.Usage
	// Clean masks secrets in what the task's state tells; nil: there are none.
	Clean func(string) string
	// Answered: the feedback that the state has was answered; it goes with the end of the attempt.
	Answered bool
	// Later are the numbers of those items that this attempt had no room for: they stay.
	Later []int

	// op is held by whoever uses our index or the ledger while a Keeper may.
	op    turn
	pulse pulse
	led   *ledger
	// incarnation is what makes this box another holder of the lease than one that was given the same order.
	incarnation string
	synced      string // the agent's index as it was when ours had all its paths
	last        snapped
	base        map[string]bool // the submodules of the task's base commit
	roots       map[string]bool // the repositories inside the work tree, as last seen
	large       map[string]bool // files too large for a checkpoint that were named
	quick       bool            // the last whole snapshot took no time to speak of
	files       atomic.Int64    // see Hurry
	firstDone   bool            // see smallFirst
	// refused are the changes that the remote refused while the agent worked, by ref.
	refused map[string]refusal
	// alone: a push with everything in it failed, so what counts most goes alone.
	alone  bool
	jotted sync.Once // that the ledger cannot be written was said
}

func (p *Publisher) mirrorDir() string { return filepath.Join(p.Dir, "mirror.git") }
func (p *Publisher) outboxDir() string { return filepath.Join(p.Dir, "outbox.git") }

// Mirror is our copy of the remote, without credential.
func (p *Publisher) Mirror() git.Repo { return git.Repo{Dir: p.mirrorDir(), Bare: true} }

// Before is the remote's branches and tags as they were when we came, with no object of others: neither the task's own branch nor what
// its attempts kept beside it, nor what came since.
func (p *Publisher) Before() git.Repo { return git.Repo{Dir: p.BeforeDir, Bare: true} }

// Objects is a repository of ours that has the objects of the mirror and of the work tree, to read
// commits that the remote may not have yet. No configuration of the agent's counts in it.
func (p *Publisher) Objects() git.Repo { return p.outbox() }

func (p *Publisher) authed(r git.Repo) git.Repo {
	r.Auth = p.Auth
	return r
}

// tree is the agent's work tree, used as the agent.
func (p *Publisher) tree() git.Repo {
	// A user's own configuration may be damaged, or hide work behind rules that the repository does not know.
	// What is pushed is what objects are, not what others stand in for them.
	env := append(p.identity(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_NO_REPLACE_OBJECTS=1")
	return git.Repo{Dir: p.Workspace, Tree: true, User: p.User, Env: append(env, settings()...)}
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
	// git push leaves out what the remote has in commits that are no ancestors (the last checkpoint, for
	// the next one or for the commit that replaces it) only from a repository that counts as shallow. Ours misses no commit.
	if err := os.WriteFile(filepath.Join(p.outboxDir(), "shallow"), nil, 0o644); err != nil {
		return "", "", fmt.Errorf("prepare outbox: %w", err)
	}
	if err := p.keepBefore(ctx); err != nil {
		return "", "", err
	}
	if err := p.Refresh(ctx); err != nil {
		return "", "", err
	}
	p.unbundle(ctx)
	base, sha, err = p.baseBranch(ctx)
	if git.KindOf(err) == git.KindNotFound && p.Order.MayGoOn() {
		// The branch may have been renamed or deleted since: where the task began is known.
		if v, lerr := p.look(ctx); lerr == nil && v.state != nil && git.ValidSHA(v.state.BaseSHA) && p.Mirror().Run(ctx, "cat-file", "-e", v.state.BaseSHA+"^{commit}") == nil {
			return v.state.BaseBranch, v.state.BaseSHA, nil
		}
	}
	return base, sha, err
}

func (p *Publisher) baseBranch(ctx context.Context) (base, sha string, err error) {
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
		// Of a shallow repository no ref is fetched whose history ends before its beginning.
		if there, err := p.authed(p.Mirror()).Output(ctx, "ls-remote", "--", p.Order.CloneURL, "refs/heads/"+base); err == nil && len(there) > 0 {
			return "", "", &git.Error{Verb: "clone", Kind: git.KindFormat, Err: fmt.Errorf("the remote %s has the branch %q and does not give it: %s", p.Order.Repo, base, git.ShallowText)}
		}
		return "", "", &git.Error{Verb: "clone", Kind: git.KindNotFound, Err: fmt.Errorf("the remote %s has no branch %q", p.Order.Repo, base)}
	}
	return base, sha, nil
}

// Refresh updates the mirror from the remote, the task's own refs included. It is safe to call while others read the mirror.
func (p *Publisher) Refresh(ctx context.Context) error {
	return p.mirror(ctx, "+"+workorder.TaskRefs(p.Order.TaskID)+"*:"+workorder.TaskRefs(p.Order.TaskID)+"*",
		"^"+workorder.AliveRef(p.Order.TaskID)) // it moves while we fetch
}

// mirror fetches the remote's branches and tags, and what else is named.
func (p *Publisher) mirror(ctx context.Context, more ...string) error {
	return p.authed(p.Mirror()).Run(ctx, append([]string{
		"fetch", "--quiet", "--prune", "--no-write-fetch-head", "--no-auto-maintenance",
		"--", p.Order.CloneURL, "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*",
	}, more...)...)
}

// keepBefore makes Before, of hard links to what the mirror has so far. Git gives any object that a repository has to who knows its id, and
// lists them all to who can read its folder: so what must not be found there is fetched later.
func (p *Publisher) keepBefore(ctx context.Context) error {
	if p.BeforeDir == "" {
		return nil
	}
	if _, err := os.Lstat(p.BeforeDir); err == nil {
		return nil // an earlier call's
	}
	own := workorder.BranchRef("agent/" + p.Order.TaskID) // whatever the order calls it: see workorder.OwnBranch
	but := []string{"^" + own, "^" + own + "-*"}
	if b := p.Order.TargetBranch; b != "" {
		but = append(but, "^"+workorder.BranchRef(b))
	}
	if err := p.mirror(ctx, but...); err != nil {
		return err
	}
	half := p.BeforeDir + ".half" // a call that is stopped leaves nothing that the next one takes for whole
	err := errors.Join(os.RemoveAll(half), os.MkdirAll(filepath.Dir(half), 0o755))
	if err == nil {
		err = git.Repo{Dir: p.Dir}.Run(ctx, "clone", "--quiet", "--mirror", "--local", "--template=", "--", p.mirrorDir(), half)
	}
	if err == nil {
		err = os.Rename(half, p.BeforeDir)
	}
	if err != nil {
		return fmt.Errorf("keep what the remote has before the task: %w", err)
	}
	return nil
}

func initBare(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make repository: %w", err)
	}
	return git.Repo{Dir: dir, Bare: true}.Run(ctx, "init", "--quiet", "--bare", "--template=", "--", dir)
}

// connect makes the outbox see the mirror's objects and the work tree's.
func (p *Publisher) connect(objects string) error {
	info := filepath.Join(p.outboxDir(), "objects/info")
	if err := os.MkdirAll(info, 0o755); err != nil {
		return fmt.Errorf("prepare outbox: %w", err)
	}
	alternates := p.mirrorDir() + "/objects\n" + objects + "\n"
	if was, err := os.ReadFile(filepath.Join(info, "alternates")); err == nil && string(was) == alternates {
		return nil
	}
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
