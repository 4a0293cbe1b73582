package claim

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/evidence"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// DoneError means that the task is done, or parked until later, and that the order only asks for its result.
type DoneError struct {
	State   *workorder.State
	Attempt workorder.Attempt // the last one
	// Result is the attempt's, from the remote; nil if the remote has none.
	Result *workorder.Result
}

func (e *DoneError) Error() string {
	return fmt.Sprintf(
		"attempt %d of task %s has ended with the status %s: nothing to run", e.Attempt.Number, e.State.TaskID, e.Attempt.Status,
	)
}

// onWith reports whether to continue a task that the remote has although the mode does not request it. Plans stay plans.
func (ls *Claimer) onWith(v remoteTask) bool {
	if !ls.Repos.Order.MayContinue() || ls.Repos.Order.Mode.Continues() {
		return false
	}
	return v.state == nil || !onlyPlans(v.state) || len(v.state.Attempts) == 0
}

// done returns the result to report instead of a run; nil if there is work to do or another check decides.
func (ls *Claimer) done(ctx context.Context, v remoteTask) *DoneError {
	s, o := v.state, ls.Repos.Order
	if o.IfExists != workorder.IfExistsReport || s == nil || s.Lease != nil || ls.Ledger.OwnAttempt(s) != nil {
		return nil
	}
	last := s.Last()
	if last == nil || !workorder.ReportsResult(last, time.Now()) || (last.Mode == workorder.ModePlan) != (o.Mode == workorder.ModePlan) {
		return nil
	}
	e := &DoneError{State: s, Attempt: *last}
	if r, err := ls.readResult(ctx, v.refs[workorder.ResultRef(o.TaskID)]); err == nil && r.TaskID == o.TaskID && r.AttemptID == last.ID &&
		r.Status == last.Status {
		e.Result = r
	}
	return e
}

// readResult reads the result from a commit of the mirror. Others can write to the remote, so the size is checked.
func (ls *Claimer) readResult(ctx context.Context, commit string) (*workorder.Result, error) {
	if commit == "" {
		return nil, fmt.Errorf("the remote has no result of task %s", ls.Repos.Order.TaskID)
	}
	blob := commit + ":" + workorder.ResultFile
	out, err := ls.Repos.Mirror().Output(ctx, "cat-file", "-s", blob)
	if err != nil {
		return nil, fmt.Errorf("read the recorded result: %w", err)
	}
	if n, err := strconv.Atoi(strings.TrimSpace(string(out))); err != nil || n > evidence.MaxBytes {
		return nil, fmt.Errorf("read the recorded result: it has %s bytes", strings.TrimSpace(string(out)))
	}
	if out, err = ls.Repos.Mirror().Output(ctx, "cat-file", "blob", blob); err != nil {
		return nil, fmt.Errorf("read the recorded result: %w", err)
	}
	return workorder.DecodeResult(out)
}

type existsError struct{ task string }

func (e *existsError) Error() string { return "the remote knows task " + e.task + " already" }

// EndedBy implements boot.EndedByer.
func (e *existsError) EndedBy() workorder.EndedBy { return workorder.EndedByOrder }

func (e *existsError) Is(target error) bool { return target == ErrTaskExists }

// onlyPlans reports whether all known attempts are plans, which leave nothing else behind.
func onlyPlans(s *workorder.State) bool {
	return s != nil && !slices.ContainsFunc(s.Attempts, func(a workorder.Attempt) bool { return a.Mode != workorder.ModePlan })
}
