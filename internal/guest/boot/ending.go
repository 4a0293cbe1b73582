package boot

import (
	"context"
	"errors"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/claim"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/pipeline"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type ending struct {
	workorder.Ending       // without Status: the verdict follows once the commits are known
	cause            error // why the run was cut short
	// told is the earlier result that this run reports instead of working; nil if it worked.
	told *claim.DoneError
}

func because(s workorder.Status, by workorder.EndedBy, code workorder.ReasonCode, format string, args ...any) workorder.Ending {
	return workorder.Ending{Status: s, EndedBy: by, Reasons: workorder.Because(code, format, args...)}
}

// worked derives the ending from the work. err is the error of the step that ended it, or nil.
func (b *lander) worked(err error) {
	if b.work.unwatch != nil {
		b.work.unwatch()
	}
	run, e := b.contexts.run, &b.end
	cut := run.Err() != nil
	e.Ending, e.cause = b.work.planned, context.Cause(run)
	known, stopped := errors.AsType[*endError](err)
	switch {
	case stopped:
		e.Ending = known.Ending
	case err != nil:
		b.failed(err)
	case !b.work.ran:
		e.Ending = cutShort(run)
	case cut && !b.work.validated && len(b.Order.Validate) > 0 && b.work.agentEnd.Status == workorder.StatusSuccess && e.Status == "":
		// The agent finished at the very moment of the end; unproven is not success.
		e.Ending = cutShort(run)
	}
	if cut && b.Rebaser != nil && b.work.ran && e.Status == "" && !b.move.moved {
		e.Ending = cutShort(run)
	}
	if b.work.ran && (errors.Is(e.cause, errLeaseLost) || errors.Is(e.cause, errDiskLimit)) {
		// The agent was stopped, so its own end means nothing.
		e.Ending = cutShort(run)
	}
	if b.neverPushed() != "" || b.nothingToPush() != "" {
		if b.move.rebasing != nil { // a push of the resolved commits to the ref next to the branch may be under way
			settle, settled := context.WithTimeout(b.contexts.land, b.shutdown().Land)
			b.Repo.StopSaving(settle)
			settled()
		}
		b.landed(b.asItWas())
	}
}

// failed derives the ending from a failed step.
func (b *lander) failed(err error) {
	run, e := b.contexts.run, &b.end
	if cause := context.Cause(run); errors.Is(cause, errStopSignal) || errors.Is(cause, context.DeadlineExceeded) || errors.Is(cause,
		errDiskLimit) {
		e.Ending = cutShort(run)
		return
	}
	e.Ending = because(workorder.StatusError, workorder.EndedByBox, workorder.ReasonStep, "%v", err)
	at, ok := errors.AsType[*pipeline.Error](err)
	if !ok {
		return
	}
	code := &e.Reasons[0].Code
	switch at.Step {
	case workorder.StepClone, workorder.StepRebase:
		if done, told := errors.AsType[*claim.DoneError](err); told {
			e.Ending, e.told = done.Attempt.Ending(), done
			return
		}
		e.EndedBy, *code = workorder.EndedByGit, workorder.ReasonClone
		if at.Step == workorder.StepRebase {
			*code = workorder.ReasonRebase
		}
		var known EndedByer
		if errors.As(err, &known) {
			if e.EndedBy = known.EndedBy(); e.EndedBy == workorder.EndedByLease {
				*code = workorder.ReasonLease
			}
		}
	case workorder.StepServices, workorder.StepSupabase:
		e.Status, e.EndedBy, *code = workorder.StatusFailed, workorder.EndedByServices, workorder.ReasonServices
	case workorder.StepEnv, workorder.StepPackages, workorder.StepTools, workorder.StepSetup:
		e.Status, e.EndedBy, *code = workorder.StatusFailed, workorder.EndedBySetup, workorder.ReasonSetup
		if b.work.ran { // in a rebase the agent has resolved conflicts before
			e.Reasons[0].Detail += "; " + b.move.whereKept()
		}
	}
}

func cutShort(ctx context.Context) workorder.Ending {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, context.DeadlineExceeded):
		return because(workorder.StatusTimeout, workorder.EndedByTimeout, workorder.ReasonTimeout, "%v", cause)
	case errors.Is(cause, errDiskLimit):
		return because(workorder.StatusFailed, workorder.EndedByAgent, workorder.ReasonDisk, "%v", cause)
	case errors.Is(cause, errLeaseLost):
		return because(workorder.StatusError, workorder.EndedByLease, workorder.ReasonLease, "%v", cause)
	}
	return because(workorder.StatusInterrupted, workorder.EndedBySignal, workorder.ReasonSignal, "%v", cause)
}

// AttemptOf returns the attempt as the remote records it.
func AttemptOf(r *workorder.Result, head string) workorder.Attempt {
	a := workorder.Attempt{
		ID: r.AttemptID, Number: r.Attempt, Mode: r.Mode, Status: r.Status, EndedBy: r.EndedBy, Reasons: r.Reasons,
		ResumeAt: r.ResumeAt, StartedAt: r.StartedAt, EndedAt: time.Now().UTC(), HeadSHA: head, Agent: r.Agent, Usage: r.Usage, Plan: r.Plan,
	}
	for _, v := range r.Validation {
		if !v.Passed {
			a.Validation = append(a.Validation, v.Name)
		}
	}
	return a
}

// earlier lists how the attempts before ours ended, where ours is this attempt's id.
func earlier(s *workorder.State, ours string) (list []workorder.PastAttempt) {
	if s == nil {
		return nil
	}
	for _, a := range s.Attempts {
		if a.ID != ours {
			list = append(list, workorder.PastAttempt{
				Number: a.Number, Mode: a.Mode, Status: a.Status, Reasons: a.Reasons,
				CostUSD: a.Usage.CostUSD,
			})
		}
	}
	return list
}
