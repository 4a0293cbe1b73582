// Package boot is the trusted, root part of a run: it prepares the box, brings
// up what the order asks for, hands over to the task's code as user sandbox,
// and lands the work however the run ends.
//
// Boot decides the order of things and what an ending means. How an engine
// starts, an agent runs or a branch is pushed is behind the interfaces of this
// file, whose implementations cmd/entrypoint brings together.
package boot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/record"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/workspace"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Engine is the inner Docker engine. Listen comes first; Start may be called by
// more than one and starts once.
type Engine interface {
	// Listen makes the socket exist. Clients that connect wait until the engine runs.
	Listen(ctx context.Context) error
	// Start starts the engine and returns when it answers.
	Start(ctx context.Context) error
	// StartOnDemand waits for the first client and starts the engine then.
	StartOnDemand(ctx context.Context) error
	// Describe fills in what the result says about the engine.
	Describe(*workorder.Host)
	// Stop ends all containers and the engine, within ctx. It is safe to call at any time.
	Stop(ctx context.Context)
}

// Services are the containers that the task needs.
type Services interface {
	// Up creates them all and returns when all are ready; the error names every one that is not.
	Up(ctx context.Context) error
	// Supabase brings up the Supabase stack of the workspace and returns its variables.
	Supabase(ctx context.Context) (map[string]string, error)
	// Ends says how each service was last seen.
	Ends() []workorder.ServiceEnd
	// Unwatch stops looking after them: from here on their end is no failure.
	Unwatch()
}

// Repository brings the repository in and the work out.
type Repository interface {
	// Clone makes the work tree; it returns the base branch and commit.
	Clone(ctx context.Context) (base, sha string, err error)
	// Baseline notes what setup left in the work tree: it is not the agent's work.
	Baseline(ctx context.Context) error
	// Commit commits what is uncommitted, as far as it can; the error says what is
	// left. Nothing to commit is no error.
	Commit(ctx context.Context, message string) error
	// Archive keeps what Commit left, or the whole work tree, as a file of the
	// output and returns its path there. It has time of its own.
	Archive(ctx context.Context, whole bool) (path string, err error)
	// Land pushes the branch and reports. It may be called again.
	Land(ctx context.Context, baseSHA string) Landing
	// Close ends what Clone started for the length of the run.
	Close()
}

// Landing is what a landing did.
type Landing struct {
	Head     string
	Commits  []workorder.Commit
	Pushed   bool
	Bundle   string // file that holds the work because it could not be pushed
	Archive  string // file of the output that holds what could not be committed
	Lost     bool   // something of the work could be kept nowhere
	Warnings []string
	Err      error
}

// Task runs the code of the repository and the agent as user sandbox.
type Task interface {
	// Shell runs one command of the project; name is used for its log.
	Shell(ctx context.Context, name, command string) (exitCode int, tail string, err error)
	// Agent runs the harness to its end.
	Agent(ctx context.Context) AgentEnd
	// Validate runs every validate command.
	Validate(ctx context.Context) []workorder.Validation
	// Verdict judges the run from the agent's end, the validation and the number
	// of commits. cause is why the run was cut short, or nil.
	Verdict(checks []workorder.Validation, commits int, cause error) (workorder.Status, workorder.EndedBy, string)
	// Setenv adds a variable for all later commands and the agent.
	Setenv(name, value string)
}

// AgentEnd is how the agent ended, before the verdict on the run.
type AgentEnd struct {
	Agent    workorder.Agent
	Usage    workorder.Usage
	Status   workorder.Status // success: it did its part
	Reason   string
	Warnings []string
}

// commitTime bounds the commit after the agent: a hundred thousand new files take
// a minute, and what an agent can hang must not cost the validation its time.
const commitTime = 3 * time.Minute

// Box is one run inside the box.
type Box struct {
	Order    *workorder.Order
	Rec      *record.Recorder
	Log      *slog.Logger
	Engine   Engine
	Services Services
	Repo     Repository
	Task     Task
	Space    *workspace.Workspace
	// Signals delivers SIGTERM and SIGINT.
	Signals <-chan os.Signal

	baseSHA   string
	cloned    bool
	committed bool  // the agent's leftovers are committed
	left      error // names those that cannot be
}

// Causes of an early ending, carried by the run's context.
var (
	ErrInterrupted = errors.New("a stop signal arrived")
	ErrTimeout     = errors.New("the time limit was reached")
)

// timeoutCause is ErrTimeout with the limit. It is a deadline to everybody who
// does not know ErrTimeout.
type timeoutCause struct{ minutes float64 }

func (e timeoutCause) Error() string {
	return fmt.Sprintf("%v (timeout_minutes: %g)", ErrTimeout, e.minutes)
}

func (e timeoutCause) Is(target error) bool {
	return target == ErrTimeout || target == context.DeadlineExceeded
}

// Run is the whole run; it returns the exit code of the container.
func (b *Box) Run(ctx context.Context) int {
	start := time.Now()
	steps := b.steps()
	names := make([]string, 0, len(steps)+4)
	for _, s := range steps {
		names = append(names, s.name)
	}
	b.Rec.Declare(append(names, "agent", "validate", "push")...)
	if keys := ignored(b.Order); len(keys) > 0 {
		b.Rec.Warn("this version does not act on what the project says with " + strings.Join(keys, ", "))
	}

	run, cancel := context.WithDeadlineCause(ctx, start.Add(b.Order.Timeout()), timeoutCause{b.Order.TimeoutMinutes})
	defer cancel()
	run, interrupt := context.WithCancelCause(run)
	defer interrupt(nil)
	land, hurry := context.WithCancelCause(context.WithoutCancel(ctx))
	defer hurry(nil)
	go b.watchSignals(interrupt, hurry)

	end := b.work(run, steps)
	landing := b.land(land, run, &end)
	code := b.finish(end, landing)

	undo, stop := context.WithTimeout(context.WithoutCancel(ctx), workorder.EngineGrace)
	defer stop()
	undoSteps(undo, steps)
	return code
}

