package launch

import (
	"cmp"
	"context"
	"errors"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/job"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/journal"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/outcome"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Resume carries out the job as the next attempt at a task whose last one is collected. The
// caller holds the task's lock until it returns. It ends like Run, with one exception: if
// engine or remote cannot do it, there is no attempt and the output stays that of the last one.
func (l *Launcher) Resume(ctx context.Context, hard <-chan struct{}, job *job.Job, last *store.Record) (*workorder.Result, error) {
	job.Order.Ended = nil
	for _, a := range last.Attempts() {
		if workorder.ValidAttemptID(a.ID) && !a.Unsure {
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
		early = append(early, e) // recorded when their attempt exists
		l.Host().Emit(e)
	}
	looking.announce(job, next)
	info, err := looking.starter().Ground(ctx, job, next)
	if ctx.Err() != nil {
		err = fault.New(workorder.ExitInterrupted, errors.New("you interrupted it before its sandbox was started"), "")
	}
	if err != nil {
		return nil, err
	}
	if err := l.Store.NextAttempt(last, next); err != nil {
		return nil, err
	}
	for _, e := range early {
		if err := journal.Note(next.Dir, e); err != nil {
			l.Log.Debug("record an event of the host", "task", next.TaskID, "error", err)
		}
	}
	l = l.noting(next)
	if job.Bundle, err = outcome.LastBundle(next); err == nil {
		job.Archive, err = outcome.LastArchive(next)
	}
	if err != nil {
		return l.stillborn(ctx, next, err)
	}
	job.Order.Bundle, job.Order.Archive = job.Bundle != "", job.Archive != ""
	if err := l.starter().SaveOrder(next, &job.Order); err != nil {
		return l.stillborn(ctx, next, err)
	}
	if err := l.begin(ctx, job, next, info); err != nil {
		return l.stillborn(ctx, next, err)
	}
	return l.carryOn(ctx, hard, job, next)
}
