package runner

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/runner/harness"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type agentFacts struct {
	cause   error // why the agent was stopped; nil if it ended by itself
	exit    harness.Exit
	outcome harness.Outcome
	oom     bool
	hang    *hang                 // nil unless cause is errHang
	hangs   int                   // so far
	limit   *workorder.ModelLimit // provider limit that outlasts the agent's retries; nil if none
	budget  *float64
	spent   float64 // in this attempt, as measured
	earlier float64 // in earlier attempts
	halt    string
	refused bool   // model calls were refused because the budget is spent
	route   string // why the model's server is unreachable; "" if it is reachable
}

// agentEnding determines how the agent ended. A stop from outside takes precedence: a stopped agent may still exit with 0.
func agentEnding(f agentFacts) workorder.Ending {
	spent := f.spent
	if f.outcome.Usage.CostUSD != nil {
		spent = max(spent, *f.outcome.Usage.CostUSD)
	}
	overBudget := f.budget != nil && spent > *f.budget
	switch {
	case errors.Is(f.cause, ErrInterrupted):
		return ending(
			workorder.StatusInterrupted, workorder.EndedBySignal, workorder.ReasonSignal, "the run was stopped from outside while the agent worked",
		)
	case errors.Is(f.cause, ErrTimeout):
		return ending(workorder.StatusTimeout, workorder.EndedByTimeout, workorder.ReasonTimeout,
			"timeout_minutes ran out while the agent worked")
	case errors.Is(f.cause, errBudget), overBudget, f.refused && f.budget != nil:
		reason := overspent(spent, *f.budget, f.earlier)
		if f.refused && spent < *f.budget {
			reason += "; commands before the agent used the rest"
		}
		return ending(workorder.StatusBudgetExceeded, workorder.EndedByBudget, workorder.ReasonBudget, reason)
	case f.outcome.Verdict == harness.Budget:
		reason := f.outcome.Reason
		if f.earlier > 0 {
			reason += fmt.Sprintf(" (left by earlier attempts, which cost $%.4g)", f.earlier)
		}
		return ending(workorder.StatusBudgetExceeded, workorder.EndedByBudget, workorder.ReasonBudget, reason)
	case f.outcome.Verdict == harness.Limited:
		return ending(workorder.StatusParked, workorder.EndedByLimit, workorder.ReasonProviderLimit, f.outcome.Reason)
	case f.oom && f.cause == nil && f.outcome.Verdict != harness.Succeeded && (f.exit.Signal == "SIGKILL" || f.exit.Code == 137):
		return ending(
			workorder.StatusFailed, workorder.EndedByAgent, workorder.ReasonMemory,
			"the kernel killed the agent because the sandbox ran out of memory: raise limits.memory",
		)
	case f.limit != nil && f.outcome.Verdict != harness.Succeeded && !errors.Is(f.cause, errHalt) && !crashed(f), errors.Is(f.cause, errLimit):
		// The agent's own report does not count: no model is available until then.
		return ending(workorder.StatusParked, workorder.EndedByLimit, workorder.ReasonProviderLimit, limitReason(f.limit))
	case errors.Is(f.cause, errRoute), f.route != "" && f.outcome.Verdict != harness.Succeeded && f.cause == nil && !crashed(f):
		// The agent only reports a lost server.
		return ending(
			workorder.StatusFailed, workorder.EndedByAgent, workorder.ReasonRoute,
			cmp.Or(f.route, errRoute.Error())+": check the name server and the routes of this machine, and the address of the model's server",
		)
	case errors.Is(f.cause, errHang):
		reason := f.hang.reason()
		if f.hangs > 1 {
			reason += " (it had hung before and was resumed)"
		}
		return ending(workorder.StatusFailed, workorder.EndedByHang, workorder.ReasonHang, reason)
	case errors.Is(f.cause, errHalt):
		return ending(workorder.StatusFailed, workorder.EndedByAgent, f.outcome.Code, f.halt)
	case f.outcome.Verdict == harness.Succeeded:
		return workorder.Succeeded()
	case f.oom:
		return ending(
			workorder.StatusFailed, workorder.EndedByAgent, workorder.ReasonMemory,
			f.outcome.Reason+" (the sandbox ran out of memory meanwhile: raise limits.memory)",
		)
	}
	if f.cause == nil && notStarted(f.exit) && f.outcome.Turns == 0 && f.outcome.Usage.Tokens() == 0 {
		return ending(
			workorder.StatusFailed, workorder.EndedByAgent, workorder.ReasonNoAgent,
			f.outcome.Reason+" (a shell's code for a program that is missing or not executable: is it in the image, or does a setup command "+
				"install it?)",
		)
	}
	return ending(workorder.StatusFailed, workorder.EndedByAgent, f.outcome.Code, f.outcome.Reason)
}

