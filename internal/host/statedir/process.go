package statedir

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Process identifies a process, even after its id was reused.
type Process struct {
	PID   int    `json:"pid"`
	Start string `json:"start"` // start time as counted by the kernel
	Boot  string `json:"boot,omitempty"`
}

// ProcessOf describes the process with that id.
func ProcessOf(pid int) *Process { return &Process{PID: pid, Start: startTime(pid), Boot: bootID()} }

// Alive reports whether that very process still runs. A process without a known start
// time counts as gone: its id may be reused.
func (p *Process) Alive() bool {
	if p == nil || p.PID <= 1 || p.Start == "" || p.Boot != "" && p.Boot != bootID() {
		return false // records of older versions do not name the boot
	}
	return startTime(p.PID) == p.Start
}

// Signal sends sig to that very process, or returns os.ErrProcessDone.
func (p *Process) Signal(sig unix.Signal) error {
	if !p.Alive() {
		return os.ErrProcessDone
	}
	err := p.signal(sig)
	if errors.Is(err, unix.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}
