// Package pipeline runs or prints a list of named steps with budgets, skipping, events and undoing.
package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/record"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Step is one entry of a list.
type Step struct {
	Name workorder.StepName
	// Title describes the step in a few words.
	Title string
	// After lists earlier steps that must be over first; unknown names are ignored. A step with Always comes after all
	// before it.
	After []workorder.StepName
	// Budget bounds Run; 0 means that only the step's context does.
	Budget time.Duration
	// MaxDuration is the longest that Run takes without a Budget, by its own deadlines. OfRun: the run's timeout bounds it.
	MaxDuration time.Duration
	// Always means that the step runs even if earlier ones failed.
	Always bool
	// AllowFailure means that the list continues after the step failed. Its error explains why it was cut short.
	AllowFailure bool
	// Hidden means that the record omits the step.
	Hidden bool
	// Context ends an Always step early; it may be nil.
	Context func() context.Context
	// RetryHint explains how to repeat the step if Context ended it.
	RetryHint string
	// Skip returns why the order leaves no work, else ""; it may be nil. Plan and a run call it before SkipLate.
	Skip func() string
	// SkipLate returns why there is no work once the earlier steps are over, else "". Plan does not call it.
	SkipLate func() string
	// Run does the work. A *record.Skip as its error means that there was none.
	Run func(context.Context) error
	// Code returns the exit code to record; nil means that of the error, if it is an ExitCoder.
	Code func() *int
	// Undo removes what Run left. It must be safe if Run never started; nil means that nothing remains.
	Undo func(context.Context)
}

// Recorder records the progress of the steps. *record.Recorder implements it.
type Recorder interface {
	Declare(names ...workorder.StepName)
	StepStarted(name workorder.StepName)
	StepFinished(name workorder.StepName, err error, exitCode *int)
	Unreached(why string, names ...workorder.StepName)
}

// List holds the steps of a run. Its methods are called in this order: Work, Finish, Undo.
type List struct {
	Steps []Step
	Rec   Recorder
}

// Error names the step that failed.
type Error struct {
	Step workorder.StepName
	Err  error
}

