//go:build !linux

package proc

// SetCloseOnExec does nothing: it is for Linux only.
func SetCloseOnExec() {}
