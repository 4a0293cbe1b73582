// Command second is built for the machine's 32-bit instruction set. It says hello, and then which calls end
// otherwise than they should under the filter.
package main

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// socketcall is 32-bit x86's; ARM has none, and no table has it either.
const socketcall = 102

func main() {
	fmt.Println("hello")
	expect := func(what string, want, got error) {
		if !errors.Is(got, want) {
			fmt.Printf("%s: %v, want %v\n", what, got, want)
		}
	}
	call := func(number, a, b, c uintptr) error {
		if _, _, errno := unix.RawSyscall(number, a, b, c); errno != 0 {
			return errno
		}
		return nil
	}
	expect("getpid", nil, call(unix.SYS_GETPID, 0, 0, 0))
	expect("unshare", unix.EPERM, call(unix.SYS_UNSHARE, unix.CLONE_NEWUSER, 0, 0))
	expect("clone of a user namespace", unix.EPERM, call(unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.SIGCHLD), 0, 0))
	expect("clone3", unix.ENOSYS, call(unix.SYS_CLONE3, 0, 0, 0))
	expect("bpf", unix.EPERM, call(unix.SYS_BPF, 0, 0, 0))
	expect("keyctl", unix.EPERM, call(unix.SYS_KEYCTL, 0, 0, 0))
	expect("perf_event_open", unix.EPERM, call(unix.SYS_PERF_EVENT_OPEN, 0, 0, 0))
	expect("io_uring_setup", unix.ENOSYS, call(unix.SYS_IO_URING_SETUP, 1, 0, 0))
	expect("personality without random addresses", unix.EPERM, call(unix.SYS_PERSONALITY, 0x40000, 0, 0))
	expect("which personality", nil, call(unix.SYS_PERSONALITY, 0xffffffff, 0, 0))
	expect("socketcall", unix.ENOSYS, call(socketcall, 1, 0, 0))
	expect("a socket of inet", nil, call(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, 0))
	expect("a socket of vsock", unix.EAFNOSUPPORT, call(unix.SYS_SOCKET, unix.AF_VSOCK, unix.SOCK_STREAM, 0))
	expect("a pair of tipc", unix.EAFNOSUPPORT, call(unix.SYS_SOCKETPAIR, unix.AF_TIPC, unix.SOCK_STREAM, 0))
	expect("a call newer than the profile", unix.ENOSYS, call(unix.SYS_OPEN_TREE_ATTR, 0, 0, 0))
	expect("no call", unix.ENOSYS, call(5000, 0, 0, 0))
}
