// Package pipeline runs a list of named steps. The package has what every step needs around it, so that no step has it: order, skipping,
// events, timing, deadlines and undoing. The list can be printed, and what is printed is what runs.
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
	// After are the steps that have to be over first; they stand earlier in the list, those that it does not have do not count. A
	// step that is Always comes after all that stand before it.
	After []workorder.StepName
	// Budget bounds Run; 0 means what ends the step's context does.
	Budget time.Duration
	// Within is the longest that Run takes by deadlines of its own, where it has no Budget: it goes on for a moment after its
	// context ends, as a landing must. OfRun means that the run's timeout bounds it.
	Within time.Duration
	// Always: the step runs whatever became of those before it.
	Always bool
	// Soft means that the list continues after the step failed. Its error tells why it was cut short.
	Soft bool
	// Silent: the record does not have the step.
	Silent bool
	// Life ends an Always step early; it may be nil.
	Life func() context.Context
	// Later tells how to do the step another time if Life ended it.
	Later string
	// Skip returns why the order leaves no work, else ""; nil means that it always does. A plan calls it, and so does a run, before
	// Late.
	Skip func() string
	// Late returns why there turns out to be no work once the steps before are over, else "". A plan does not call it.
	Late func() string
	// Run does the work. A *record.Skip as its error says that there was none.
	Run func(context.Context) error
	// Code returns the exit code to record; nil means that of the error, if it is an ExitCoder.
	Code func() *int
	// Undo removes what Run left. It must be safe if Run never started; nil means that nothing remains.
	Undo func(context.Context)
}

// Recorder is what the list tells of its steps. *record.Recorder is one.
type Recorder interface {
	Declare(names ...workorder.StepName)
	StepStarted(name workorder.StepName)
	StepFinished(name workorder.StepName, err error, exitCode *int)
	Unreached(why string, names ...workorder.StepName)
}

// List is the steps of a run. Its methods are called one after another: Work, Finish, Undo.
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

// Stop is the error of a step that ends the work without having failed. Why says it of this step and of those after it.
type Stop struct {
	Why string
	Err error // for the caller of Work; nil means none
}

func (s *Stop) Error() string { return s.Why }
func (s *Stop) Unwrap() error { return s.Err }

// ExitCoder is an error that has a command's exit code.
type ExitCoder interface {
	error
	ExitCode() int
}

// Work runs the steps that are not Always, each as soon as those that it comes after are over, and returns the first failure when
// all that were started have ended. After a failure, and when ctx is done, no further step is started.
func (l *List) Work(ctx context.Context) error {
	var declared []workorder.StepName
	for _, s := range l.Steps {
		if !s.Silent {
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
				if !s.Silent {
					unreached = append(unreached, s.Name)
				}
				return
			}
			err := l.run(ctx, s)
			if err == nil || s.Soft {
				close(over[s.Name])
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if first == nil {
				first = &Error{Step: s.Name, Err: err}
			}
			cancel(why(s.Name, err))
		})
	}
	wg.Wait()
	if len(unreached) > 0 {
		l.Rec.Unreached(context.Cause(ctx).Error(), unreached...)
	}
	return first
}

// await waits for steps, and reports false when ctx was done before.
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

// why is why the steps after one that failed are not reached.
func why(name workorder.StepName, err error) error {
	if stop, ok := errors.AsType[*Stop](err); ok {
		return stop
	}
	return fmt.Errorf("the step %s failed", name)
}

// Finish runs the steps that are Always, one after another. ctx carries values only.
func (l *List) Finish(ctx context.Context) {
	for _, s := range l.Steps {
		if !s.Always {
			continue
		}
		ctx := context.WithoutCancel(ctx)
		if s.Life != nil {
			ctx = s.Life()
		}
		_ = l.run(ctx, s)
	}
}

// Undo takes back the steps in reverse order.
func (l *List) Undo(ctx context.Context) {
	for _, s := range slices.Backward(l.Steps) {
		if s.Undo != nil {
			s.Undo(ctx)
		}
	}
}

// why returns why there is no work.
func (s *Step) why() (why string) {
	if s.Skip != nil {
		why = s.Skip()
	}
	if why == "" && s.Late != nil {
		why = s.Late()
	}
	return why
}

// OfRun is the Within of a step that the run's timeout bounds.
const OfRun = -1

// Longest is the most that the Always steps behind a step take, by their budgets and their own deadlines; those OfRun do not count.
// unbound is one that has neither; empty if each has.
func (l *List) Longest(behind workorder.StepName) (most time.Duration, unbound workorder.StepName) {
	i := slices.IndexFunc(l.Steps, func(s Step) bool { return s.Name == behind })
	for _, s := range l.Steps[i+1:] {
		switch limit := max(s.Budget, s.Within); {
		case !s.Always, s.Within == OfRun:
		case limit == 0:
			return most, s.Name
		default:
			most += limit
		}
	}
	return most, ""
}

// run is one step with all that is around it.
func (l *List) run(life context.Context, s Step) error {
	finished := func(err error, code *int) {
		if !s.Silent {
			l.Rec.StepFinished(s.Name, err, code)
		}
	}
	if why := s.why(); why != "" {
		finished(&record.Skip{Reason: why}, nil)
		return nil
	}
	if s.Always && life.Err() != nil {
		finished(&record.Skip{Reason: context.Cause(life).Error() + s.Later}, nil)
		return nil
	}
	if !s.Silent {
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
	stop, stopped := errors.AsType[*Stop](err)
	switch {
	case err == nil:
	case skipped:
		finished(skip, nil)
		return nil
	case stopped:
		finished(&record.Skip{Reason: stop.Why}, nil)
		return err
	case s.Always && life.Err() != nil:
		finished(&record.Skip{Reason: context.Cause(life).Error() + s.Later}, nil)
		return nil
	case ctx.Err() != nil && !s.Soft && !errors.Is(err, context.Cause(ctx)):
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

// budgetError is the end of a step that took longer than its budget.
type budgetError struct{ budget time.Duration }

func (e *budgetError) Error() string {
	return fmt.Sprintf("took longer than its budget of %s", e.budget)
}

// Is makes it a deadline to everybody who does not know it.
func (*budgetError) Is(target error) bool { return target == context.DeadlineExceeded }
