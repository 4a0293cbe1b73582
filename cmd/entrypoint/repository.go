package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/boot"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/gateway"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/workspace"
	"github.com/sandbox-agent/sandbox-agent/runner/publish"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// repository brings publish, the git gateway and the workspace together as boot.Repository.
type repository struct {
	pub   *publish.Publisher
	gate  *gateway.Git
	space *workspace.Workspace
	env   *workorder.Envelope
	out   string // folder that leaves the box
	ssh   string // folder for the SSH key
}

func newRepository(log *slog.Logger, env *workorder.Envelope, p paths, space *workspace.Workspace, emit func(workorder.Event)) *repository {
	pub := &publish.Publisher{
		Order: &env.Order, Dir: p.git, Workspace: space.Dir, User: space.User, Home: space.Home, Emit: emit,
	}
	return &repository{
		env: env, pub: pub, space: space, out: p.out, ssh: p.ssh,
		gate: &gateway.Git{Remote: env.Order.CloneURL, Mirror: pub.Mirror().Dir, Refresh: pub.Refresh, Log: log},
	}
}

// authenticate prepares the credential, before untrusted code runs.
func (r *repository) authenticate() (err error) {
	r.pub.Auth, err = gitAuth(r.env, r.ssh)
	return err
}

// gitAuth makes git's view of the credential. An SSH key has to be a file for
// ssh; it lies in the box's memory, for root only.
func gitAuth(env *workorder.Envelope, sshDir string) (*git.Auth, error) {
	c := env.Git
	if c == nil {
		return nil, nil
	}
	a := &git.Auth{URL: env.Order.CloneURL, Username: c.Username, Token: c.Token}
	for _, f := range []struct {
		name, content string
		path          *string
	}{{"key", c.SSHKey, &a.SSHKeyFile}, {"known_hosts", c.KnownHosts, &a.KnownHostsFile}} {
		if f.content == "" {
			continue
		}
		*f.path = filepath.Join(sshDir, f.name)
		if err := os.MkdirAll(sshDir, 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(*f.path, []byte(f.content), 0o600); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func (r *repository) Clone(ctx context.Context) (boot.Cloned, error) {
	if err := r.authenticate(); err != nil {
		return boot.Cloned{}, err
	}
	base, sha, err := r.pub.Fetch(ctx)
	if err != nil {
		return boot.Cloned{}, err
	}
	// The gateway outlives the step that starts it.
	by, err := r.gate.Start(context.WithoutCancel(ctx))
	if err != nil {
		return boot.Cloned{}, err
	}
	if err := r.space.ConfigureGit(r.pub.Order.Author, []string{r.space.Dir, r.pub.Mirror().Dir}, r.pub.Order.CloneURL, by); err != nil {
		return boot.Cloned{}, err
	}
	return boot.Cloned{Base: base, BaseSHA: sha, Head: sha, Attempt: 1, State: &workorder.State{}}, r.pub.Checkout(ctx, base, sha)
}

func (r *repository) Save()                                            {}
func (r *repository) Flush()                                           {}
func (r *repository) Push()                                            {}
func (r *repository) Settle(context.Context)                           {}
func (r *repository) Lost() <-chan struct{}                            { return nil }
func (r *repository) Release(context.Context, workorder.Attempt) error { return nil }

func (r *repository) Baseline(ctx context.Context) error { return r.pub.Baseline(ctx) }

func (r *repository) Commit(ctx context.Context, message string) error {
	return r.pub.Commit(ctx, message)
}

func (r *repository) Land(ctx context.Context, baseSHA string, _ boot.End) boot.Landing {
	l := r.pub.Land(ctx, baseSHA, filepath.Join(r.out, workorder.BundleFile))
	return boot.Landing{Head: l.Head, Commits: l.Commits, Pushed: l.Pushed, Bundle: l.Bundle, Warnings: l.Warnings, Err: l.Err}
}

func (r *repository) Close() { r.gate.Stop() }

// leftArchive is the archive's place in the output.
const leftArchive = workorder.EvidenceDir + "/uncommitted.tar.gz"

func (r *repository) Archive(ctx context.Context, whole bool) (string, error) {
	if err := r.pub.Archive(ctx, filepath.Join(r.out, leftArchive), whole); err != nil {
		return "", err
	}
	return leftArchive, nil
}

// rescue lands for a boot that died.
func (r *repository) rescue(ctx context.Context, baseSHA string, commit bool) boot.Landing {
	if err := r.authenticate(); err != nil {
		return boot.Landing{Err: err}
	}
	var left error
	if commit {
		d, _ := ctx.Deadline()
		slice, cancel := context.WithTimeout(ctx, time.Until(d)/2)
		left = r.Commit(slice, boot.LeftoverMessage)
		cancel()
	}
	l := r.Land(ctx, baseSHA, nil)
	boot.Keep(ctx, r, &l, left)
	return l
}
