package proc

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// NewPlace makes a place: arrange runs in it, with the caller's mounts as they are at this moment, and what it mounts is there alone.
// Later mounts of the caller do not appear there.
func NewPlace(arrange func() error) (*Place, error) {
	type made struct {
		place *Place
		err   error
	}
	c := make(chan made)
	go func() {
		runtime.LockOSThread() // the thread is thrown away: it cannot go back
		p, err := newPlace(arrange)
		c <- made{p, err}
	}()
	m := <-c
	return m.place, m.err
}

func newPlace(arrange func() error) (*Place, error) {
	// Its own root and working directory, too: threads share them otherwise.
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS | unix.CLONE_NEWIPC); err != nil {
		return nil, fmt.Errorf("make namespaces: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return nil, fmt.Errorf("keep mounts apart: %w", err)
	}
	if err := arrange(); err != nil {
		return nil, err
	}
	p := &Place{}
	var err, ierr error
	p.mounts, err = os.Open("/proc/thread-self/ns/mnt")
	p.ipc, ierr = os.Open("/proc/thread-self/ns/ipc")
	if err := errors.Join(err, ierr); err != nil {
		return nil, errors.Join(fmt.Errorf("hold namespaces: %w", err), p.mounts.Close(), p.ipc.Close())
	}
	return p, nil
}

// enter brings the calling thread into the place. The thread must not be used for anything else.
func (p *Place) enter() error {
	if p == nil {
		return nil
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("enter place: %w", err)
	}
	if err := unix.Setns(int(p.ipc.Fd()), unix.CLONE_NEWIPC); err != nil {
		return fmt.Errorf("enter place: shared memory: %w", err)
	}
	if err := unix.Setns(int(p.mounts.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter place: mounts: %w", err)
	}
	return nil
}
