// Package hardening prepares the kernel environment of a box before boot starts, and reports the protections that are unavailable.
package hardening

import (
	"errors"
	"os"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/cgroups"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// missing is the variable by which PID 1 reports missing protections to boot.
const missing = "SANDBOX_AGENT_HARDENING_ERROR"

// Prepare divides the box's control groups and protects the machine's settings.
func Prepare(l workorder.Limits) error {
	return errors.Join(
		cgroups.Divide(cgroups.Limits{PIDs: l.AgentPIDs(), Reserve: workorder.MemoryReserve}),
		protectKernel(),
	)
}

// EnvFor returns the environment by which boot learns why Prepare failed; boot adds it to the run's warnings.
func EnvFor(err error) (env []string) {
	if err == nil {
		return nil
	}
	return []string{missing + "=" + err.Error()}
}

// KillAgent kills all processes on the agent's side of the box.
func KillAgent() error {
	g, err := cgroups.Open()
	return errors.Join(err, g.Kill(cgroups.Work))
}

// TakeFailure returns PID 1's report, "" if there is none, and removes the variable.
func TakeFailure() string {
	text := os.Getenv(missing)
	_ = os.Unsetenv(missing)
	return text
}
