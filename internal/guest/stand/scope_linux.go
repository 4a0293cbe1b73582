package stand

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// scopeABI is the first version of Landlock that knows scopes: Linux 6.12.
const scopeABI = 6

// scopes of Landlock: sockets without a path, and signals, end at the sandbox.
const scopes = 1<<0 | 1<<1

// keepToItself takes sockets without a path of others from this process and all that it starts: with the machine's network they are in reach, and who listens
// there looks at the user of a caller only. Kernels before 6.12 cannot; it reports whether this one could.
func keepToItself() bool {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 || abi < scopeABI {
		return false
	}
	attr := struct{ fs, net, scoped uint64 }{scoped: scopes}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return false
	}
	defer unix.Close(int(fd))
	// Of every thread: a child has what the thread has that forks it.
	_, _, errno = syscall.AllThreadsSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0)
	return errno == 0
}
