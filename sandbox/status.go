package sandbox

import (
	"context"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/wireclient"
)

// Status is a sandbox's state and resource use.
type Status struct {
	Info
	// Since is the time of the last start. The fields below are set only for a running sandbox.
	Since *time.Time `json:"since,omitempty"`
	// MemoryBytes and Processes are the current use, CPU the total processor time; -1 if the kernel does not report it.
	MemoryBytes int64         `json:"memory_bytes,omitempty"`
	Processes   int64         `json:"processes,omitempty"`
	CPU         time.Duration `json:"cpu_ns,omitempty"`
	Ends        *time.Time    `json:"ends,omitempty"` // when Spec.TTL stops it; nil if unlimited
	// Commands are the running commands and the latest ended background commands.
	Commands []CommandInfo `json:"commands,omitempty"`
	Ports    []Port        `json:"ports,omitempty"` // the listening ports
}

// Status returns the sandbox's status. It does not start a stopped sandbox.
func (sb *Sandbox) Status(ctx context.Context) (Status, error) {
	s := Status{Info: sb.Info()}
	if s.State != StateRunning || sb.in.foreign || sb.in.unfit() != nil {
		return s, nil
	}
	err := sb.in.useAsItIs(ctx, func(c *wireclient.Client) error {
		since := c.Hello().Since
		s.Since = &since
		if sb.in.spec.TTL > 0 {
			ends := since.Add(sb.in.spec.TTL)
			s.Ends = &ends
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
