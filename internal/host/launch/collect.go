package launch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/outcome"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func (l *Launcher) finish(ctx context.Context, hard <-chan struct{}, rec *taskstore.Record) (*workorder.Result, error) {
	end := &outcome.ResultBuffer{Show: outcome.SanitizeEvents(rec, l.emit)}
	out, err := outcome.OpenRecorder(rec.Dir, end.Event)
	if err != nil {
		return l.unfollowed(rec, err)
	}
	// The user's stop does not end the following: a stopped run has a result, too.
	base := context.WithoutCancel(ctx)
	followCtx, cancel := context.WithCancel(base)
	stopped := make(chan StopKind, 1)
	go func() { stopped <- follower{l}.stops(followCtx, ctx, hard, rec) }()
	err = follower{l}.follow(followCtx, rec, out)
	cancel()
	kind := <-stopped
	if err = errors.Join(err, out.Close()); err != nil {
		return l.unfollowed(rec, err)
	}
	res, err := collector{l}.collect(base, rec, kind)
	end.Release(l.emit, l.now, rec, res)
	return res, err
}

// unfollowed returns the result of a run whose box may still run. A later collection replaces it.
func (l *Launcher) unfollowed(rec *taskstore.Record, err error) (*workorder.Result, error) {
	res := outcome.Synthesise(rec, collector{l}.recorded(rec), outcome.LostEnding(workorder.ReasonUnseen, err.Error()), l.now())
	return l.publish(rec, res), errors.Join(err, outcome.WriteResult(rec, res))
}

// Attach follows a run that another process started, or collects one that has ended.
// Signals do not stop the run: the caller may detach again.
func (l *Launcher) Attach(ctx context.Context, rec *taskstore.Record) (*workorder.Result, error) {
	return l.home(ctx, rec, true, NotStopped)
}

// Collect collects a box that has ended. The caller holds the task's lock.
func (l *Launcher) Collect(ctx context.Context, rec *taskstore.Record) (*workorder.Result, error) {
	box, err := l.Find(ctx, rec)
	switch {
	case errors.Is(err, runtime.ErrUnavailable):
		return nil, exiterr.New(workorder.ExitBox, err, "the result is collected when the engine answers again")
	case err != nil:
		return nil, err
	case box == nil:
		box = l.findLate(ctx, rec)
	}
	if box != nil && box.Running() {
		return nil, fmt.Errorf("task %s: %w", rec.TaskID, ErrRunning)
	}
	if rec.Box == "" && box == nil {
		return l.endWithoutBox(rec)
	}
	return l.home(ctx, rec, box != nil, FoundEnded)
}

// home records the events that a box still has, if follow is set, and collects the box.
func (l *Launcher) home(ctx context.Context, rec *taskstore.Record, follow bool, kind StopKind) (*workorder.Result, error) {
	l = l.noting(rec)
	end := &outcome.ResultBuffer{Show: outcome.SanitizeEvents(rec, l.emit)}
	out, err := outcome.OpenRecorder(rec.Dir, end.Event)
	if err != nil {
		return nil, err
	}
	if follow {
		err = follower{l}.follow(ctx, rec, out)
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return nil, err
	}
	res, err := collector{l}.collect(ctx, rec, kind)
	end.Release(l.emit, l.now, rec, res)
	return res, err
}

// endWithoutBox ends the record of a command that was killed before it created a box.
func (l *Launcher) endWithoutBox(rec *taskstore.Record) (*workorder.Result, error) {
	res := outcome.Synthesise(rec, collector{l}.recorded(rec),
		outcome.LostEnding(workorder.ReasonNotReady, "the command was killed before it started a sandbox"), l.now())
	collector{l}.done(rec, res)
	return res, errors.Join(outcome.WriteResult(rec, res), l.Store.Save(rec))
}

func (l *Launcher) publish(rec *taskstore.Record, res *workorder.Result) *workorder.Result {
	Complete(res, rec)
	l.emit(workorder.Event{Type: workorder.EventResult, Status: string(res.Status), Result: res})
	return res
}

