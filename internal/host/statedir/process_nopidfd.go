//go:build !linux

package statedir

import "golang.org/x/sys/unix"

// signal relies on the check before it, because this system has no process handles.
func (p *Process) signal(sig unix.Signal) error { return unix.Kill(p.PID, sig) }
