package statedir

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Process identifies a process, even after its id is reused.
type Process struct {
	PID   int    `json:"pid"`
	Start string `json:"start"` // start time as counted by the kernel
	Boot  string `json:"boot,omitempty"`
}

// ProcessOf returns the process with that id.
func ProcessOf(pid int) *Process { return &Process{PID: pid, Start: startTime(pid), Boot: bootID()} }

// Alive reports whether this process still runs. Without a start time it is false, because the id may be reused.
func (p *Process) Alive() bool {
	if p == nil || p.PID <= 1 || p.Start == "" || p.Boot != "" && p.Boot != bootID() {
		return false // records of older versions have no boot
	}
	return startTime(p.PID) == p.Start
}

// Signal sends sig to this process, or returns os.ErrProcessDone.
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
