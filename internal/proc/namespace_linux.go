package proc

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// NamespaceFlags selects kinds of namespaces.
type NamespaceFlags uintptr

// Kinds that a Namespace can have.
const (
	OwnMounts       NamespaceFlags = unix.CLONE_NEWNS
	OwnMountsAndIPC NamespaceFlags = unix.CLONE_NEWNS | unix.CLONE_NEWIPC
)

// NewNamespace creates a namespace with the caller's current mounts, and runs arrange in it.
func NewNamespace(own NamespaceFlags, arrange func() error) (*Namespace, error) {
	var n *Namespace
	err := onThrowawayThread(func() (err error) { // the thread cannot return to its old namespace
		n, err = newNamespace(own, arrange)
		return err
	})
	return n, err
}

func newNamespace(own NamespaceFlags, arrange func() error) (*Namespace, error) {
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
	n := &Namespace{mounts: mounts}
	if own == OwnMountsAndIPC {
		if n.ipc, err = os.Open("/proc/thread-self/ns/ipc"); err != nil {
			return nil, errors.Join(fmt.Errorf("hold namespaces: %w", err), mounts.Close())
		}
	}
	return n, nil
}

// Name returns the path at which another process of root finds the namespace while this process holds it.
func (n *Namespace) Name() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.mounts.Fd()) }

// OpenNamespace opens a mount namespace that another process holds.
func OpenNamespace(name string) (*Namespace, error) {
	mounts, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open namespace: %w", err)
	}
	return &Namespace{mounts: mounts}, nil
}

// Hide makes directories of a namespace inaccessible, with all mounts on and below them. Call it in arrange.
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

// Do calls f in the namespace, where f may mount. f must not keep the thread. A nil namespace is the caller's.
func (n *Namespace) Do(f func() error) error {
	if n == nil {
		return f()
	}
	return onThrowawayThread(func() error {
		if err := n.enter(); err != nil {
			return err
		}
		return f()
	})
}

// enter moves the calling thread into the namespace. The thread must not be used for anything else.
func (n *Namespace) enter() error {
	if n == nil {
		return nil
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("enter namespace: %w", err)
	}
	if n.ipc != nil {
		if err := unix.Setns(int(n.ipc.Fd()), unix.CLONE_NEWIPC); err != nil {
			return fmt.Errorf("enter namespace: shared memory: %w", err)
		}
	}
	if err := unix.Setns(int(n.mounts.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter namespace: mounts: %w", err)
	}
	return nil
}
