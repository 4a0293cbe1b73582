package boot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/pipeline"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// commitTime bounds the commit after the agent: an agent can make git hang, and validation must keep its time.
const commitTime = 3 * time.Minute

// begin marks the containers, adapts the order to this attempt and starts saving.
func (b *worker) begin(ctx context.Context) error {
	if err := b.Engine.Mark(ctx); err != nil {
		b.Rec.Warn("the project's own containers cannot be distinguished from the agent's: " + err.Error())
	}
	if b.Rebaser != nil {
		return b.move.beginRebase()
	}
	if err := b.prepare(); err != nil {
		return err
	}
	b.ran = true
	if b.Order.Mode != workorder.ModePlan && b.prep.cloned != nil {
		b.watchLease()
		b.Repo.Save()
	}
	return nil
}

// stop returns the error that ends the work with this ending.
func stop(e workorder.Ending) error {
	return &pipeline.SkipRest{Reason: e.Reasons.String(), Err: &endError{e}}
}

// endError is a step's error with its ending. If Status is empty, the verdict follows from the commits and checks.
type endError struct{ workorder.Ending }

func (e *endError) Error() string { return e.Reasons.String() }

// watchLease ends the run if another box takes the task over. It watches until unwatch is called.
func (b *worker) watchLease() {
	over := make(chan struct{})
	b.unwatch = func() { close(over) }
	go func() {
		select {
		case <-b.Repo.Lost():
			b.interrupt(errLeaseLost)
		case <-over:
		}
	}()
}

// prepare adapts the order to the task's earlier attempts. It returns an error if no time or budget is left.
func (b *worker) prepare() error {
	c := b.prep.cloned
	if c == nil || c.Restored == nil {
		return nil
	}
	o := b.Order
	if slices.ContainsFunc(c.State.Attempts, func(a workorder.Attempt) bool { return a.Mode == workorder.ModePlan }) {
		return stop(because(workorder.StatusError, workorder.EndedByOrder, workorder.ReasonPlan,
			"task %s is a plan and cannot be continued: run `sandbox-agent create --from-plan %[1]s`", o.TaskID))
	}
	if c.State.Task != "" {
		o.Task = c.State.Task
	}
	if o.Task == "" {
		return stop(because(workorder.StatusError, workorder.EndedByOrder, workorder.ReasonNoTask,
			"the remote does not have the task text of %s: pass it with --task", o.TaskID))
	}
	if spent := c.State.SpentUSD(); o.MaxBudgetUSD != nil && spent > 0 {
		left := *o.MaxBudgetUSD - spent
		if left <= 0 {
			return stop(because(
				workorder.StatusBudgetExceeded, workorder.EndedByBudget, workorder.ReasonBudget,
				"the task has spent $%.4g in %d attempts, max_budget_usd is $%.4g for all of them: continue with `sandbox-agent continue %s "+
					"--max-budget-usd AMOUNT`",
				spent, c.Attempt-1, *o.MaxBudgetUSD, o.TaskID,
			))
		}
		o.MaxBudgetUSD = &left
	}
	b.Task.Continue(*c)
	return nil
}

func (b *worker) agent(ctx context.Context) error {
	if b.Rebaser != nil {
		b.Rebaser.PromptConflicts()
		b.Repo.Save()
		defer b.land.unreserve()
	}
	b.agentEnd = b.Task.Agent(ctx)
	b.neverBegan = neverBegan(b.agentEnd)
	b.recordAgent()
	if b.agentEnd.Status != workorder.StatusSuccess {
		return errors.New(b.agentEnd.Reasons.String())
	}
	if b.Order.Mode == workorder.ModePlan {
		b.takePlan()
	}
	return nil
}

// whyNothingToCheck is why there are no checks, repairs and proof when the agent could not start.
const whyNothingToCheck = "the agent could not start"

// neverBegan reports whether the agent ended before it could do anything, so that there is nothing to check.
func neverBegan(end AgentEnd) bool {
	switch end.Reasons.Code() {
	case workorder.ReasonNoAgent, workorder.ReasonModelName:
		return true
	case workorder.ReasonRoute:
		return end.Usage.Tokens() == 0
	}
	return false
}

func (b *worker) recordAgent() {
	end := b.agentEnd
	b.Rec.Update(func(r *workorder.Result) {
		r.Agent, r.Usage, r.ResumeAt = end.Agent, end.Usage, end.ResumeAt
		r.Evidence = append(r.Evidence, end.Evidence...)
	})
	for _, w := range end.Warnings {
		b.Rec.Warn(w)
	}
}

// keepAgentsWork commits and pushes the agent's changes before validation, which leaves other files and can take long.
func (b *worker) keepAgentsWork(ctx context.Context) {
	if err := b.Rec.ReleaseForLanding(); err != nil {
		b.Rec.Warn(err.Error())
	}
	if b.prep.cloned == nil {
		return
	}
	slice, done := context.WithTimeoutCause(ctx, commitTime, fmt.Errorf("not done within %s", commitTime))
	defer done()
	settle, settled := context.WithTimeout(slice, commitTime/2) // the commit needs time, too
	b.Repo.StopSaving(settle)
	settled()
	_ = b.land.commit(slice) // landing tries again and reports the error
	b.Repo.Push(ctx, b.committed)
}

func (b *worker) check(ctx context.Context) []workorder.Validation {
	if b.Prover != nil && b.prep.cloned != nil {
		b.leaveOut(b.Prover.Endless(b.prep.cloned.BaseSHA))
	}
	b.validated = true
	checks := b.Task.Validate(ctx)
	b.checks = checks
	b.Rec.Update(func(r *workorder.Result) { r.Validation = checks })
	return checks
}

// leaveOut removes detected checks that cannot judge the work.
func (b *worker) leaveOut(list []workorder.LeftOut) {
	for _, one := range list {
		b.Order.Validate = slices.DeleteFunc(slices.Clone(b.Order.Validate), func(c workorder.Check) bool { return c.Name == one.Name })
		b.checks = slices.DeleteFunc(slices.Clone(b.checks), func(v workorder.Validation) bool { return v.Name == one.Name })
		b.Rec.Warn(fmt.Sprintf("the check %s, found in the repository, is left out: %s", one.Name, one.Reason))
	}
}

// failures names the failed checks; it returns nil if all passed.
func failures(checks []workorder.Validation) error {
	var failed []string
	for _, c := range checks {
		if !c.Passed {
			failed = append(failed, fmt.Sprintf("%s exited with %d", c.Name, c.ExitCode))
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return errors.New(strings.Join(failed, "; "))
}

// Reasons why a plan run skips steps of other runs. The agent's changes are lost with the box.
const (
	whyNoPush   = "a plan does not change the repository"
	whyNoChecks = "there is nothing to validate in a plan"
)

func (b *worker) takePlan() {
	text, path, err := b.Task.Plan()
	if err != nil {
		b.planned = because(workorder.StatusFailed, workorder.EndedByAgent, workorder.ReasonNoPlan, "%v", err)
		return
	}
	b.Rec.Update(func(r *workorder.Result) {
		r.Plan = text
		r.Evidence = append(r.Evidence, workorder.Evidence{Name: "the plan", Path: path, Kind: "plan"})
	})
	b.planned = workorder.Ending{Status: workorder.StatusPlanned, EndedBy: workorder.EndedByAgent}
}
