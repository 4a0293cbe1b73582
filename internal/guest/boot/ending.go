package boot

import (
	"context"
	"errors"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// ending is why and how the run ended, before landing.
type ending struct {
	status workorder.Status // "": the verdict follows when the commits are known
	by     workorder.EndedBy
	reason string
	ran    bool // the agent ran
	checks []workorder.Validation
	cause  error // why the run was cut short
	// told is what there was to tell in place of a run; nil: the run was one.
	told *DoneError
}

// bootFailed says what a failed step means for the run.
func (b *Box) bootFailed(ctx context.Context, err error) ending {
	if cause := context.Cause(ctx); errors.Is(cause, ErrInterrupted) || errors.Is(cause, ErrTimeout) || errors.Is(cause, ErrDisk) {
		return cutShort(ctx)
	}
	e := ending{status: workorder.StatusError, by: workorder.ByBox, reason: err.Error()}
	var se *stepError
	if !errors.As(err, &se) {
		return e
	}
	switch se.step {
	case workorder.StepClone, workorder.StepRebase:
		if done, told := errors.AsType[*DoneError](err); told {
			return ending{status: done.Attempt.Status, by: done.Attempt.EndedBy, reason: done.Attempt.Reason, told: done}
		}
		e.by = workorder.ByGit
		var known EndedByer
		if errors.As(err, &known) {
			e.by = known.EndedBy()
		}
	case workorder.StepServices, workorder.StepSupabase:
		e.status, e.by = workorder.StatusFailed, workorder.ByServices
	case workorder.StepEnv, workorder.StepPackages, workorder.StepSetup:
		e.status, e.by = workorder.StatusFailed, workorder.BySetup
	}
	return e
}

func cutShort(ctx context.Context) ending {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, ErrTimeout):
		return ending{status: workorder.StatusTimeout, by: workorder.ByTimeout, reason: cause.Error()}
	case errors.Is(cause, ErrDisk):
		return ending{status: workorder.StatusFailed, by: workorder.ByAgent, reason: cause.Error()}
	case errors.Is(cause, ErrLease):
		return ending{status: workorder.StatusError, by: workorder.ByLease, reason: cause.Error()}
	}
	return ending{status: workorder.StatusInterrupted, by: workorder.BySignal, reason: cause.Error()}
}

// AttemptOf is the attempt as the remote is to know it, from what is known of the run.
func AttemptOf(r *workorder.Result, head string) workorder.Attempt {
	a := workorder.Attempt{
		ID: r.AttemptID, Number: r.Attempt, Mode: r.Mode, Status: r.Status, EndedBy: r.EndedBy, Reason: r.Reason,
		ResumeAt: r.ResumeAt, StartedAt: r.StartedAt, EndedAt: time.Now().UTC(), HeadSHA: head, Agent: r.Agent, Usage: r.Usage, Plan: r.Plan,
	}
	for _, v := range r.Validation {
		if !v.Passed {
			a.Validation = append(a.Validation, v.Name)
		}
	}
	return a
}

// earlier is how the attempts before ours ended.
func earlier(s *workorder.State, ours string) (list []workorder.Earlier) {
	if s == nil {
		return nil
	}
	for _, a := range s.Attempts {
		if a.ID != ours {
			list = append(list, workorder.Earlier{Number: a.Number, Mode: a.Mode, Status: a.Status, Reason: a.Reason, CostUSD: a.Usage.CostUSD})
		}
	}
	return list
}
