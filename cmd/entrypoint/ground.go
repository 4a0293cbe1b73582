package main

import (
	"errors"
	"os"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/cgroups"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/kernelfs"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// groundMissing is the variable by which PID 1 tells boot what the box's ground lacks.
const groundMissing = "SANDBOX_AGENT_GROUND"

// prepareBox divides the box's control groups and covers the machine's settings. A box that cannot have
// either is weaker than it should be, which boot says as a warning of the run.
func prepareBox(order []byte) (env []string) {
	if err := prepareGround(decodeOrder(order)); err != nil {
		return []string{groundMissing + "=" + err.Error()}
	}
	return nil
}

func prepareGround(o *workorder.Order) error {
	return errors.Join(
		cgroups.Divide(cgroups.Limits{PIDs: o.Limits.AgentPIDs(), Reserve: workorder.MemoryReserve}),
		kernelfs.Hold(),
	)
}

// endWork ends what runs on the agent's side of the box.
func endWork() error {
	g, err := cgroups.Open()
	return errors.Join(err, g.Kill(cgroups.Work))
}

// takeGroundMissing is what PID 1 said, "" for nothing. The variable is not for commands of the task.
func takeGroundMissing() string {
	text := os.Getenv(groundMissing)
	_ = os.Unsetenv(groundMissing)
	return text
}
