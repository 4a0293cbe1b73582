package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/internal/host/tasks"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// taskWord is what an ID of a task, or the beginning of one, consists of.
var taskWord = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)

// checkTask returns a usage error for a word that is neither a task's ID nor a sandbox's name.
func checkTask(id string) error {
	if taskWord.MatchString(strings.TrimSpace(id)) {
		return nil
	}
	return fault.New(workorder.ExitUsage, fmt.Errorf("%.80q is neither a task's ID nor a sandbox's name", id), "`sandbox-agent ps --all` lists them")
}

// task finds a task by id or prefix.
func (a *App) task(ctx context.Context, id string) (*store.Store, *store.Record, error) {
	if err := checkTask(id); err != nil {
		return nil, nil, err
	}
	st, err := a.store()
	if err != nil {
		return nil, nil, err
	}
	rec, err := st.Find(id)
	if err == nil && rec.Moving != 0 {
		rec, err = mended(ctx, a, st, rec)
	}
	switch {
	case errors.Is(err, store.ErrNotFound) && slices.Contains(knownNames(ctx, a), id):
		return st, nil, notFound(fmt.Errorf("%s is a sandbox, not a task", id), "show its work with: sandbox-agent log "+id)
	case errors.Is(err, store.ErrNotFound):
		return st, nil, unknownName(ctx, a, id, err)
	}
	return st, rec, err
}

// mended is the record of a task after its output was moved. If a dead command left the
// move half done, it is completed; a living one needs a moment, and mended waits for it.
func mended(ctx context.Context, a *App, st *store.Store, rec *store.Record) (*store.Record, error) {
	wait, cancel := a.waiting(ctx, tasks.MoveWait)
	defer cancel()
	for rec.Moving != 0 {
		lock, err := st.TryLock(rec.TaskID)
		switch {
		case errors.Is(err, store.ErrLocked):
			if tasks.Pause(wait, tasks.LockPause); wait.Err() != nil {
				return nil, tasks.GaveUp(wait, st.LockPath(rec.TaskID), rec.TaskID)
			}
		case err != nil:
			return nil, err
		}
		if rec, err = st.Load(rec.TaskID); err == nil && lock != nil {
			err = st.Mend(rec)
		}
		if lock != nil {
			lock.Unlock()
		}
		if err != nil {
			return nil, err
		}
	}
	return rec, nil
}