// ignored lists the keys of the project that this version reads and does not
// act on: saying so beats a reader who waits for a pull request.
func ignored(o *workorder.Order) (keys []string) {
	for key, set := range map[string]bool{
		"pr": o.PR != nil, "dev": o.Dev != nil,
	} {
		if set {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// watchSignals turns the first signal into an interruption, after which the
// landing has workorder.LandGrace, and the second into its immediate end.
func (b *Box) watchSignals(interrupt, hurry context.CancelCauseFunc) {
	s, ok := <-b.Signals
	if !ok {
		return
	}
	interrupt(fmt.Errorf("%w (%s)", ErrInterrupted, s))
	select {
	case <-b.Signals:
		hurry(errors.New("a second signal arrived"))
	case <-time.After(workorder.AgentGrace + workorder.LandGrace):
		hurry(errors.New("the time for landing is used up"))
	}
}

// ending is why and how the run ended, before landing.
type ending struct {
	status workorder.Status // "": the verdict follows when the commits are known
	by     workorder.EndedBy
	reason string
	ran    bool // the agent ran
	checks []workorder.Validation
	cause  error // why the run was cut short
}

func (b *Box) work(ctx context.Context, steps []step) ending {
	if err := runSteps(ctx, b.Rec, steps); err != nil {
		return b.bootFailed(ctx, err)
	}
	if ctx.Err() != nil {
		return cutShort(ctx)
	}
	e := ending{ran: true}
	agent := b.agent(ctx)
	if ctx.Err() == nil {
		// Before validation, whose own droppings are not the agent's work.
		if err := b.Rec.ReleaseForLanding(); err != nil {
			b.Rec.Warn(err.Error())
		}
		slice, done := context.WithTimeoutCause(ctx, commitTime, fmt.Errorf("not done within %s", commitTime))
		_ = b.commit(slice) // landing tries again, and says so
		done()
	}
	switch {
	case len(b.Order.Validate) == 0:
		b.Rec.StepFinished("validate", &record.Skip{Reason: "the project has no validate commands"}, nil)
	case ctx.Err() != nil:
		b.Rec.StepFinished("validate", &record.Skip{Reason: context.Cause(ctx).Error()}, nil)
		if agent.Status == workorder.StatusSuccess {
			// It finished in the very moment of the end; unproven is not success.
			cut := cutShort(ctx)
			e.status, e.by, e.reason = cut.status, cut.by, cut.reason
		}
	default:
		e.checks = b.validate(ctx)
	}
	e.cause = context.Cause(ctx)
	return e
}

func (b *Box) agent(ctx context.Context) AgentEnd {
	b.Rec.StepStarted("agent")
	end := b.Task.Agent(ctx)
	b.Rec.Update(func(r *workorder.Result) { r.Agent, r.Usage = end.Agent, end.Usage })
	for _, w := range end.Warnings {
		b.Rec.Warn(w)
	}
	var err error
	if end.Status != workorder.StatusSuccess {
		err = errors.New(end.Reason)
	}
	b.Rec.StepFinished("agent", err, end.Agent.ExitCode)
	return end
}

func (b *Box) validate(ctx context.Context) []workorder.Validation {
	b.Rec.StepStarted("validate")
	checks := b.Task.Validate(ctx)
	b.Rec.Update(func(r *workorder.Result) { r.Validation = checks })
	var failed []string
	for _, c := range checks {
		if !c.Passed {
			failed = append(failed, fmt.Sprintf("%s exited with %d", c.Name, c.ExitCode))
		}
	}
	var err error
	if len(failed) > 0 {
		err = errors.New(strings.Join(failed, "; "))
	}
	b.Rec.StepFinished("validate", err, nil)
	return checks
}

// bootFailed says what a failed step means for the run.
func (b *Box) bootFailed(ctx context.Context, err error) ending {
	if errors.Is(context.Cause(ctx), ErrInterrupted) || errors.Is(context.Cause(ctx), ErrTimeout) {
		return cutShort(ctx)
	}
	e := ending{status: workorder.StatusError, by: workorder.ByBox, reason: err.Error()}
	var se *stepError
	if !errors.As(err, &se) {
		return e
	}
	switch se.step {
	case stepClone:
		e.by = workorder.ByGit
	case stepServices, stepSupabase:
		e.status, e.by = workorder.StatusFailed, workorder.ByServices
	case stepEnv, stepPackages, stepSetup:
		e.status, e.by = workorder.StatusFailed, workorder.BySetup
	}
	return e
}

func cutShort(ctx context.Context) ending {
	cause := context.Cause(ctx)
	if errors.Is(cause, ErrTimeout) {
		return ending{status: workorder.StatusTimeout, by: workorder.ByTimeout, reason: cause.Error()}
	}
	return ending{status: workorder.StatusInterrupted, by: workorder.BySignal, reason: cause.Error()}
}
