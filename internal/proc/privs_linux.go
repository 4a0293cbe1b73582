package proc

import (
	"fmt"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// startNoNewPrivs starts cmd from a thread of its own that has given up new
// privileges and has a filter of system calls: both are a thread's, are inherited by fork and cannot be taken back, so the thread
// is thrown away (a goroutine that ends locked takes its thread with it).
func startNoNewPrivs(cmd *exec.Cmd) error {
	errc := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			errc <- fmt.Errorf("set no_new_privs: %w", err)
			return
		}
		if err := filterCalls(); err != nil {
			errc <- err
			return
		}
		errc <- cmd.Start()
	}()
	return <-errc
}