func (e *Error) Error() string { return string(e.Step) + ": " + e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// SkipRest is the error of a step that ends the work without having failed. Reason is recorded for it and the later steps.
type SkipRest struct {
	Reason string
	Err    error // returned by Work; nil if none
}

func (s *SkipRest) Error() string { return s.Reason }
func (s *SkipRest) Unwrap() error { return s.Err }

// ExitCoder is an error with the exit code of a command.
type ExitCoder interface {
	error
	ExitCode() int
}

// Work runs the steps that are not Always, each as soon as its After are over, and returns the first failure when all
// started steps have ended. After a failure, and when ctx is done, it starts no further step.
func (l *List) Work(ctx context.Context) error {
	var declared []workorder.StepName
	for _, s := range l.Steps {
		if !s.Hidden {
			declared = append(declared, s.Name)
		}
	}
	l.Rec.Declare(declared...)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	over := map[workorder.StepName]chan struct{}{}
	for _, s := range l.Steps {
		over[s.Name] = make(chan struct{})
	}
	var (
		wg        sync.WaitGroup
		mu        sync.Mutex
		first     error
		unreached []workorder.StepName
	)
	for _, s := range l.Steps {
		if s.Always {
			continue
		}
		wg.Go(func() {
			if !await(ctx, s.After, over) {
				mu.Lock()
				defer mu.Unlock()
				if !s.Hidden {
					unreached = append(unreached, s.Name)
				}
				return
			}
			err := l.runStep(ctx, s)
			if err == nil || s.AllowFailure {
				close(over[s.Name])
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if first == nil {
				first = &Error{Step: s.Name, Err: err}
			}
			cancel(cancelCause(s.Name, err))
		})
	}
	wg.Wait()
	if len(unreached) > 0 {
		l.Rec.Unreached(context.Cause(ctx).Error(), unreached...)
	}
	return first
}

// await waits for steps; it returns false if ctx is done first.
func await(ctx context.Context, steps []workorder.StepName, over map[workorder.StepName]chan struct{}) bool {
	for _, s := range steps {
		done, ok := over[s]
		if !ok {
			continue
		}
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}

// cancelCause explains why the steps after a failed one are not reached.
func cancelCause(name workorder.StepName, err error) error {
	if stop, ok := errors.AsType[*SkipRest](err); ok {
		return stop
	}
	return fmt.Errorf("the step %s failed", name)
}

// Finish runs the Always steps in sequence. ctx carries values only.
func (l *List) Finish(ctx context.Context) {
	for _, s := range l.Steps {
		if !s.Always {
			continue
		}
		ctx := context.WithoutCancel(ctx)
		if s.Context != nil {
			ctx = s.Context()
		}
		_ = l.runStep(ctx, s)
	}
}

// Undo undoes the steps in reverse order.
func (l *List) Undo(ctx context.Context) {
	for _, s := range slices.Backward(l.Steps) {
		if s.Undo != nil {
			s.Undo(ctx)
		}
	}
}

func (s *Step) skipReason() (why string) {
	if s.Skip != nil {
		why = s.Skip()
	}
	if why == "" && s.SkipLate != nil {
		why = s.SkipLate()
	}
	return why
}

// OfRun is the MaxDuration of a step that the run's timeout bounds.
const OfRun = -1

// Longest returns the maximum time of the Always steps after a step; those with OfRun do not count. unbound is a step
// without a bound; empty if there is none.
func (l *List) Longest(behind workorder.StepName) (most time.Duration, unbound workorder.StepName) {
	i := slices.IndexFunc(l.Steps, func(s Step) bool { return s.Name == behind })
	for _, s := range l.Steps[i+1:] {
		switch limit := max(s.Budget, s.MaxDuration); {
		case !s.Always, s.MaxDuration == OfRun:
		case limit == 0:
			return most, s.Name
		default:
			most += limit
		}
	}
	return most, ""
}

// runStep runs one step with everything that all steps share.
func (l *List) runStep(life context.Context, s Step) error {
	finished := func(err error, code *int) {
		if !s.Hidden {
			l.Rec.StepFinished(s.Name, err, code)
		}
	}
	if why := s.skipReason(); why != "" {
		finished(&record.Skip{Reason: why}, nil)
		return nil
	}
	if s.Always && life.Err() != nil {
		finished(&record.Skip{Reason: context.Cause(life).Error() + s.RetryHint}, nil)
		return nil
	}
	if !s.Hidden {
		l.Rec.StepStarted(s.Name)
	}
	ctx := life
	if s.Budget > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.Budget, &budgetError{s.Budget})
		defer cancel()
	}
	err := s.Run(ctx)
	skip, skipped := errors.AsType[*record.Skip](err)
	stop, stopped := errors.AsType[*SkipRest](err)
	switch {
	case err == nil:
	case skipped:
		finished(skip, nil)
		return nil
	case stopped:
		finished(&record.Skip{Reason: stop.Reason}, nil)
		return err
	case s.Always && life.Err() != nil:
		finished(&record.Skip{Reason: context.Cause(life).Error() + s.RetryHint}, nil)
		return nil
	case ctx.Err() != nil && !s.AllowFailure && !errors.Is(err, context.Cause(ctx)):
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	var code *int
	if s.Code != nil {
		code = s.Code()
	} else if ec, ok := errors.AsType[ExitCoder](err); ok {
		code = new(ec.ExitCode())
	}
	finished(err, code)
	return err
}

// budgetError reports a step that took longer than its budget.
type budgetError struct{ budget time.Duration }

func (e *budgetError) Error() string {
	return fmt.Sprintf("took longer than its budget of %s", e.budget)
}

// Is makes it a deadline error for callers that do not know the type.
func (*budgetError) Is(target error) bool { return target == context.DeadlineExceeded }