// stillborn ends a run for which no box was started. refuse handles a refused one.
func (l *Launcher) stillborn(ctx context.Context, rec *taskstore.Record, cause error) (*workorder.Result, error) {
	status, by, code := workorder.StatusError, workorder.EndedByBox, workorder.ReasonNotReady
	switch {
	case ctx.Err() != nil:
		status, by, code = workorder.StatusInterrupted, workorder.EndedBySignal, workorder.ReasonByUser
		cause = exiterr.New(workorder.ExitInterrupted, errors.New("interrupted before the sandbox was started"), "")
	case errors.Is(cause, ErrStopped):
		status, by, code = workorder.StatusInterrupted, workorder.EndedBySignal, workorder.ReasonOnRequest
	case errors.Is(cause, ErrTaskBusy):
		by, code = workorder.EndedByLease, workorder.ReasonLease
	case exiterr.Code(cause) == workorder.ExitGit:
		by, code = workorder.EndedByGit, workorder.ReasonClone
	case exiterr.Code(cause) == workorder.ExitInvalid, exiterr.Code(cause) == workorder.ExitNoProject:
		by, code = workorder.EndedByOrder, workorder.ReasonOrder
	}
	res := outcome.Synthesise(rec, func(func(workorder.Event)) error { return nil },
		workorder.Ending{Status: status, EndedBy: by, Reasons: workorder.Because(code, "%v", cause)}, l.now())
	res = l.publish(rec, res)
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), CollectTimeout)
	defer cancel()
	rec.MayStillRun = l.mayLive(clean, rec)
	collector{l}.endCompanion(clean, rec)
	collector{l}.done(rec, res)
	return res, errors.Join(cause, outcome.WriteResult(rec, res), l.Store.Save(rec))
}

// mayLive reports whether a box of the record may run although no process saw its start.
func (l *Launcher) mayLive(ctx context.Context, rec *taskstore.Record) bool {
	if rec.Box == "" {
		return false
	}
	box, err := l.Find(ctx, rec)
	return err != nil || box != nil && box.Running()
}

// footprint lists the files and directories that a run creates before its box. Only these may be removed.
type footprint struct {
	parent, dir bool     // created by the run
	files       []string // in the directory; others may belong to a task whose record is on another machine
}

func before(rec *taskstore.Record) footprint {
	absent := func(path string) bool {
		_, err := os.Lstat(path)
		return errors.Is(err, fs.ErrNotExist)
	}
	made := footprint{parent: rec.Dir != "" && absent(filepath.Dir(rec.Dir)), dir: rec.Dir == "" || absent(rec.Dir)}
	for _, name := range []string{workorder.OrderFile, outcome.HostEventsFile} {
		if absent(filepath.Join(rec.Dir, name)) {
			made.files = append(made.files, name)
		}
	}
	return made
}

// refused reports whether a first attempt has no box for a reason that is not part of the task. Answers of the remote, a stop
// and a box that may run are worth a record instead.
func (l *Launcher) refused(ctx context.Context, rec *taskstore.Record, cause error) bool {
	return rec.Number() == 1 && ctx.Err() == nil && exiterr.Code(cause) != workorder.ExitGit &&
		!errors.Is(cause, ErrStopped) && !errors.Is(cause, ErrTaskBusy) && !l.mayLive(ctx, rec)
}

// refuse ends a run for which no box was started. A refused run leaves no record and no output. The caller holds the task's lock.
func (l *Launcher) refuse(ctx context.Context, rec *taskstore.Record, made footprint, cause error) (*workorder.Result, error) {
	looked, cancel := context.WithTimeout(ctx, CollectTimeout)
	defer cancel()
	if !l.refused(looked, rec, cause) {
		return l.stillborn(ctx, rec, cause)
	}
	collector{l}.endCompanion(looked, rec)
	return nil, errors.Join(cause, l.forget(rec, made))
}

func (l *Launcher) forget(rec *taskstore.Record, made footprint) error {
	if made.dir {
		err := l.Store.Remove(rec)
		if made.parent {
			_ = os.Remove(filepath.Dir(rec.Dir)) // fails if it is not empty
		}
		return err
	}
	// The directory existed before: remove only the run's own files.
	var errs []error
	for _, name := range made.files {
		if err := os.Remove(filepath.Join(rec.Dir, name)); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, l.Store.Remove(&taskstore.Record{TaskID: rec.TaskID}))...)
}
