package proc

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// scopeABI is the first version of Landlock that knows scopes: Linux 6.12.
const scopeABI = 6

// scopeAbstract is the scope of sockets without a path.
const scopeAbstract = 1 << 0

// scopeSockets keeps the calling thread and its children from others' sockets without a path, which are in reach on the
// machine's network. The thread gives up new privileges. Kernels before 6.12 continue without.
func scopeSockets() error {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 || abi < scopeABI {
		return nil
	}
	attr := struct{ fs, net, scoped uint64 }{scoped: scopeAbstract}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return fmt.Errorf("make a ruleset of Landlock: %w", errno)
	}
	defer unix.Close(int(fd))
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return fmt.Errorf("restrict sockets: %w", errno)
	}
	return nil
}
