// Package repository combines rootgit, the git gateway and the workspace, and implements boot.Repository.
package repository

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/boot"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/gateway"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/claim"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/save"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/tree"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/workspace"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/pullrequest"
	"github.com/sandbox-agent/sandbox-agent/internal/sensitivefiles"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Repository implements boot.Repository.
type Repository struct {
	Git *rootgit.Parts
	// Gate is the agent's access to the remote.
	Gate *gateway.Git
	// Claimed is the state that Clone read from the remote.
	Claimed *claim.Result

	space *workspace.Workspace
	env   *workorder.Envelope
	out   string // directory that is copied out of the box
	ssh   string // directory for the SSH key
	again bool

	mu                  sync.Mutex
	keeper              *save.AutoSaver
	lost, closed        chan struct{}
	loseOnce, closeOnce sync.Once
}

// Config describes the box to the repository.
type Config struct {
	Out string // copied out of the box
	Git string // root's repositories; the agent may read them
	SSH string // SSH key; memory-backed, root only
	// Before is the repository for a proof's checkouts; empty if the work is not proven.
	Before string
	Space  *workspace.Workspace
	// User is the agent's user, in a control group in which the agent's processes cannot starve git.
	User *proc.Credential
	// Again means that the box was stopped and is started again: it has the work tree already.
	Again bool
	Emit  func(workorder.Event)
	Clean func(string) string
}

// New returns a repository; nothing is fetched yet.
func New(log *slog.Logger, env *workorder.Envelope, c Config) *Repository {
	r := &remote.Repos{
		Order: &env.Order, Dir: c.Git, Workspace: c.Space.Dir, User: c.User, Home: c.Space.Home, Emit: c.Emit, Clean: c.Clean,
		BeforeDir: c.Before,
	}
	g := rootgit.New(r)
	if env.Order.Bundle {
		g.Claimer.Bundle = workorder.BundleIn
	}
	g.Remote.Guard(env.Secrets)
	return &Repository{
		env: env, Git: g, space: c.Space, out: c.Out, ssh: c.SSH, again: c.Again, lost: make(chan struct{}), closed: make(chan struct{}),
		Gate: &gateway.Git{Remote: env.Order.CloneURL, Mirror: r.Mirror().Dir, Refresh: r.Refresh, Log: log},
	}
}

// Authenticate prepares the credential, before untrusted code runs.
func (r *Repository) Authenticate() (err error) {
	r.Git.Repos.Auth, err = gitAuth(r.env, r.ssh)
	return err
}