// notStarted reports whether a shell could not start the agent's program, or its interpreter.
func notStarted(e harness.Exit) bool {
	const notExecutable, notFound = 126, 127
	return e.Signal == "" && (e.Code == notExecutable || e.Code == notFound)
}

func ending(s workorder.Status, by workorder.EndedBy, code workorder.ReasonCode, detail string) workorder.Ending {
	return workorder.Ending{Status: s, EndedBy: by, Reasons: workorder.Reasons{{Code: cmp.Or(code, workorder.ReasonAgent), Detail: detail}}}
}

// crashed reports whether the agent ended in a way that a model limit cannot explain.
func crashed(f agentFacts) bool { return f.cause == nil && (f.exit.Signal != "" || notStarted(f.exit)) }

func limitReason(l *workorder.ModelLimit) string {
	const reached = "a limit of the model's provider was reached"
	if l == nil {
		return reached
	}
	return fmt.Sprintf("%s: it refuses calls with %s until %s", reached, l.Text, l.Until.UTC().Format(time.RFC3339))
}

// overspent describes the spending. budget is what earlier attempts left.
func overspent(spent, budget, earlier float64) string {
	if earlier > 0 {
		return fmt.Sprintf(
			"the agent spent $%.4g in this attempt and $%.4g in earlier ones, max_budget_usd is $%.4g", spent, earlier, budget+earlier,
		)
	}
	return fmt.Sprintf("the agent spent $%.4g, max_budget_usd is $%.4g", spent, budget)
}

// Facts are the inputs of Verdict, known when agent and validation are over.
type Facts struct {
	Agent      AgentOutcome
	Validation []workorder.Validation
	// Found reports that the checks were detected: one that is cut off says nothing.
	Found bool
	// HasRepo and Commits: the number of commits that the base lacks, including commits by the box.
	HasRepo bool
	Commits int
	// FailedServices describes, in one sentence each, services that failed during the run.
	FailedServices []string
	// Cause is context.Cause of the run at the end of validation; nil while it is active.
	Cause error
}

// Verdict judges the run before the push, which may still turn it into an error.
func Verdict(f Facts) workorder.Ending {
	e := judge(f)
	if e.Status != workorder.StatusSuccess {
		for _, text := range f.FailedServices {
			e.Reasons = e.Reasons.And(workorder.ReasonServiceLost, "%s", text)
		}
	}
	return e
}

func judge(f Facts) workorder.Ending {
	if f.Agent.Status != workorder.StatusSuccess {
		return f.Agent.Ending
	}
	var failed []string
	for _, v := range f.Validation {
		if !v.Passed {
			failed = append(failed, fmt.Sprintf("%s (exit %d)", v.Name, v.ExitCode))
		}
	}
	switch {
	case len(failed) > 0 && f.Cause != nil && (!f.Found || !errors.Is(classify(f.Cause), ErrTimeout)):
		// The end of the run may have made them fail.
		if errors.Is(classify(f.Cause), ErrTimeout) {
			return ending(workorder.StatusTimeout, workorder.EndedByTimeout, workorder.ReasonTimeout, "timeout_minutes ran out during validation")
		}
		return ending(
			workorder.StatusInterrupted, workorder.EndedBySignal, workorder.ReasonSignal, "the run was stopped from outside during validation",
		)
	case len(failed) > 0:
		return ending(
			workorder.StatusFailed, workorder.EndedByValidation, workorder.ReasonValidation, "validation failed: "+strings.Join(failed, ", "),
		)
	case f.HasRepo && f.Commits == 0 && f.Agent.Denials > 0:
		return ending(
			workorder.StatusFailed, workorder.EndedByAgent, workorder.ReasonDenied,
			fmt.Sprintf("the agent changed nothing: %d of its tool calls were denied", f.Agent.Denials),
		)
	case f.HasRepo && f.Commits == 0:
		return ending(workorder.StatusNoChanges, workorder.EndedByAgent, workorder.ReasonUnchanged, "the agent finished and changed nothing")
	}
	return workorder.Succeeded()
}
