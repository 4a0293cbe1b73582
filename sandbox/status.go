package sandbox

import (
	"context"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/wireclient"
)

// Status is how a sandbox is, and what it uses.
type Status struct {
	Info
	// Since is when it was started last; the rest is of one that runs.
	Since *time.Time `json:"since,omitempty"`
	// MemoryBytes and Processes are what it uses now, CPU all processor time since it was made; -1 where the kernel does not tell.
	MemoryBytes int64         `json:"memory_bytes,omitempty"`
	Processes   int64         `json:"processes,omitempty"`
	CPU         time.Duration `json:"cpu_ns,omitempty"`
	// LifeLeft is when Spec.Life ends it; nil where it does not.
	LifeLeft *time.Time `json:"ends,omitempty"`
	// Commands are those that run, and the last of the background that have ended.
	Commands []CommandInfo `json:"commands,omitempty"`
	// Ports is what listens in it.
	Ports []Port `json:"ports,omitempty"`
}

// Status is how the sandbox is. It starts none that has ended.
func (sb *Sandbox) Status(ctx context.Context) (Status, error) {
	s := Status{Info: sb.Info()}
	if s.State != StateRunning || sb.foreign || sb.unfit() != nil {
		return s, nil
	}
	err := sb.useAsItIs(ctx, func(c *wireclient.Client) error {
		since := c.Hello().Since
		s.Since = &since
		if sb.spec.Life > 0 {
			ends := since.Add(sb.spec.Life)
			s.LifeLeft = &ends
		}
		stats, err := c.Stats(ctx)
		if err != nil {
			return err
		}
		s.MemoryBytes, s.Processes, s.CPU = stats.MemoryBytes, stats.Processes, time.Duration(stats.CPUMicros)*time.Microsecond
		list, err := c.List(ctx)
		if err != nil {
			return err
		}
		s.Commands = commandInfos(list)
		ports, err := c.Ports(ctx)
		s.Ports = portsOf(ports)
		return err
	})
	return s, err
}
