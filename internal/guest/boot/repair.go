package boot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// repair sends failed checks back to the agent until they pass, within the rounds, the budget and the time.
func (b *worker) repair(ctx context.Context) error {
	var err error
	for round := 1; round <= b.Order.Repair.MaxAttempts && ctx.Err() == nil; round++ {
		if err = b.repairOnce(ctx, round); err != nil || failures(b.checks) == nil {
			break
		}
	}
	if failed := failures(b.checks); err == nil && failed != nil {
		err = fmt.Errorf("validation still fails: %w", failed)
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}

// unrepairable returns why nothing is sent back; it is empty if the agent can repair.
func (b *worker) unrepairable() string {
	switch {
	case b.neverBegan:
		return whyNothingToCheck
	case !b.validated:
		return ""
	case b.agentEnd.Status != workorder.StatusSuccess:
		return "the agent did not end successfully"
	case failures(b.checks) == nil:
		return "no check failed"
	case b.prep.cloned != nil && (!b.committed || b.left != nil):
		// Files that the checks leave would look like the agent's.
		return "the agent's work is not completely committed"
	}
	return ""
}

// repairOnce is one round. An error means that the agent did not end successfully, which ends the loop.
func (b *worker) repairOnce(ctx context.Context, round int) error {
	began := time.Now()
	r := workorder.RepairRound{Number: round}
	for _, c := range b.checks {
		if !c.Passed {
			r.Failed = append(r.Failed, c.Name)
		}
	}
	if b.prep.cloned != nil {
		// Files that validation left are not the agent's work.
		b.Repo.StopSaving(ctx)
		if _, err := b.Repo.RecordSetupFiles(ctx); err != nil {
			b.Rec.Warn(fmt.Sprintf("files that validation left in the work tree may be taken for the agent's work: %v", err))
		}
		b.committed = false
		b.Repo.Push(ctx, false)
	}
	end := b.Task.Repair(ctx, round, b.checks, b.agentEnd.Usage)
	if end.Usage.CostUSD == nil && end.Usage.Tokens() > 0 && b.agentEnd.Usage.CostUSD != nil {
		end.Warnings = append(end.Warnings, fmt.Sprintf("the cost of repair round %d is unknown: the cost of the run is a lower bound", round))
	}
	end.Usage = b.agentEnd.Usage.Plus(end.Usage)
	end.Agent.Turns += b.agentEnd.Agent.Turns
	b.agentEnd = end
	b.recordAgent()
	if ctx.Err() == nil {
		b.keepAgentsWork(ctx)
	}
	r.Status, r.Reason, r.ReasonCode = end.Status, end.Reasons.String(), end.Reasons.Code()
	if end.Status == workorder.StatusSuccess && ctx.Err() == nil {
		r.Validation = b.check(ctx)
	}
	r.DurationMS = time.Since(began).Milliseconds()
	b.Rec.Update(func(res *workorder.Result) { res.Repairs = append(res.Repairs, r) })
	if end.Status != workorder.StatusSuccess {
		return errors.New(end.Reasons.String())
	}
	return nil
}
