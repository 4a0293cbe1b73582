package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/render"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// parkPoll keeps a wait right over a suspended machine: its timers stand still.
const parkPoll = 30 * time.Second

const (
	// parkFirst is the first wait for a limit of which nobody knows the end: longer than a throttle, shorter than the shortest
	// window that providers count in, which are hours. Each attempt that ends at it doubles the wait, up to parkMost.
	parkFirst = 5 * time.Minute
	parkMost  = time.Hour
	// parkLeast is waited for an attempt that ended long ago, too: --wait was asked for because there is a limit.
	parkLeast = time.Minute
)

// backOff is when a task goes on that was parked without a known time, so many times in a row.
func backOff(ended time.Time, times int, now time.Time) time.Time {
	wait := parkFirst
	for ; times > 1 && wait < parkMost; times-- {
		wait *= 2
	}
	at := ended.Add(min(wait, parkMost))
	if ended.IsZero() || ended.After(now) {
		at = now.Add(min(wait, parkMost))
	}
	if least := now.Add(parkLeast); at.Before(least) {
		return least
	}
	return at
}

// parkedInARow is how many of the last attempts ended at a limit.
func parkedInARow[A any](all []A, status func(A) workorder.Status) (n int) {
	for _, a := range slices.Backward(all) {
		if status(a) != workorder.StatusParked {
			break
		}
		n++
	}
	return n
}

// state is how the last attempt ended.
type state struct {
	status   workorder.Status
	by       workorder.EndedBy
	resumeAt *time.Time
	began    bool // a box took its order
	ended    time.Time
	parked   int // attempts in a row that ended so, this one included
}

type decision int

const (
	goesOn decision = iota
	parked
	isDone
)

// judge decides by how the last attempt ended whether there is a next one.
func (p *pickUp) judge(s state) decision {
	switch {
	case p.rebase != nil:
		return goesOn // however it ended: what is asked for has nothing to do with it
	case s.status == workorder.StatusParked && s.resumeAt == nil && p.wait && !p.waited && !p.now:
		return parked
	case s.status == workorder.StatusParked && s.resumeAt != nil && time.Until(*s.resumeAt) > 0 && !p.now:
		return parked
	case workorder.Resumable(s.status, s.by), !s.began:
		// What was wrong may be mended, and the order is made anew: a create that was
		// refused because the remote knows the task is a continue now.
		return goesOn
	case p.create:
		return isDone
	case p.text != "", p.revise != nil:
		return goesOn
	}
	switch s.status {
	case workorder.StatusSuccess, workorder.StatusNoChanges, workorder.StatusPlanned:
		return isDone
	}
	return goesOn // it failed, and the user wants another try
}

func (p *pickUp) done(s state) error {
	return fault.New(workorder.ExitGeneral, fmt.Errorf("task %s is done (%s)", p.o.taskID, s.status),
		"`sandbox-agent result "+p.o.taskID+"` shows it; --task \"...\" adds to it")
}

// parked says when a parked task can go on.
func (p *pickUp) parked(s state, tell func() error) error {
	if p.o.json {
		return tell()
	}
	fmt.Fprintf(p.a.Stdout, "%s is parked until %s, when its provider's limit resets\n", p.o.taskID, render.Clock(*s.resumeAt, time.Now()))
	if !p.create {
		fmt.Fprintf(p.a.Stderr, "hint: `sandbox-agent continue %s --wait` waits for that, --now tries at once\n", p.o.taskID)
	}
	return &ending{workorder.ExitCode(s.status, s.by)}
}

// resumes is when a parked task goes on.
func (p *pickUp) resumes(s state) time.Time {
	if s.resumeAt != nil {
		return *s.resumeAt
	}
	p.waited = true // once; it ends with an attempt that says more
	fmt.Fprintf(p.a.Stderr, "nobody knows when the provider's limit of %s resets: it is tried again now and then\n", p.o.taskID)
	return backOff(s.ended, s.parked, time.Now())
}

func (p *pickUp) waitUntil(ctx context.Context, at time.Time) error {
	fmt.Fprintf(p.a.Stderr, "%s is parked until %s; waiting\n", p.o.taskID, render.Clock(at, time.Now()))
	for left := time.Until(at); left > 0; left = time.Until(at) {
		if pause(ctx, min(left, parkPoll)); ctx.Err() != nil {
			return &ending{exitLeft}
		}
	}
	return nil
}

// tell prints the result that is recorded and ends with its exit code.
func (p *pickUp) tell(rec *store.Record) error {
	res, err := launch.ReadResult(rec)
	if err != nil {
		return err
	}
	p.show(res, rec)
	return ended(res.Status, res.EndedBy)
}

func (p *pickUp) show(res *workorder.Result, rec *store.Record) {
	switch {
	case p.o.json:
		view := p.a.newView(true)
		view.event(workorder.Event{Time: time.Now(), Type: workorder.EventResult, Status: string(res.Status), Result: res})
		view.r.Close()
	case rec != nil:
		p.a.summary(res, rec)
	default:
		p.a.summary(res, &store.Record{})
	}
}
