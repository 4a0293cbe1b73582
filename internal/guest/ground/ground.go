// Package ground prepares what a box stands on before boot starts, and tells boot what of it this machine cannot have.
package ground

import (
	"errors"
	"os"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/cgroups"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/kernelfs"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// missing is the variable by which PID 1 tells boot what the box's ground lacks.
const missing = "SANDBOX_AGENT_GROUND"

// Prepare divides the box's control groups and covers the machine's settings. A box that cannot have
// either is weaker than it should be.
func Prepare(l workorder.Limits) error {
	return errors.Join(
		cgroups.Divide(cgroups.Limits{PIDs: l.AgentPIDs(), Reserve: workorder.MemoryReserve}),
		kernelfs.Hold(),
	)
}

// Tell is the environment by which boot learns why Prepare failed, which it says as a warning of the run.
func Tell(err error) (env []string) {
	if err == nil {
		return nil
	}
	return []string{missing + "=" + err.Error()}
}

// EndWork ends what runs on the agent's side of the box.
func EndWork() error {
	g, err := cgroups.Open()
	return errors.Join(err, g.Kill(cgroups.Work))
}

// TakeMissing is what PID 1 said, "" for nothing. The variable is not for commands of the task.
func TakeMissing() string {
	text := os.Getenv(missing)
	_ = os.Unsetenv(missing)
	return text
}
