// Package launch runs a resolved job: checks before a container exists, one box, its events, its output, its removal. It
// prints nothing. All state is in the engine's labels and in the state directory, so that any later process can finish.
package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/companion"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/job"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/outcome"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Launcher runs jobs.
type Launcher struct {
	Host
	Images Images
	Remote Remote
	// StartCompanion starts the detached process that serves a local repository to the box.
	StartCompanion func(context.Context, companion.Config) (companion.Ready, error)
	// ImportBundle imports commits that could not be pushed into a local repository, and returns the branch's commit after that.
	ImportBundle func(ctx context.Context, repo, bundle, taskID, branch string) (head string, err error)
	// EngineGone, if positive, overrides how long to wait for an engine that stopped answering.
	EngineGone time.Duration
	// Slot, if not nil, is called with "task ID" or "standby NAME" before its box is created. An error refuses that; release is called
	// when the box runs or has failed to.
	Slot func(ctx context.Context, name string) (release func(), err error)
	// CacheVolume, if set, overrides the name of the volume with the layer cache.
	CacheVolume string
}

// Run runs the job as the first attempt at its task that this state directory knows. When ctx ends, the run is stopped
// gracefully and followed to its result; when hard is closed, the box is killed. The error is a failure of this program;
// the result says how the task ended. A run has a result if its box was created; a refused run leaves nothing.
func (l *Launcher) Run(ctx context.Context, hard <-chan struct{}, job *job.Job) (*workorder.Result, error) {
	cause := job.Check()
	if !workorder.ValidTaskID(job.Order.TaskID) {
		return nil, cause // not a valid directory name
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
		cause = starter{l}.saveOrder(rec, &job.Order)
	}
	if cause == nil {
		cause = follower{l}.unlessStopped(ctx, rec.TaskID, func(ctx context.Context) (err error) {
			info, err = starter{l}.check(ctx, job, rec)
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

func (l *Launcher) begin(ctx context.Context, job *job.Job, rec *taskstore.Record, info runtime.Info) error {
	return follower{l}.unlessStopped(ctx, rec.TaskID, func(ctx context.Context) error { return starter{l}.begin(ctx, job, rec, info) })
}

func (l *Launcher) carryOn(ctx context.Context, hard <-chan struct{}, job *job.Job, rec *taskstore.Record) (*workorder.Result, error) {
	if err := l.Store.Save(rec); err != nil {
		// The box runs; the record from before its start suffices to find it.
		l.Log.Warn("save the record of the task", "task", rec.TaskID, "error", err)
	}
	if job.Detach {
		if h, ok := l.Engine.(runtime.HandOver); ok {
			h.HandedOver()
		}
		grace, asked := l.stopRequest(rec.TaskID)
		if !asked {
			return nil, nil
		}
		box, err := l.Find(ctx, rec) // the box has no follower that would stop it
		if err == nil && box != nil {
			err = l.Engine.Stop(ctx, box.ID, grace)
		}
		return nil, err
	}
	return l.finish(ctx, hard, rec)
}

// announce emits the first event, with the task and its output directory, and the job's warnings.
func (l *Launcher) announce(job *job.Job, rec *taskstore.Record) {
	l.emit(workorder.Event{Type: workorder.EventTask, ID: rec.TaskID, Path: rec.Dir, Name: rec.TargetBranch})
	for _, w := range job.Warnings {
		l.emit(workorder.Event{Type: workorder.EventWarning, Text: w})
	}
}

// record creates the task's record and takes its lock. If the output directory cannot be created, the run is recorded in the
// state directory, and noDir is the reason why it stops there.
func (l *Launcher) record(rec *taskstore.Record) (lock *taskstore.Lock, noDir, err error) {
	elsewhere := rec.Dir != ""
	lock, err = l.Store.Create(rec)
	if err == nil || !elsewhere || errors.Is(err, taskstore.ErrExists) {
		return lock, nil, err
	}
	rec.Dir = ""
	lock, again := l.Store.Create(rec)
	if again != nil {
		return nil, nil, err
	}
	return lock, err, nil
}

func (l *Launcher) newRecord(job *job.Job) *taskstore.Record {
	o := &job.Order
	rec := &taskstore.Record{
		TaskID: o.TaskID, Project: o.Project, Task: text.Runes(text.Words(cmp.Or(job.Title, o.Task)), maxTitle),
		CreatedAt: l.now().UTC(), StartedAt: l.now().UTC(),
		AttemptID: o.AttemptID, Attempt: max(job.Attempt, 1), Request: job.Request,
		Keep: job.Keep, LocalRepo: job.LocalRepo, TargetBranch: o.TargetBranch, Harness: o.Harness.Name,
		Mode: o.Mode, Repo: o.Repo, Branch: o.Branch, Limits: o.Limits,
		Host: workorder.Platform{Isolation: job.Order.Isolation, OCIRuntime: job.Order.OCIRuntime},
	}
	if job.OutDir != "" {
		rec.Dir = filepath.Join(job.OutDir, o.TaskID)
	}
	return rec
}

const maxTitle = 120 // characters of a task's text in lists

// noting returns the launcher with recording of its own events, the only record of a run without a box.
func (l *Launcher) noting(rec *taskstore.Record) *Launcher {
	c := *l
	c.Show = func(e workorder.Event) {
		if e.Seq == 0 {
			l.note(rec, e)
		}
		l.emit(e)
	}
	return &c
}

func (l *Launcher) note(rec *taskstore.Record, e workorder.Event) {
	if err := outcome.NoteHostEvent(rec.Dir, e); err != nil {
		l.Log.Debug("record an event of the host", "task", rec.TaskID, "error", err)
	}
}

// Resume runs the job as the next attempt at a task whose last one is collected. The caller holds the task's lock until it
// returns. It ends like Run, except that if engine or remote are unsuitable there is no attempt, and the last output stays.
func (l *Launcher) Resume(ctx context.Context, hard <-chan struct{}, job *job.Job, last *taskstore.Record) (*workorder.Result, error) {
	job.Order.Ended = nil
	for _, a := range last.Attempts() {
		if workorder.ValidAttemptID(a.ID) && !a.MayStillRun {
			job.Order.Ended = append(job.Order.Ended, a.ID)
		}
	}
	if err := job.Check(); err != nil {
		return nil, err
	}
	next := l.newRecord(job)
	next.Task, next.Dir = cmp.Or(last.Task, next.Task), last.Dir
	var early []workorder.Event
	looking := *l
	looking.Show = func(e workorder.Event) {
		early = append(early, e) // recorded once their attempt exists
		l.emit(e)
	}
	looking.announce(job, next)
	info, err := starter{&looking}.check(ctx, job, next)
	if ctx.Err() != nil {
		err = exiterr.New(workorder.ExitInterrupted, errors.New("interrupted before the sandbox was started"), "")
	}
	if err != nil {
		return nil, err
	}
	if err := l.Store.NextAttempt(last, next); err != nil {
		return nil, err
	}
	for _, e := range early {
		l.note(next, e)
	}
	l = l.noting(next)
	if job.Bundle, err = outcome.LastBundle(next); err == nil {
		job.Archive, err = outcome.LastArchive(next)
	}
	for i := range job.Order.Repos {
		if err == nil {
			err = keptOf(job, next, &job.Order.Repos[i])
		}
	}
	for _, r := range outcome.FurtherRepos(next) {
		if !slices.ContainsFunc(job.Order.Repos, func(is workorder.OrderRepo) bool { return is.Name == r.Name }) {
			l.emit(workorder.Event{Type: workorder.EventWarning, Text: fmt.Sprintf(
				"repos.%s (%s) is no longer in the project file: its branch stays as earlier attempts left it", r.Name, r.Repo)})
		}
	}
	if err != nil {
		return l.stillborn(ctx, next, err)
	}
	job.Order.Bundle, job.Order.Archive = job.Bundle != "", job.Archive != ""
	if err := (starter{l}).saveOrder(next, &job.Order); err != nil {
		return l.stillborn(ctx, next, err)
	}
	if err := l.begin(ctx, job, next, info); err != nil {
		return l.stillborn(ctx, next, err)
	}
	return l.carryOn(ctx, hard, job, next)
}

// keptOf finds the files of earlier attempts for a further repository.
func keptOf(j *job.Job, rec *taskstore.Record, r *workorder.OrderRepo) error {
	if j.Kept == nil {
		j.Kept = map[string]string{}
	}
	for _, f := range []struct {
		name, in string
		there    *bool
	}{{workorder.BundleFile, workorder.BundleIn, &r.Bundle}, {workorder.ArchiveFile, workorder.ArchiveIn, &r.Archive}} {
		file, err := outcome.LastOf(rec, r.Name, f.name)
		if err != nil {
			return err
		}
		if *f.there = file != ""; *f.there {
			j.Kept[workorder.FileIn(f.in, r.Name)] = file
		}
	}
	return nil
}
