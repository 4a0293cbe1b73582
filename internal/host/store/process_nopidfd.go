//go:build !linux

package store

import "golang.org/x/sys/unix"

// signal relies on the look right before it: there is no handle of a process here.
func (p *Process) signal(sig unix.Signal) error { return unix.Kill(p.PID, sig) }
