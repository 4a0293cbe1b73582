// Package launch takes a resolved job through its life on the host: the checks before a container exists (start), one box, its events
// as they come (follow), the output copied out, and the box removed (collect). Any later process can finish what it begins: all state is
// in the engine's labels and in the state folder. It prints nothing.
package launch

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/companion"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/attempt"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/collect"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/follow"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/job"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/start"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Launcher carries out jobs.
type Launcher struct {
	Engine runtime.Runtime
	Store  *store.Store
	Images start.Images
	Remote start.Remote
	// StartCompanion starts the detached process that serves a local repository to the box.
	StartCompanion func(context.Context, companion.Config) (companion.Ready, error)
	// ImportBundle imports commits that could not be pushed into a local repository, and returns the branch's commit after that.
	ImportBundle func(ctx context.Context, repo, bundle, taskID, branch string) (head string, err error)
	Log          *slog.Logger
	// Show is called for every event, also the host's own (Seq 0), from one goroutine at a time.
	Show func(workorder.Event)
	Now  func() time.Time
	// EngineGone overrides how long to wait for an engine that is away.
	EngineGone time.Duration
	// CacheVolume overrides the name of the volume with the layer cache.
	CacheVolume string
}

// Host is the machine's engine and state, as the launcher uses them.
func (l *Launcher) Host() *attempt.Host {
	return &attempt.Host{Engine: l.Engine, Store: l.Store, Log: l.Log, Show: l.Show, Now: l.Now}
}

func (l *Launcher) starter() *start.Starter {
	return &start.Starter{Host: l.Host(), Images: l.Images, Remote: l.Remote, StartCompanion: l.StartCompanion, CacheVolume: l.CacheVolume}
}

func (l *Launcher) follower() *follow.Follower {
	return &follow.Follower{Host: l.Host(), EngineGone: l.EngineGone}
}

func (l *Launcher) collector() *collect.Collector {
	return &collect.Collector{Host: l.Host(), ImportBundle: l.ImportBundle}
}

// Run carries out the job as the first attempt at its task that this state folder knows.
// When ctx ends, the run is stopped gracefully and still followed to its result; when hard
// is closed, the box is killed. The error is a failure of this program; how the task ended
// is in the result. Every run that got as far as a box has a result; one that was refused before leaves nothing.
func (l *Launcher) Run(ctx context.Context, hard <-chan struct{}, job *job.Job) (*workorder.Result, error) {
	cause := job.Check()
	if !workorder.ValidTaskID(job.Order.TaskID) {
		return nil, cause // no folder can have such a name
	}
	rec := l.newRecord(job)
	made := before(rec)
	lock, noDir, err := l.record(rec)
	if err != nil {
		return nil, errors.Join(cause, err)
	}
	defer lock.Unlock()
	l = l.noting(rec)
	l.announce(job, rec)
	var info runtime.Info
	if cause = errors.Join(cause, noDir); cause == nil {
		cause = l.starter().SaveOrder(rec, &job.Order)
	}
	if cause == nil {
		cause = l.follower().UnlessStopped(ctx, rec.TaskID, func(ctx context.Context) (err error) {
			info, err = l.starter().Ground(ctx, job, rec)
			return err
		})
	}
	if cause == nil {
		cause = l.begin(ctx, job, rec, info)
	}
	if cause != nil {
		return l.refuse(ctx, rec, made, cause)
	}
	return l.carryOn(ctx, hard, job, rec)
}

// begin starts the box.
func (l *Launcher) begin(ctx context.Context, job *job.Job, rec *store.Record, info runtime.Info) error {
	return l.follower().UnlessStopped(ctx, rec.TaskID, func(ctx context.Context) error { return l.starter().Begin(ctx, job, rec, info) })
}

// carryOn follows the box to its end.
func (l *Launcher) carryOn(ctx context.Context, hard <-chan struct{}, job *job.Job, rec *store.Record) (*workorder.Result, error) {
	if err := l.Store.Save(rec); err != nil {
		// The box runs; the record from before its start is enough to find it.
		l.Log.Warn("save the record of the task", "task", rec.TaskID, "error", err)
	}
	if job.Detach {
		if grace, asked := l.Host().Noted(rec.TaskID); asked {
			return nil, l.Host().StopBox(ctx, rec, grace) // the box has no follower that would stop it
		}
		return nil, nil
	}
	return l.finish(ctx, hard, rec)
}

// announce is the first event: it names the task and its output folder.
func (l *Launcher) announce(job *job.Job, rec *store.Record) {
	l.Host().Emit(workorder.Event{Time: l.Host().Time(), Type: workorder.EventTask, ID: rec.TaskID, Path: rec.Dir, Name: rec.TargetBranch})
	for _, w := range job.Warnings {
		l.Host().Emit(workorder.Event{Time: l.Host().Time(), Type: workorder.EventWarning, Text: w})
	}
}

// record makes the task's record and takes its lock. If the output folder cannot be made,
// the run is recorded in the state folder, and noDir is the reason why it stops there.
func (l *Launcher) record(rec *store.Record) (lock *store.Lock, noDir, err error) {
	elsewhere := rec.Dir != ""
	lock, err = l.Store.Create(rec)
	if err == nil || !elsewhere || errors.Is(err, store.ErrExists) {
		return lock, nil, err
	}
	rec.Dir = ""
	lock, again := l.Store.Create(rec)
	if again != nil {
		return nil, nil, err
	}
	return lock, err, nil
}

func (l *Launcher) newRecord(job *job.Job) *store.Record {
	o := &job.Order
	rec := &store.Record{
		TaskID: o.TaskID, Project: o.Project, Task: shorten(cmp.Or(job.Title, o.Task)), CreatedAt: l.Host().Time().UTC(), StartedAt: l.Host().Time().UTC(),
		AttemptID: o.AttemptID, Attempt: max(job.Attempt, 1), Request: job.Request,
		Keep: job.Keep, LocalRepo: job.LocalRepo, TargetBranch: o.TargetBranch, Harness: o.Harness.Name,
		Mode: o.Mode, Repo: o.Repo, Branch: o.Branch, Limits: o.Limits,
		Host: workorder.Host{Isolation: job.Order.Isolation, OCIRuntime: job.Order.OCIRuntime},
	}
	if job.OutDir != "" {
		rec.Dir = filepath.Join(job.OutDir, o.TaskID)
	}
	return rec
}

// shorten makes a list entry out of a task's text.
func shorten(task string) string {
	const most = 120
	return text.Runes(text.Words(task), most)
}
