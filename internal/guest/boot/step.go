package boot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/record"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A step is one named part of boot. Title, timing, budget, skipping and errors
// are handled around it, not in it.
type step struct {
	name workorder.StepName
	// does says in a few words what the step is for; `entrypoint boot --plan` prints it.
	does   string
	after  []workorder.StepName // steps that have to be done first; declared earlier
	budget time.Duration        // bound of run; 0: only the run's own time limit
	// skip returns a reason, or "" when there is something to do. Nil: never skipped.
	skip func() string
	run  func(context.Context) error
	// undo takes back what run left behind, in reverse order at the end of every
	// run. It has to be safe when run never started. Nil: nothing stays.
	undo func(context.Context)
}

// stepError names the step that failed.
type stepError struct {
	step workorder.StepName
	err  error
}

func (e *stepError) Error() string { return string(e.step) + ": " + e.err.Error() }
func (e *stepError) Unwrap() error { return e.err }

// exitCoder is implemented by errors that carry a command's exit code.
type exitCoder interface{ ExitCode() int }

// commandError is a command of the project that failed.
type commandError struct {
	command string
	code    int
	tail    string
}

func (e *commandError) Error() string {
	s := fmt.Sprintf("%q exited with %d", e.command, e.code)
	if t := strings.TrimSpace(e.tail); t != "" {
		s += ": " + t
	}
	return s
}

func (e *commandError) ExitCode() int { return e.code }

// runSteps runs every step as soon as those it comes after are done, and
// returns the first failure after all that were started have ended. Steps that
// could not start are recorded as skipped.
func runSteps(ctx context.Context, rec *record.Recorder, steps []step) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(map[workorder.StepName]chan struct{}, len(steps))
	for _, s := range steps {
		done[s.name] = make(chan struct{})
	}
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		first error
	)
	for _, s := range steps {
		wg.Go(func() {
			for _, a := range s.after {
				select {
				case <-done[a]:
				case <-ctx.Done():
					return
				}
			}
			if ctx.Err() != nil {
				return
			}
			if err := runStep(ctx, rec, s); err != nil {
				mu.Lock()
				if first == nil {
					first = &stepError{step: s.name, err: err}
				}
				mu.Unlock()
				cancel(fmt.Errorf("the step %s failed", s.name))
				return
			}
			close(done[s.name])
		})
	}
	wg.Wait()
	return first
}

func runStep(ctx context.Context, rec *record.Recorder, s step) error {
	if s.skip != nil {
		if why := s.skip(); why != "" {
			rec.StepFinished(s.name, &record.Skip{Reason: why}, nil)
			return nil
		}
	}
	rec.StepStarted(s.name)
	if s.budget > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.budget, fmt.Errorf("took longer than its budget of %s", s.budget))
		defer cancel()
	}
	err := s.run(ctx)
	if err != nil && ctx.Err() != nil && !strings.Contains(err.Error(), context.Cause(ctx).Error()) {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	var code *int
	var ec exitCoder
	if errors.As(err, &ec) {
		c := ec.ExitCode()
		code = &c
	}
	if done, told := errors.AsType[*DoneError](err); told {
		rec.StepFinished(s.name, &record.Skip{Reason: done.Error()}, nil)
		return err
	}
	rec.StepFinished(s.name, err, code)
	return err
}

// undoSteps takes back the steps in reverse order.
func undoSteps(ctx context.Context, steps []step) {
	for _, s := range slices.Backward(steps) {
		if s.undo != nil {
			s.undo(ctx)
		}
	}
}

// planText is what `entrypoint boot --plan` prints: a line for each step.
func planText(steps []step) string {
	var b strings.Builder
	for _, s := range steps {
		fmt.Fprintf(&b, "%-9s %s\n", s.name, s.does)
		if len(s.after) > 0 {
			fmt.Fprintf(&b, "%-9s after %s\n", "", strings.Join(names(s.after), ", "))
		}
		if s.budget > 0 {
			fmt.Fprintf(&b, "%-9s budget %s\n", "", s.budget)
		}
		if s.skip != nil {
			if why := s.skip(); why != "" {
				fmt.Fprintf(&b, "%-9s skipped: %s\n", "", why)
			}
		}
		if s.undo != nil {
			fmt.Fprintf(&b, "%-9s undone at the end\n", "")
		}
	}
	return b.String()
}

func names(steps []workorder.StepName) []string {
	var list []string
	for _, s := range steps {
		list = append(list, string(s))
	}
	return list
}
