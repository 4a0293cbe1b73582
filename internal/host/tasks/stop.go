package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/launch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
)

// nextStop decides the next step of stopping a task. If a finished task is locked, a command decides whether to continue
// it: its next box may start in a moment.
func nextStop(collected, held bool) Do {
	switch {
	case !collected:
		return EndBox
	case held:
		return AwaitLock
	}
	return Report
}

// StopStore is the part of the state folder that stopping needs.
type StopStore interface {
	Store
	Held(id string) bool
}

// StopBoxes is the part of the engine that stopping needs.
type StopBoxes interface {
	// Stop asks a box to end within grace. It reports false if there is none yet.
	Stop(ctx context.Context, rec *store.Record, grace time.Duration) (bool, error)
	// Collect collects the result of a box that has ended.
	Collect(ctx context.Context, rec *store.Record) error
}

// Stopping stops a task, also one whose box is just being started.
type Stopping struct {
	Store StopStore
	Boxes StopBoxes
	// Patience overrides how long to wait for another command; DecideWait if 0.
	Patience time.Duration
}

// Run stops the task, collects its result and returns its record.
func (s *Stopping) Run(ctx context.Context, rec *store.Record, grace time.Duration) (*store.Record, error) {
	wait, cancel := Waiting(ctx, cmp.Or(s.Patience, DecideWait))
	defer cancel()
	for {
		switch nextStop(rec.Collected, s.Store.Held(rec.TaskID)) {
		case EndBox:
			return s.EndBox(ctx, rec, grace)
		case AwaitLock:
			if Pause(wait, LockPause); wait.Err() != nil {
				return nil, GaveUp(wait, s.Store.LockPath(rec.TaskID), rec.TaskID)
			}
		default:
			return rec, nil
		}
		var err error
		if rec, err = s.Store.Load(rec.TaskID); err != nil {
			return nil, err
		}
	}
}

// EndBox stops the box of a task and waits until its result is collected: by the command that follows it if that lives,
// else by this one.
func (s *Stopping) EndBox(ctx context.Context, rec *store.Record, grace time.Duration) (*store.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, grace+launch.CollectTimeout)
	defer cancel()
	stopped := false
	for {
		if !stopped {
			// Its command may change the state meanwhile, perhaps to the next attempt.
			fresh, err := s.Store.Load(rec.TaskID)
			if err != nil {
				return nil, err
			}
			if !fresh.Collected {
				rec = fresh
			}
			if stopped, err = s.Boxes.Stop(ctx, rec, grace); err != nil {
				return nil, err
			}
		}
		lock, err := s.Store.TryLock(rec.TaskID)
		switch {
		case err == nil:
			defer lock.Unlock()
			fresh, err := s.Store.Load(rec.TaskID)
			if err == nil && !fresh.Collected {
				err = s.Boxes.Collect(ctx, fresh)
			}
			return fresh, err
		case !errors.Is(err, store.ErrLocked):
			return nil, err
		}
		if Pause(ctx, LockPause); ctx.Err() != nil {
			return nil, fmt.Errorf("wait for the other command to collect %s: %w", rec.TaskID, ctx.Err())
		}
	}
}
