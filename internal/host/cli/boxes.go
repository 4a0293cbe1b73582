package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/companion"
	"github.com/sandbox-agent/sandbox-agent/internal/host/credentials"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/job"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// boxes runs attempts on the engine and shows their events.
type boxes struct {
	a            *App
	find         *credentials.Finder
	json, detach bool
	st           *store.Store
	be           *Backend // nil if not opened yet
}

func (b *boxes) open() (err error) {
	if b.be != nil {
		return nil
	}
	if b.st, err = b.a.store(); err == nil {
		b.be, err = b.a.open()
	}
	return err
}

// Run starts the first attempt that this machine knows.
func (b *boxes) Run(ctx context.Context, job *job.Job) (*workorder.Result, error) {
	return b.start(ctx, job, func(l *launch.Launcher) (*workorder.Result, error) { return l.Run(ctx, b.a.Hard, job) })
}

// Resume starts the attempt after the one in last.
func (b *boxes) Resume(ctx context.Context, job *job.Job, last *store.Record) (*workorder.Result, error) {
	return b.start(ctx, job, func(l *launch.Launcher) (*workorder.Result, error) { return l.Resume(ctx, b.a.Hard, job, last) })
}

func (b *boxes) start(ctx context.Context, job *job.Job, run func(*launch.Launcher) (*workorder.Result, error)) (*workorder.Result, error) {
	own, err := b.st.Owner(true)
	if err != nil {
		return nil, err
	}
	job.Owner = own.ID
	out := b.a.Stdout
	if b.detach && !b.json {
		out = b.a.Stderr // standard output is for the task id alone: scripts read it
	}
	view := b.a.newViewOn(out, b.json)
	defer view.r.Close()
	view.told, view.stopping = true, func() bool { return ctx.Err() != nil }
	view.begin(job)
	l := b.a.launcher(b.be, b.st, view.event)
	l.Remote = b.find
	return run(l)
}

// Watch follows a box that runs.
func (b *boxes) Watch(ctx context.Context, rec *store.Record) (*workorder.Result, error) {
	view := b.a.newView(b.json)
	defer view.r.Close()
	view.told = true
	return b.a.launcher(b.be, b.st, view.event).Watch(ctx, rec)
}

// Stop asks a box to end.
func (b *boxes) Stop(ctx context.Context, rec *store.Record, grace time.Duration) (bool, error) {
	if err := b.open(); err != nil {
		return false, err
	}
	return b.a.launcher(b.be, b.st, nil).Stop(ctx, rec, grace)
}

// Collect collects the result of a box that has ended.
func (b *boxes) Collect(ctx context.Context, rec *store.Record) error {
	if err := b.open(); err != nil {
		return err
	}
	_, err := b.a.launcher(b.be, b.st, nil).Collect(ctx, rec)
	return err
}

func (a *App) launcher(be *Backend, st *store.Store, show func(workorder.Event)) *launch.Launcher {
	return &launch.Launcher{
		Host:   launch.Host{Engine: be.Engine, Store: st, Log: a.log(), Show: show},
		Images: be.Images, CacheVolume: a.cacheVolume(),
		ImportBundle: localrepo.ImportBundle,
		StartCompanion: func(ctx context.Context, cfg companion.Config) (companion.Ready, error) {
			exe, err := a.Executable()
			if err != nil {
				return companion.Ready{}, fmt.Errorf("find this program: %w", err)
			}
			return companion.Start(ctx, exe, []string{companionCommand}, cfg)
		},
	}
}
