package proc

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Namespaces are those that a place has of its own.
type Namespaces uintptr

// A place can have these of its own.
const (
	OwnMounts       Namespaces = unix.CLONE_NEWNS
	OwnMountsAndIPC Namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWIPC
)

// NewPlace makes a place: arrange runs in it, with the caller's mounts as they are at this moment, and what it mounts is there alone.
// Later mounts of the caller do not appear there.
func NewPlace(own Namespaces, arrange func() error) (*Place, error) {
	var p *Place
	err := onThrowawayThread(func() (err error) { // it cannot go back
		p, err = newPlace(own, arrange)
		return err
	})
	return p, err
}

func newPlace(own Namespaces, arrange func() error) (*Place, error) {
	// Its own root and working directory, too: threads share them otherwise.
	if err := unix.Unshare(unix.CLONE_FS | int(own)); err != nil {
		return nil, fmt.Errorf("make namespaces: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return nil, fmt.Errorf("keep mounts apart: %w", err)
	}
	if err := arrange(); err != nil {
		return nil, err
	}
	mounts, err := os.Open("/proc/thread-self/ns/mnt")
	if err != nil {
		return nil, fmt.Errorf("hold namespaces: %w", err)
	}
	p := &Place{mounts: mounts}
	if own == OwnMountsAndIPC {
		if p.ipc, err = os.Open("/proc/thread-self/ns/ipc"); err != nil {
			return nil, errors.Join(fmt.Errorf("hold namespaces: %w", err), mounts.Close())
		}
	}
	return p, nil
}

// Name is where another process of root finds the place, while this process holds it.
func (p *Place) Name() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), p.mounts.Fd()) }

// OpenPlace opens the place that another process holds, which has no shared memory of its own.
func OpenPlace(name string) (*Place, error) {
	mounts, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open place: %w", err)
	}
	return &Place{mounts: mounts}, nil
}

// Hide makes directories of a place inaccessible, with their content and all mounts on and below them. A folder that
// is not there is none to hide. It is called by arrange.
func Hide(dirs ...string) error {
	for _, dir := range dirs {
		for {
			err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
			if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
				break // nothing is mounted there (any more)
			} else if err != nil {
				return fmt.Errorf("hide %s: %w", dir, err)
			}
		}
		err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=4k,mode=000")
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("hide %s: %w", dir, err)
		}
	}
	return nil
}

// Do calls f in the place, in which it may mount. f must not keep the thread. A nil place is the caller's own.
func (p *Place) Do(f func() error) error {
	if p == nil {
		return f()
	}
	return onThrowawayThread(func() error {
		if err := p.enter(); err != nil {
			return err
		}
		return f()
	})
}

// enter brings the calling thread into the place. The thread must not be used for anything else.
func (p *Place) enter() error {
	if p == nil {
		return nil
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("enter place: %w", err)
	}
	if p.ipc != nil {
		if err := unix.Setns(int(p.ipc.Fd()), unix.CLONE_NEWIPC); err != nil {
			return fmt.Errorf("enter place: shared memory: %w", err)
		}
	}
	if err := unix.Setns(int(p.mounts.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter place: mounts: %w", err)
	}
	return nil
}
