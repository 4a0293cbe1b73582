package rootgit

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/gateway"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/claim"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/land"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/save"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/tree"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/pullrequest"
	"github.com/sandbox-agent/sandbox-agent/internal/sensitivefiles"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Repository is root's git, the agent's access to the remote, and the work tree.
type Repository struct {
	*parts
	saving
	// Gate is the agent's access to the remote.
	Gate *gateway.Git
	// Claimed is the state that Clone read from the remote.
	Claimed *claim.Result

	env *workorder.Envelope
	cfg Config
}

// Config describes the box to the repository.
type Config struct {
	Out string // copied out of the box
	Git string // root's repositories; the agent may read them
	SSH string // SSH key; memory-backed, root only
	// Before is the repository for a proof's checkouts; empty if the work is not proven.
	Before string
	Space  *Workspace
	// Name is that of a further repository; empty for the task's own.
	Name string
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
	p := connect(r)
	if env.Order.Bundle {
		p.Claimer.Bundle = workorder.FileIn(workorder.BundleIn, c.Name)
	}
	p.Guard(env.Secrets)
	return &Repository{
		parts: p, saving: saving{saver: p.Saver}, env: env, cfg: c,
		Gate: &gateway.Git{Remote: env.Order.CloneURL, Mirror: r.Mirror().Dir, Refresh: r.Refresh, Log: log},
	}
}

// Authenticate prepares the credential, before untrusted code runs.
func (r *Repository) Authenticate() (err error) {
	r.Repos.Auth, err = gitAuth(r.env, r.cfg.SSH)
	return err
}

// gitAuth returns the credential in git's form. An SSH key is a file in the box's memory, for root only.
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

// CloneResult is the state that a run starts from. In a task without a lease it has only Base, BaseSHA and Head.
type CloneResult struct {
	claim.Result
	// Pushed reports whether the remote's branch has Head.
	Pushed bool
	// Restored is nil for a new task.
	Restored *workorder.Restored
	// Commits are those of earlier attempts, newest first.
	Commits []workorder.Commit
	// Changed are the restored paths that are in no commit.
	Changed []string
	// Unpacked reports that files which an earlier attempt could not commit were extracted into the work tree.
	Unpacked bool
	// Repos are the states of further repositories, and Further what Clone found in each.
	Repos   []workorder.RepoResult
	Further []CloneResult
	// Elsewhere are the remote's refs with work of earlier attempts that is not on the branch.
	Elsewhere []string
}

// Clone fetches, takes the task's lease and checks the branch out.
func (r *Repository) Clone(ctx context.Context) (CloneResult, error) {
	if err := r.Authenticate(); err != nil {
		return CloneResult{}, err
	}
	if r.env.Order.Mode == workorder.ModeStandalone {
		return r.standalone(ctx)
	}
	base, sha, err := r.Claimer.Fetch(ctx)
	if err != nil {
		return CloneResult{}, err
	}
	// The gateway outlives the step that starts it.
	by, err := r.Gate.Start(context.WithoutCancel(ctx))
	if err != nil {
		return CloneResult{}, err
	}
	if err := r.cfg.Space.ConfigureGit(
		r.Repos.Order.Author, []string{r.cfg.Space.Dir, r.Repos.Mirror().Dir}, r.Repos.Order.CloneURL, by,
	); err != nil {
		return CloneResult{}, err
	}
	if !r.env.Order.MayContinue() { // an earlier attempt may have another base
		early, cancel := context.WithCancel(ctx)
		wait := tree.CloneEarly(early, r.Checkpoints, base)
		defer wait()
		defer cancel()
	}
	claimed, err := r.Claimer.Claim(ctx, base, sha)
	if err != nil {
		return CloneResult{}, err
	}
	r.Claimed = claimed
	// From here on, the branch has its name on the remote.
	r.env.Order.TargetBranch = claimed.State.TargetBranch
	c := CloneResult{Result: *claimed}
	if c.Restored, err = r.Checkpoints.Checkout(ctx, claimed); err != nil {
		return CloneResult{}, err
	}
	if r.env.Order.Archive {
		c.Unpacked = r.Committer.Unarchive(ctx, workorder.FileIn(workorder.ArchiveIn, r.cfg.Name))
	}
	if c.Restored != nil {
		c.Head, c.Pushed = c.Restored.Head, !claimed.Bundled && c.Restored.Head == claimed.Head
		if c.Commits, err = r.Checkpoints.History(ctx); err != nil {
			return CloneResult{}, err
		}
		if c.Changed, err = r.Checkpoints.RestoredPaths(ctx); err != nil {
			return CloneResult{}, err
		}
		if c.Elsewhere, err = r.Checkpoints.SideRefs(ctx); err != nil {
			r.Repos.Warn("the agent cannot be informed of work next to the branch: %v", err)
		}
	}
	if err := r.nameCoAuthor(ctx); err != nil {
		return CloneResult{}, err
	}
	if r.env.Order.Mode == workorder.ModeRebase {
		// No agent works before the commits are rebased, and none between commits that change such files.
		r.restart(ctx, save.Options{})
		return c, nil
	}
	settings, err := r.Config.Neutralize(ctx, claimed)
	if err != nil {
		return CloneResult{}, err
	}
	for _, path := range settings {
		r.Repos.Emit(workorder.Event{
			Type: workorder.EventConfigRestored, Path: path,
			Text: "the branch changed this file, which configures agents: for this agent it stays as in " + claimed.Base +
				"; to use the branch's version, set trust_branch_config: true",
		})
	}
	r.restart(ctx, save.Options{})
	return c, nil
}

