package app

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/companion"
	"github.com/sandbox-agent/sandbox-agent/internal/host/credentials"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/job"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// attemptRunner runs attempts on the engine and shows their events.
type attemptRunner struct {
	t    *Tasks
	find *credentials.Finder
	st   *taskstore.Store
	be   *Backend // nil if not opened yet
}

func (b *attemptRunner) open() (err error) {
	if b.be != nil {
		return nil
	}
	if b.st, err = b.t.Store(); err == nil {
		b.be, err = b.t.Engine()
	}
	return err
}

// Run starts the first attempt that this machine knows.
func (b *attemptRunner) Run(ctx context.Context, job *job.Job) (*workorder.Result, error) {
	return b.start(ctx, job, func(l *launch.Launcher) (*workorder.Result, error) { return l.Run(ctx, b.t.Hard, job) })
}

// Resume starts the attempt after the one in last.
func (b *attemptRunner) Resume(ctx context.Context, job *job.Job, last *taskstore.Record) (*workorder.Result, error) {
	return b.start(ctx, job, func(l *launch.Launcher) (*workorder.Result, error) { return l.Resume(ctx, b.t.Hard, job, last) })
}

func (b *attemptRunner) start(
	ctx context.Context, job *job.Job, run func(*launch.Launcher) (*workorder.Result, error),
) (*workorder.Result, error) {
	own, err := b.st.Owner(true)
	if err != nil {
		return nil, err
	}
	job.Owner = own.ID
	l, done := b.shown(ctx, job)
	defer done()
	l.Remote = b.find
	return run(l)
}

// shown is a launcher that shows the events of an attempt, until done is called.
func (b *attemptRunner) shown(ctx context.Context, job *job.Job) (l *launch.Launcher, done func()) {
	event, done := (func(workorder.Event))(nil), func() {}
	if b.t.Show != nil {
		var start *AttemptStart
		if job != nil {
			o := &job.Order
			start = &AttemptStart{o.TaskID, o.Project, credentials.Redacted(o.Repo), job.Detach, job.Notes}
		}
		event, done = b.t.Show(ctx, start)
	}
	return b.t.launcher(b.be, b.st, event), done
}

// Watch follows a box that runs.
func (b *attemptRunner) Watch(ctx context.Context, rec *taskstore.Record) (*workorder.Result, error) {
	l, done := b.shown(ctx, nil)
	defer done()
	return l.Watch(ctx, rec)
}

// Stop asks a box to end.
func (b *attemptRunner) Stop(ctx context.Context, rec *taskstore.Record, grace time.Duration) (bool, error) {
	if err := b.open(); err != nil {
		return false, err
	}
	return b.t.launcher(b.be, b.st, nil).Stop(ctx, rec, grace)
}

// Collect collects the result of a box that has ended.
func (b *attemptRunner) Collect(ctx context.Context, rec *taskstore.Record) error {
	if err := b.open(); err != nil {
		return err
	}
	_, err := b.t.launcher(b.be, b.st, nil).Collect(ctx, rec)
	return err
}

// CompanionCommand is the hidden command that the companion process runs.
const CompanionCommand = "serve-run"

// opened returns a launcher on the engine. It calls show, if not nil, with each event.
func openLauncher(t *Tasks, show func(workorder.Event)) (*launch.Launcher, error) {
	st, err := t.Store()
	if err != nil {
		return nil, err
	}
	be, err := t.Engine()
	if err != nil {
		return nil, err
	}
	return t.launcher(be, st, show), nil
}

// ServeCompanion serves an attempt from this machine, on the streams of the process that StartCompanion starts.
func (m Machine) ServeCompanion(ctx context.Context, in io.Reader, out io.WriteCloser, log *slog.Logger) error {
	be, err := m.Engine()
	if err != nil {
		return err
	}
	return companion.Serve(ctx, in, out, be.Engine, log)
}

// launcher runs attempts on an engine. It calls show, if not nil, with each event.
func (t *Tasks) launcher(be *Backend, st *taskstore.Store, show func(workorder.Event)) *launch.Launcher {
	return &launch.Launcher{
		Host:   launch.Host{Engine: be.Engine, Store: st, Log: t.Log(), Show: show},
		Images: be.Images, CacheVolume: t.CacheVolume(),
		Slot:         func(ctx context.Context, who string) (func(), error) { return takeSlot(ctx, t.Env, who) },
		ImportBundle: localrepo.ImportBundle,
		StartCompanion: func(ctx context.Context, cfg companion.Config) (companion.Ready, error) {
			exe, err := t.Executable()
			if err != nil {
				return companion.Ready{}, fmt.Errorf("find this program: %w", err)
			}
			return companion.Start(ctx, exe, []string{CompanionCommand}, cfg)
		},
	}
}
