package proc

import (
	"fmt"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// A child that drops to another user gets a filter of system calls as ordinary containers have one: the box
// itself has none, because its inner engine needs what this forbids. It keeps untrusted code from the parts of the kernel
// in which most of its privilege errors were found (user namespaces, bpf, io_uring, keys, mounts), and from
// sockets that no network policy sees.
//
// It follows the engine's own default profile for a process without capabilities. Where that lets a call pass by its
// arguments, so does this; ptrace is allowed, as there, because debuggers are part of the work.

// refusedCalls fail with EPERM whatever their arguments are.
var refusedCalls = append([]uintptr{
	unix.SYS_ACCT, unix.SYS_ADD_KEY, unix.SYS_BPF, unix.SYS_CLOCK_ADJTIME, unix.SYS_CLOCK_SETTIME, unix.SYS_DELETE_MODULE,
	unix.SYS_FINIT_MODULE, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSOPEN, unix.SYS_FSPICK, unix.SYS_INIT_MODULE,
	unix.SYS_KEXEC_FILE_LOAD, unix.SYS_KEXEC_LOAD, unix.SYS_KEYCTL, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_MOUNT, unix.SYS_MOUNT_SETATTR,
	unix.SYS_MOVE_MOUNT, unix.SYS_NFSSERVCTL, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_OPEN_TREE, unix.SYS_PERF_EVENT_OPEN,
	unix.SYS_PIVOT_ROOT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_REBOOT, unix.SYS_REQUEST_KEY, unix.SYS_SETNS,
	unix.SYS_SETTIMEOFDAY, unix.SYS_SWAPOFF, unix.SYS_SWAPON, unix.SYS_UMOUNT2, unix.SYS_USERFAULTFD, unix.SYS_VHANGUP,
}, oldCalls...)

// absentCalls fail with ENOSYS, after which libraries do without: clone3, because its flags lie in
// memory where a filter cannot look, and io_uring, whose requests pass by every filter.
var absentCalls = []uintptr{unix.SYS_CLONE3, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER}

// families are the kinds of sockets that can be made: what is not among them (vsock, which leads to the machine
// past every rule of its network; tipc, can, alg) fails as where the kernel has none.
var families = []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}

const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// Offsets in struct seccomp_data: the low half of an argument comes first on the
// little-endian machines that boxes run on.
const (
	offNumber = 0
	offArch   = 4
	offArg0   = 16
)

func refuse(errno unix.Errno) bpf.Instruction {
	return bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(errno)}
}

var pass = bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}

// callFilter is the program of the filter.
func callFilter() []bpf.Instruction {
	p := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: nativeArch, SkipTrue: 1},
		// Another instruction set has other numbers for all of these calls.
		refuse(unix.ENOSYS),
		bpf.LoadAbsolute{Off: offNumber, Size: 4},
	}
	p = append(p, otherNumbers...)
	for errno, calls := range map[unix.Errno][]uintptr{unix.EPERM: refusedCalls, unix.ENOSYS: absentCalls} {
		for _, n := range calls {
			p = append(p, bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(n), SkipFalse: 1}, refuse(errno))
		}
	}
	for _, n := range []uintptr{unix.SYS_CLONE, unix.SYS_UNSHARE} {
		p = append(p,
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(n), SkipFalse: 4},
			bpf.LoadAbsolute{Off: offArg0, Size: 4},
			bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: newNamespaces, SkipFalse: 1},
			refuse(unix.EPERM),
			pass,
		)
	}
	p = append(p,
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_SOCKET, SkipTrue: 1},
		pass,
		bpf.LoadAbsolute{Off: offArg0, Size: 4},
	)
	for _, f := range families {
		p = append(p, bpf.JumpIf{Cond: bpf.JumpEqual, Val: f, SkipFalse: 1}, pass)
	}
	return append(p, refuse(unix.EAFNOSUPPORT))
}

// filterCalls puts the filter on the calling thread and all that it starts. The thread
// must have given up new privileges.
func filterCalls() error {
	raw, err := bpf.Assemble(callFilter())
	if err != nil {
		return fmt.Errorf("assemble the filter of system calls: %w", err)
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		filter[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0); err != nil {
		return fmt.Errorf("set the filter of system calls: %w", err)
	}
	return nil
}
