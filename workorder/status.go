package workorder

// Status is the outcome of an attempt.
type Status string

// Statuses of a result.
const (
	StatusSuccess        Status = "success"         // agent and validation succeeded, work is on the remote
	StatusFailed         Status = "failed"          // the task failed: agent, validation, setup or a service
	StatusUnproven       Status = "unproven"        // checks fail as before the task, and nothing shows an effect of the change
	StatusNoChanges      Status = "no_changes"      // everything succeeded and there is nothing to push
	StatusInterrupted    Status = "interrupted"     // stopped from outside; the work so far is on the remote
	StatusTimeout        Status = "timeout"         // timeout_minutes ran out
	StatusBudgetExceeded Status = "budget_exceeded" // max_budget_usd was reached
	StatusParked         Status = "parked"          // waits for a provider limit to reset
	StatusPlanned        Status = "planned"         // a plan was asked for and made
	StatusError          Status = "error"           // internal failure: box, engine, git remote
	StatusLost           Status = "lost"            // the box vanished without a result; set only by the host
)

// Statuses returns every status.
func Statuses() []Status {
	return []Status{
		StatusSuccess, StatusUnproven, StatusFailed, StatusNoChanges, StatusInterrupted, StatusTimeout,
		StatusBudgetExceeded, StatusParked, StatusPlanned, StatusError, StatusLost,
	}
}

// Worked reports whether the agent did its part and no check got worse.
func (s Status) Worked() bool {
	return s == StatusSuccess || s == StatusUnproven || s == StatusNoChanges
}

// EndedBy is the cause of the end, finer than the status.
type EndedBy string

// Values of EndedBy.
const (
	EndedByAgent      EndedBy = "agent"      // the agent finished (or failed) by itself
	EndedByValidation EndedBy = "validation" // a validate command failed
	EndedBySetup      EndedBy = "setup"      // packages, tools, .env or a setup command failed
	EndedByServices   EndedBy = "services"   // a service failed or never became healthy
	EndedByGit        EndedBy = "git"        // clone or push failed
	EndedByBox        EndedBy = "box"        // boot, inner engine or PID 1 failed
	EndedByOrder      EndedBy = "order"      // the order could not be read or obeyed
	EndedBySignal     EndedBy = "signal"     // SIGTERM or SIGINT
	EndedByTimeout    EndedBy = "timeout"    // wall clock
	EndedByBudget     EndedBy = "budget"     // money
	EndedByLimit      EndedBy = "limit"      // a usage limit of the model's provider
	EndedByHang       EndedBy = "hang"       // the agent was inactive
	EndedByLease      EndedBy = "lease"      // another box works on the task
	EndedByHost       EndedBy = "host"       // the container vanished or the engine died
)

// Endings returns every EndedBy.
func Endings() []EndedBy {
	return []EndedBy{
		EndedByAgent, EndedByValidation, EndedBySetup, EndedByServices, EndedByGit, EndedByBox, EndedByOrder, EndedBySignal, EndedByTimeout,
		EndedByBudget,
		EndedByLimit, EndedByHang, EndedByLease, EndedByHost,
	}
}

// Exit codes of the CLI and of the box.
const (
	ExitOK          = 0
	ExitGeneral     = 1
	ExitNotFound    = 2  // task or sandbox
	ExitNoProject   = 3  // project
	ExitPort        = 4  // a port of this machine
	ExitBox         = 5  // the box did not start
	ExitInvalid     = 6  // project or order
	ExitGit         = 7  // git or forge
	ExitTaskFailed  = 10 // agent or validation
	ExitInterrupted = 11
	ExitTimeout     = 12
	ExitBudget      = 13
	ExitParked      = 14 // not before ResumeAt, while ExitInterrupted may be resumed at once
	ExitUnproven    = 15 // checks fail as before the task
	ExitUsage       = 64
)

// ExitCode returns the exit code of an attempt with this ending.
func ExitCode(s Status, by EndedBy) int {
	switch s {
	case StatusSuccess, StatusNoChanges, StatusPlanned:
		return ExitOK
	case StatusUnproven:
		return ExitUnproven
	case StatusInterrupted:
		return ExitInterrupted
	case StatusParked:
		return ExitParked
	case StatusTimeout:
		return ExitTimeout
	case StatusBudgetExceeded:
		return ExitBudget
	case StatusFailed:
		if by == EndedByServices {
			return ExitBox
		}
		return ExitTaskFailed
	case StatusError:
		switch by {
		case EndedByGit, EndedByLease:
			return ExitGit
		case EndedByOrder:
			return ExitInvalid
		case EndedByBox, EndedByServices, EndedByHost:
			return ExitBox
		}
	case StatusLost:
		return ExitBox
	}
	return ExitGeneral
}

// Resumable reports whether resuming the task unchanged may succeed: the end came from outside of the task, or by a
// fault that may not recur. A failed validation is the task's own result, and a refused order is refused again.
func Resumable(s Status, by EndedBy) bool {
	switch s {
	case StatusInterrupted, StatusTimeout, StatusBudgetExceeded, StatusParked, StatusLost:
		return true
	case StatusError:
		return by != EndedByOrder
	case StatusFailed:
		return by == EndedByAgent || by == EndedByHang || by == EndedByServices
	}
	return false
}