// gitAuth returns the credential in git's form. An SSH key must be a file for ssh; it is in the box's memory,
// for root only.
func gitAuth(env *workorder.Envelope, sshDir string) (*git.Auth, error) {
	c := env.Git
	if c == nil {
		return nil, nil
	}
	a := &git.Auth{URL: env.Order.CloneURL, Username: c.Username, Token: c.Token}
	if c.Renew && env.App != nil {
		client, err := pullrequest.RemoteClient(&env.Order, env.App, slog.New(slog.DiscardHandler))
		if err != nil {
			return nil, fmt.Errorf("use the GitHub App: %w", err)
		}
		a.Renew = client.Token
	}
	for _, f := range []struct {
		name, content string
		path          *string
	}{{"key", c.SSHKey, &a.SSHKeyFile}, {"known_hosts", c.KnownHosts, &a.KnownHostsFile}, {"ca/ca.pem", c.CA, &a.CAFile}} {
		if f.content == "" {
			continue
		}
		*f.path = filepath.Join(sshDir, f.name)
		if err := os.MkdirAll(filepath.Dir(*f.path), 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(*f.path, []byte(f.content), 0o600); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// Clone fetches, takes the task's lease and checks the branch out.
func (r *Repository) Clone(ctx context.Context) (boot.Cloned, error) {
	if err := r.Authenticate(); err != nil {
		return boot.Cloned{}, err
	}
	if r.env.Order.Mode == workorder.ModeStand {
		return r.stand(ctx)
	}
	base, sha, err := r.Git.Claimer.Fetch(ctx)
	if err != nil {
		return boot.Cloned{}, err
	}
	claimed, err := r.Git.Claimer.Claim(ctx, base, sha)
	var done *claim.DoneError
	switch {
	case errors.As(err, &done):
		return boot.Cloned{}, &boot.DoneError{State: done.State, Attempt: done.Attempt, Result: done.Result, Err: done}
	case errors.Is(err, claim.ErrTaskExists):
		return boot.Cloned{}, refusal{err}
	case err != nil:
		return boot.Cloned{}, err
	}
	r.Claimed = claimed
	// From here on, the branch has its name on the remote.
	r.env.Order.TargetBranch = claimed.State.TargetBranch
	// The gateway outlives the step that starts it.
	by, err := r.Gate.Start(context.WithoutCancel(ctx))
	if err != nil {
		return boot.Cloned{}, err
	}
	if err := r.space.ConfigureGit(
		r.Git.Repos.Order.Author, []string{r.space.Dir, r.Git.Repos.Mirror().Dir}, r.Git.Repos.Order.CloneURL, by,
	); err != nil {
		return boot.Cloned{}, err
	}
	c := boot.Cloned{Base: claimed.Base, BaseSHA: claimed.BaseSHA, Head: claimed.Head, Attempt: claimed.Attempt, State: claimed.State}
	if c.Restored, err = r.Git.Checkpoints.Checkout(ctx, claimed); err != nil {
		return boot.Cloned{}, err
	}
	if r.env.Order.Archive {
		c.Unpacked = r.Git.Committer.Unarchive(ctx, workorder.ArchiveIn)
	}
	if c.Restored != nil {
		c.Head, c.Pushed = c.Restored.Head, !claimed.Bundled && c.Restored.Head == claimed.Head
		if c.Commits, err = r.Git.Checkpoints.History(ctx); err != nil {
			return boot.Cloned{}, err
		}
		if c.Changed, err = r.Git.Checkpoints.RestoredPaths(ctx); err != nil {
			return boot.Cloned{}, err
		}
		if c.Elsewhere, err = r.Git.Checkpoints.SideRefs(ctx); err != nil {
			r.Git.Repos.Warn("the agent cannot be informed of work next to the branch: %v", err)
		}
	}
	if err := r.nameCoAuthor(ctx); err != nil {
		return boot.Cloned{}, err
	}
	if r.env.Order.Mode == workorder.ModeRebase {
		// No agent works before the commits are rebased, and none between commits that change such files.
		r.keep(ctx, save.Options{})
		return c, nil
	}
	settings, err := r.Git.Config.Neutralize(ctx, claimed)
	if err != nil {
		return boot.Cloned{}, err
	}
	for _, path := range settings {
		r.Git.Repos.Emit(workorder.Event{
			Type: workorder.EventConfigRestored, Path: path,
			Text: "the branch changed this file, which configures agents: for this agent it stays as in " + claimed.Base +
				"; to use the branch's version, set trust_branch_config: true",
		})
	}
	r.keep(ctx, save.Options{})
	return c, nil
}

// nameCoAuthor makes git add the trailer for the agent to the agent's commits, unless the repository has its
// own hooks elsewhere. A rebase changes no messages.
func (r *Repository) nameCoAuthor(ctx context.Context) error {
	who := r.env.Order.CoAuthor
	if who == nil || r.env.Order.Mode == workorder.ModeRebase {
		return nil
	}
	return r.space.Hook(
		ctx, "prepare-commit-msg",
		"#!/bin/sh\n# Written by sandbox-agent.\nexec git interpret-trailers --in-place --if-exists addIfDifferent --trailer "+text.Shell(
			who.Trailer(),
		)+" \"$1\"\n",
	)
}

// Evidence follows no link out of the output.
func (r *Repository) Evidence(ctx context.Context, paths []string) (sha string, left []string, err error) {
	root, err := os.OpenRoot(r.out)
	if err != nil {
		return "", nil, err
	}
	defer root.Close()
	return r.Git.Uploader.Files(ctx, root.FS(), paths)
}

// Result follows no link out of the output.
func (r *Repository) Result(ctx context.Context) (left []string, err error) {
	root, err := os.OpenRoot(r.out)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return r.Git.Uploader.Result(ctx, root.FS())
}

// maxChangedCommits bounds the commits whose files a result names.
const maxChangedCommits = 50

// Changes lists the files of the newest commits of head that base does not have, by commit.
func (r *Repository) Changes(ctx context.Context, base, head string) (map[string][]workorder.FileChange, error) {
	repo, err := r.landed(ctx, head)
	if err != nil {
		return nil, err
	}
	all, err := repo.Changes(ctx, base, head, maxChangedCommits, workorder.MaxChanges)
	out := make(map[string][]workorder.FileChange, len(all))
	for sha, files := range all {
		for _, f := range files {
			out[sha] = append(out[sha], workorder.FileChange(f))
		}
	}
	return out, err
}

// Surface lists sensitive files that a branch changes, and secrets in its commits. It reads commits only, never the work tree.
func (r *Repository) Surface(ctx context.Context, base, head string) ([]workorder.SurfaceFinding, error) {
	repo, err := r.landed(ctx, head)
	if err != nil {
		return nil, err
	}
	found, err := sensitivefiles.Report(ctx, repo, base, head)
	// It does not include checkpoints and other commits pushed next to the branch. Without the list, an extra
	// finding is better than a missing one.
	var objects map[string]bool
	if out, err := repo.Output(ctx, "rev-list", "--objects", head, "--not", base, "--"); err == nil {
		objects = map[string]bool{}
		for line := range strings.Lines(string(out)) {
			id, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			objects[id] = true
		}
	}
	for _, l := range r.Git.Remote.Leaks(objects) {
		if !l.Refused {
			found = append(
				[]workorder.SurfaceFinding{
					{Kind: sensitivefiles.KindSecret, Path: l.Path, Text: "the value of " + l.Name + " is in the commits", Grave: true},
				},
				found...)
		}
	}
	return found, err
}

// landed returns root's copy of the remote with a commit that was pushed. An object from the network matches
// its id; git does not verify that when it reads the agent's own objects, which code of the repository can
// write to at any time. A commit that could not be pushed is not in the copy.
func (r *Repository) landed(ctx context.Context, head string) (git.Repo, error) {
	mirror := r.Git.Repos.Mirror()
	if at, err := mirror.Resolve(ctx, head); err == nil && at == head {
		return mirror, nil
	}
	if err := r.Git.Repos.Refresh(ctx); err != nil {
		return git.Repo{}, fmt.Errorf("fetch the pushed commits: %w", err)
	}
	if at, err := mirror.Resolve(ctx, head); err == nil && at == head {
		return mirror, nil
	}
	return r.Git.Repos.Objects(), nil
}

// refusal reports an order that cannot be executed.
type refusal struct{ error }

func (refusal) EndedBy() workorder.EndedBy { return workorder.ByOrder }
func (e refusal) Unwrap() error            { return e.error }

// keep starts a keeper, which outlives the step that starts it.
func (r *Repository) keep(ctx context.Context, o save.Options) {
	k := r.Git.Saver.Keep(context.WithoutCancel(ctx), o)
	r.mu.Lock()
	r.keeper = k
	r.mu.Unlock()
	go func() {
		select {
		case <-k.Lost():
			r.loseOnce.Do(func() { close(r.lost) })
		case <-r.closed:
		}
	}()
}

// current returns the keeper, nil before there is one.
func (r *Repository) current() *save.AutoSaver {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.keeper
}

// Save starts saving work tree and commits periodically.
func (r *Repository) Save() {
	if k := r.current(); k != nil {
		k.Begin()
	}
}

// Hurry announces that the box is being stopped, and the time left for keeping unpushed work as files.
func (r *Repository) Hurry(files time.Duration) { r.Git.Stop.Announce(files) }

// Flush saves at once.
func (r *Repository) Flush() {
	if k := r.current(); k != nil {
		k.Flush()
	}
}

// Settle ends the saves.
func (r *Repository) Settle(ctx context.Context) {
	if k := r.current(); k != nil {
		k.Stop(ctx)
	}
}

// Push pushes at once, and then new commits periodically; without commitsOnly also the work tree.
func (r *Repository) Push(ctx context.Context, commitsOnly bool) {
	r.keep(ctx, save.Options{CommitsOnly: commitsOnly})
	r.Save()
	r.Flush()
}

// Lost returns a channel that is closed when another box holds the task's lease.
func (r *Repository) Lost() <-chan struct{} { return r.lost }

// Changed returns when the keeper last saw a change in the work tree.
func (r *Repository) Changed() time.Time {
	if k := r.current(); k != nil {
		return k.Changed()
	}
	return time.Time{}
}

// Again restores the state of the work tree after Clone, once it has lost its files. A rebase has its own
// commits by then.
func (r *Repository) Again(ctx context.Context) error {
	if err := r.Git.Checkpoints.Recheckout(ctx); err != nil || r.env.Order.Mode == workorder.ModeRebase {
		return err
	}
	if r.env.Order.Archive {
		r.Git.Committer.Unarchive(ctx, workorder.ArchiveIn)
	}
	_, err := r.Git.Config.Neutralize(ctx, r.Claimed)
	return err
}

// Tidier records how the work tree differs from its commit; undo restores that state.
func (r *Repository) Tidier(ctx context.Context) (undo func(context.Context) error, err error) {
	return r.Git.Work.Restorer(ctx)
}

// Baseline records the files that setup left in the work tree.
func (r *Repository) Baseline(ctx context.Context) error {
	return r.Git.Checkpoints.RecordSetupFiles(ctx)
}

// Commit commits what is uncommitted.
func (r *Repository) Commit(ctx context.Context) error {
	// Masked before it becomes a subject, in which a secret may be altered.
	return r.Git.Committer.Commit(ctx, func(c *tree.Conflicts) string {
		message := ""
		if c != nil {
			message = conflictMessage(c)
		} else {
			message = leftoverMessage(r.Git.Repos.Mask(r.Git.Repos.Order.Task))
		}
		if who := r.Git.Repos.Order.CoAuthor; who != nil {
			message += "\n" + who.Trailer() + "\n"
		}
		return message
	})
}

// conflictTime bounds comparing two commits of the agent's repository, which takes milliseconds.
const conflictTime = 2 * time.Second

// Land ends the saves and lands the work.
func (r *Repository) Land(ctx context.Context, baseSHA string, end boot.End) boot.Landing {
	r.Settle(ctx)
	look, looked := context.WithTimeout(context.WithoutCancel(ctx), conflictTime)
	unresolved := r.Git.Committer.Unresolved(look)
	looked()
	l := r.Git.Lander.Land(ctx, baseSHA, filepath.Join(r.out, workorder.BundleFile), end)
	landing := boot.Landing{
		Head: l.Head, Commits: l.Commits, Pushed: l.Pushed, Bundle: l.Bundle, Checkpoint: l.Checkpoint, Warnings: l.Warnings, Err: l.Err,
	}
	landing.Secret = remote.SecretIn(l.Err) != nil
	if unresolved != nil {
		landing.Unresolved = conflictText(unresolved)
	}
	return landing
}

// Release ends the saves and returns the lease.
func (r *Repository) Release(ctx context.Context, end workorder.Attempt) error {
	r.Settle(ctx)
	return r.Git.Lander.Release(ctx, end)
}

// Close ends the git gateway and the watch over the lease.
func (r *Repository) Close() {
	r.Gate.Stop()
	r.closeOnce.Do(func() { close(r.closed) })
}

// Archive stores what Commit left, or the whole work tree, as a file of the output.
func (r *Repository) Archive(ctx context.Context, whole bool) (string, error) {
	err := r.Git.Committer.Archive(ctx, filepath.Join(r.out, workorder.ArchiveFile), whole)
	if errors.Is(err, tree.ErrTooLarge) {
		err = errors.Join(boot.ErrLarge, err)
	}
	if err != nil {
		return "", err
	}
	return workorder.ArchiveFile, nil
}

// GiveBack returns the lease for a boot that died before there was any work.
func (r *Repository) GiveBack(ctx context.Context, end workorder.Attempt) error {
	if err := r.Authenticate(); err != nil {
		return err
	}
	return r.Release(ctx, end)
}

// Rescue lands for a boot that died.
func (r *Repository) Rescue(ctx context.Context, baseSHA string, commit bool, end boot.End) boot.Landing {
	if err := r.Authenticate(); err != nil {
		return boot.Landing{Err: err}
	}
	var left error
	if commit {
		d, _ := ctx.Deadline()
		slice, cancel := context.WithTimeout(ctx, time.Until(d)/2)
		left = r.Commit(slice)
		cancel()
	}
	l := r.Land(ctx, baseSHA, end)
	boot.Keep(ctx, r, &l, left)
	return l
}

// Beside returns the remote ref with commits that are not on the branch.
func (r *Repository) Beside() string { return r.Git.Lander.SideRef() }