// nameCoAuthor makes git add the agent's trailer, unless the repository has its own hooks or the task is a rebase.
func (r *Repository) nameCoAuthor(ctx context.Context) error {
	who := r.env.Order.CoAuthor
	if who == nil || r.env.Order.Mode == workorder.ModeRebase {
		return nil
	}
	return r.cfg.Space.Hook(
		ctx, "prepare-commit-msg",
		"#!/bin/sh\n# Written by sandbox-agent.\nexec git interpret-trailers --in-place --if-exists addIfDifferent --trailer "+text.Shell(
			who.Trailer(),
		)+" \"$1\"\n",
	)
}

// Evidence follows no link out of the output.
func (r *Repository) Evidence(ctx context.Context, paths []string) (sha string, left []string, err error) {
	root, err := os.OpenRoot(r.cfg.Out)
	if err != nil {
		return "", nil, err
	}
	defer root.Close()
	return r.Uploader.Files(ctx, root.FS(), paths)
}

// Result follows no link out of the output.
func (r *Repository) Result(ctx context.Context) (left []string, err error) {
	root, err := os.OpenRoot(r.cfg.Out)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return r.Uploader.Result(ctx, root.FS())
}

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
	// It does not include checkpoints and other commits pushed next to the branch.
	var objects map[string]bool
	if out, err := repo.Output(ctx, "rev-list", "--objects", head, "--not", base, "--"); err == nil {
		objects = map[string]bool{}
		for line := range strings.Lines(string(out)) {
			id, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			objects[id] = true
		}
	}
	for _, l := range r.Leaks(objects) {
		if !l.Refused {
			found = append(
				[]workorder.SurfaceFinding{
					{Kind: sensitivefiles.KindSecret, Path: l.Path, Text: "the value of " + l.Name + " is in the commits", Severe: true},
				},
				found...)
		}
	}
	return found, err
}

// landed returns root's copy of the remote with a pushed commit: unlike the agent's objects, those from the network
// match their ids. A commit that could not be pushed is not in the copy.
func (r *Repository) landed(ctx context.Context, head string) (git.Repo, error) {
	mirror := r.Repos.Mirror()
	if at, err := mirror.Resolve(ctx, head); err == nil && at == head {
		return mirror, nil
	}
	if err := r.Repos.Refresh(ctx); err != nil {
		return git.Repo{}, fmt.Errorf("fetch the pushed commits: %w", err)
	}
	if at, err := mirror.Resolve(ctx, head); err == nil && at == head {
		return mirror, nil
	}
	return r.Repos.Outbox(), nil
}

// AnnounceStop tells root's git that the box is being stopped, and the time left for keeping unpushed work as files.
func (r *Repository) AnnounceStop(files time.Duration) { r.Stop.Announce(files) }

// Lost returns a channel that is closed when another box holds the task's lease.
func (r *Repository) Lost() <-chan struct{} { return r.Ledger.Fence.Lost() }

// Recheckout restores the work tree after Clone, once it has lost its files.
func (r *Repository) Recheckout(ctx context.Context) error {
	if err := r.Checkpoints.Recheckout(ctx); err != nil || r.env.Order.Mode == workorder.ModeRebase {
		return err
	}
	if r.env.Order.Archive {
		r.Committer.Unarchive(ctx, workorder.ArchiveIn)
	}
	_, err := r.Config.Neutralize(ctx, r.Claimed)
	return err
}

// RecordSetupFiles records the files that setup left in the work tree, and returns tracked ones that the agent's git shows as unchanged.
func (r *Repository) RecordSetupFiles(ctx context.Context) (hidden []string, err error) {
	return r.Checkpoints.RecordSetupFiles(ctx)
}

// Commit commits what is uncommitted.
func (r *Repository) Commit(ctx context.Context) error {
	// Masked before it becomes a subject, in which a secret may be altered.
	return r.Committer.Commit(ctx, func(c *tree.Conflicts) string {
		message := ""
		if c != nil {
			message = conflictMessage(c)
		} else {
			message = leftoverMessage(r.Repos.Mask(r.Repos.Order.Task))
		}
		if who := r.Repos.Order.CoAuthor; who != nil {
			message += "\n" + who.Trailer() + "\n"
		}
		return message
	})
}

// conflictTime bounds comparing two commits of the agent's repository, which takes milliseconds.
const conflictTime = 2 * time.Second

// Land ends the saves and lands the work.
func (r *Repository) Land(ctx context.Context, baseSHA string, end land.RecordAttempt) land.Result {
	r.StopSaving(ctx)
	look, looked := context.WithTimeout(context.WithoutCancel(ctx), conflictTime)
	unresolved := r.Committer.Unresolved(look)
	looked()
	l := r.Lander.Land(ctx, baseSHA, filepath.Join(r.cfg.Out, workorder.BundleFile), end)
	if l.Bundle != "" {
		l.Bundle = workorder.BundleFile
	}
	if unresolved != nil {
		l.Unresolved = conflictText(unresolved)
	}
	return l
}

// Release ends the saves and returns the lease.
func (r *Repository) Release(ctx context.Context, end workorder.Attempt) error {
	r.StopSaving(ctx)
	return r.Lander.Release(ctx, end)
}

// Close ends the git gateway.
func (r *Repository) Close() { r.Gate.Stop() }

// Archive stores what Commit left, or the whole work tree, as a file of the output.
func (r *Repository) Archive(ctx context.Context, whole bool) (string, error) {
	err := r.Committer.Archive(ctx, filepath.Join(r.cfg.Out, workorder.ArchiveFile), whole)
	if err != nil {
		return "", err
	}
	return workorder.ArchiveFile, nil
}
