package launch

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/collect"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/follow"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/journal"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/start"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// footprint is what a run makes on this machine before its box: of folders that were there before nothing else may go.
type footprint struct {
	parent, dir bool // whether they are the run's own
	// files are the names of those in the folder that are the run's own. Others may be of a task whose record is on another machine.
	files []string
}

// before tells what of the output folder a run will make.
func before(rec *store.Record) footprint {
	absent := func(path string) bool {
		_, err := os.Lstat(path)
		return errors.Is(err, fs.ErrNotExist)
	}
	made := footprint{parent: rec.Dir != "" && absent(filepath.Dir(rec.Dir)), dir: rec.Dir == "" || absent(rec.Dir)}
	for _, name := range []string{workorder.OrderFile, journal.OwnEvents} {
		if absent(filepath.Join(rec.Dir, name)) {
			made.files = append(made.files, name)
		}
	}
	return made
}

// refused tells whether a first attempt ended because it may or can not have a box, and has none: what has to be mended is not in the
// task. What the remote said of it, who stopped it, and a box that may live are worth a record.
func (l *Launcher) refused(ctx context.Context, rec *store.Record, cause error) bool {
	return rec.Number() == 1 && ctx.Err() == nil && fault.Code(cause) != workorder.ExitGit &&
		!errors.Is(cause, follow.ErrStopped) && !errors.Is(cause, start.ErrOther) && !l.mayLive(ctx, rec)
}

// refuse ends a run for which no box was started. Where it was refused, nothing is left of it: no record, no output. The caller holds
// the task's lock.
func (l *Launcher) refuse(ctx context.Context, rec *store.Record, made footprint, cause error) (*workorder.Result, error) {
	looked, cancel := context.WithTimeout(ctx, collect.CollectTimeout)
	defer cancel()
	if !l.refused(looked, rec, cause) {
		return l.stillborn(ctx, rec, cause)
	}
	l.collector().EndCompanion(looked, rec, false)
	return nil, errors.Join(cause, l.forget(rec, made))
}

// forget removes a task that had no box.
func (l *Launcher) forget(rec *store.Record, made footprint) error {
	if made.dir {
		err := l.Store.Remove(rec)
		if made.parent {
			_ = os.Remove(filepath.Dir(rec.Dir)) // only when it is empty
		}
		return err
	}
	// Somebody's output lies there: only our files go.
	var errs []error
	for _, name := range made.files {
		if err := os.Remove(filepath.Join(rec.Dir, name)); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, l.Store.Remove(&store.Record{TaskID: rec.TaskID}))...)
}
