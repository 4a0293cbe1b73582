package workorder

// Status is how a run ended.
type Status string

// The statuses of a result.
const (
	StatusSuccess        Status = "success"         // agent and validation succeeded, work is on the remote
	StatusFailed         Status = "failed"          // the task failed: agent, validation, setup or a service
	StatusUnproven       Status = "unproven"        // the agent did its part; checks fail as they did before it, and nothing shows what it changed
	StatusNoChanges      Status = "no_changes"      // everything succeeded and there is nothing to push
	StatusInterrupted    Status = "interrupted"     // stopped from outside; the work so far is on the remote
	StatusTimeout        Status = "timeout"         // timeout_minutes ran out
	StatusBudgetExceeded Status = "budget_exceeded" // max_budget_usd was reached
	StatusParked         Status = "parked"          // waits for a provider limit to reset
	StatusPlanned        Status = "planned"         // a plan was asked for and made
	StatusError          Status = "error"           // we failed: box, engine, git remote
	StatusLost           Status = "lost"            // the box vanished without a result; said by the host only
)

// Statuses lists every status.
func Statuses() []Status {
	return []Status{
		StatusSuccess, StatusUnproven, StatusFailed, StatusNoChanges, StatusInterrupted, StatusTimeout,
		StatusBudgetExceeded, StatusParked, StatusPlanned, StatusError, StatusLost,
	}
}

// Worked reports whether the agent did its part and no check got worse by it.
func (s Status) Worked() bool {
	return s == StatusSuccess || s == StatusUnproven || s == StatusNoChanges
}

// EndedBy names what ended the run, finer than the status.
type EndedBy string

// These can end a run.
const (
	ByAgent      EndedBy = "agent"      // the agent finished (or failed) by itself
	ByValidation EndedBy = "validation" // a validate command failed
	BySetup      EndedBy = "setup"      // packages, tools, .env or a setup command failed
	ByServices   EndedBy = "services"   // a service failed or never became healthy
	ByGit        EndedBy = "git"        // clone or push failed
	ByBox        EndedBy = "box"        // boot, inner engine or PID 1 failed
	ByOrder      EndedBy = "order"      // the order could not be read or obeyed
	BySignal     EndedBy = "signal"     // SIGTERM or SIGINT
	ByTimeout    EndedBy = "timeout"    // wall clock
	ByBudget     EndedBy = "budget"     // money
	ByLimit      EndedBy = "limit"      // a usage limit of the model's provider
	ByHang       EndedBy = "hang"       // the agent showed no sign of life
	ByLease      EndedBy = "lease"      // another box works on the task
	ByHost       EndedBy = "host"       // the container vanished or the engine died
)

// Endings lists everything that can end a run.
func Endings() []EndedBy {
	return []EndedBy{
		ByAgent, ByValidation, BySetup, ByServices, ByGit, ByBox, ByOrder, BySignal, ByTimeout, ByBudget,
		ByLimit, ByHang, ByLease, ByHost,
	}
}

// The exit codes of the CLI and of the box, in one table.
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
	ExitParked      = 14 // not before ResumeAt, while ExitInterrupted may go on at once
	ExitUnproven    = 15 // checks fail as before the task
	ExitUsage       = 64
)

// ExitCode is the exit code that a run with this ending has.
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
		if by == ByServices {
			return ExitBox
		}
		return ExitTaskFailed
	case StatusError:
		switch by {
		case ByGit, ByLease:
			return ExitGit
		case ByOrder:
			return ExitInvalid
		case ByBox, ByServices, ByHost:
			return ExitBox
		}
	case StatusLost:
		return ExitBox
	}
	return ExitGeneral
}

// Resumable reports whether going on from where the task was left makes sense
// without anybody changing anything: the end came from outside of the task, or by a
// fault that need not come again. A failed validation is the task's own answer, and an order
// that is refused is refused again.
func Resumable(s Status, by EndedBy) bool {
	switch s {
	case StatusInterrupted, StatusTimeout, StatusBudgetExceeded, StatusParked, StatusLost:
		return true
	case StatusError:
		return by != ByOrder
	case StatusFailed:
		return by == ByAgent || by == ByHang || by == ByServices
	}
	return false
}
