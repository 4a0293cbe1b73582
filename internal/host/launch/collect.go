package launch

import (
	"context"
	"errors"
	"fmt"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/attempt"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/collect"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/follow"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/journal"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/outcome"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/start"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// finish follows the box to its end and collects it.
func (l *Launcher) finish(ctx context.Context, hard <-chan struct{}, rec *store.Record) (*workorder.Result, error) {
	end := &outcome.Held{Show: outcome.Judged(rec, l.Host().Emit)}
	out, err := journal.OpenRecorder(rec.Dir, end.Event)
	if err != nil {
		return l.unfollowed(rec, err)
	}
	// Following goes on after the user's wish to stop: a stopped run has a result too.
	base := context.WithoutCancel(ctx)
	followCtx, cancel := context.WithCancel(base)
	stopped := make(chan attempt.StopKind, 1)
	go func() { stopped <- l.follower().Stops(followCtx, ctx, hard, rec) }()
	err = l.follower().Run(followCtx, rec, out)
	cancel()
	kind := <-stopped
	if err = errors.Join(err, out.Close()); err != nil {
		return l.unfollowed(rec, err)
	}
	res, err := l.collector().Run(base, rec, kind)
	end.Release(l.Host().Emit, l.Host().Time, rec, res)
	return res, err
}

// unfollowed is the result of a run whose box may still live. It has what is known now; a
// later collection replaces it.
func (l *Launcher) unfollowed(rec *store.Record, err error) (*workorder.Result, error) {
	res := outcome.Synthesise(rec, l.collector().Recorded(rec), outcome.LostTo(workorder.ReasonUnseen, err.Error()), l.Host().Time())
	return l.publish(rec, res), errors.Join(err, outcome.WriteResult(rec, res))
}

// Attach follows a run that another process started, or collects one that has ended.
// Signals do not stop the run: the caller may detach again.
func (l *Launcher) Attach(ctx context.Context, rec *store.Record) (*workorder.Result, error) {
	return l.home(ctx, rec, true, attempt.NotStopped)
}

// Collect collects a box that has ended. The caller holds the task's lock.
func (l *Launcher) Collect(ctx context.Context, rec *store.Record) (*workorder.Result, error) {
	box, err := l.Host().Find(ctx, rec)
	switch {
	case errors.Is(err, runtime.ErrUnavailable):
		return nil, fault.New(workorder.ExitBox, err, "the result is collected when the engine answers again")
	case err != nil:
		return nil, err
	case box == nil:
		box = l.Host().Late(ctx, rec)
	}
	if box != nil && box.Live() {
		return nil, fmt.Errorf("task %s: %w", rec.TaskID, attempt.ErrRunning)
	}
	if rec.Box == "" && box == nil {
		return l.neverStarted(rec)
	}
	return l.home(ctx, rec, box != nil, attempt.FoundEnded)
}

// home records the events that a box still has, if there is a box, and collects it.
func (l *Launcher) home(ctx context.Context, rec *store.Record, follow bool, kind attempt.StopKind) (*workorder.Result, error) {
	l = l.noting(rec)
	end := &outcome.Held{Show: outcome.Judged(rec, l.Host().Emit)}
	out, err := journal.OpenRecorder(rec.Dir, end.Event)
	if err != nil {
		return nil, err
	}
	if follow {
		err = l.follower().Run(ctx, rec, out)
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return nil, err
	}
	res, err := l.collector().Run(ctx, rec, kind)
	end.Release(l.Host().Emit, l.Host().Time, rec, res)
	return res, err
}

// neverStarted ends the record of a CLI that died before it made a box.
func (l *Launcher) neverStarted(rec *store.Record) (*workorder.Result, error) {
	res := outcome.Synthesise(rec, l.collector().Recorded(rec), outcome.LostTo(workorder.ReasonNotReady, "the command was ended before it started a sandbox"), l.Host().Time())
	l.collector().Done(rec, res)
	return res, errors.Join(outcome.WriteResult(rec, res), l.Store.Save(rec))
}

// publish shows a result that the host made.
func (l *Launcher) publish(rec *store.Record, res *workorder.Result) *workorder.Result {
	collect.Complete(res, rec)
	l.Host().Emit(workorder.Event{Time: l.Host().Time(), Type: workorder.EventResult, Status: string(res.Status), Result: res})
	return res
}

// stillborn ends a run for which no box was started.
// One that was refused is no task: see refuse.
func (l *Launcher) stillborn(ctx context.Context, rec *store.Record, cause error) (*workorder.Result, error) {
	status, by, code := workorder.StatusError, workorder.ByBox, workorder.ReasonNotReady
	switch {
	case ctx.Err() != nil:
		status, by, code = workorder.StatusInterrupted, workorder.BySignal, workorder.ReasonByUser
		cause = fault.New(workorder.ExitInterrupted, errors.New("you interrupted it before its sandbox was started"), "")
	case errors.Is(cause, follow.ErrStopped):
		status, by, code = workorder.StatusInterrupted, workorder.BySignal, workorder.ReasonOnRequest
	case errors.Is(cause, start.ErrOther):
		by, code = workorder.ByLease, workorder.ReasonLease
	case fault.Code(cause) == workorder.ExitGit:
		by, code = workorder.ByGit, workorder.ReasonClone
	case fault.Code(cause) == workorder.ExitInvalid, fault.Code(cause) == workorder.ExitNoProject:
		by, code = workorder.ByOrder, workorder.ReasonOrder
	}
	res := outcome.Synthesise(rec, func(func(workorder.Event)) error { return nil }, workorder.Ending{Status: status, EndedBy: by, Reasons: workorder.Because(code, "%v", cause)}, l.Host().Time())
	res = l.publish(rec, res)
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), collect.CollectTimeout)
	defer cancel()
	rec.Unsure = l.mayLive(clean, rec)
	l.collector().EndCompanion(clean, rec, false)
	l.collector().Done(rec, res)
	return res, errors.Join(cause, outcome.WriteResult(rec, res), l.Store.Save(rec))
}

// mayLive reports whether a box of the record that was not seen to start may live all the same.
func (l *Launcher) mayLive(ctx context.Context, rec *store.Record) bool {
	if rec.Box == "" {
		return false
	}
	box, err := l.Host().Find(ctx, rec)
	return err != nil || box != nil && box.Live()
}
