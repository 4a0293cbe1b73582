package proc

import (
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

const nativeArch = unix.AUDIT_ARCH_X86_64

// x32Bit marks the numbers of the x32 instruction set, which has the same arch.
const x32Bit = 0x40000000

var otherNumbers = []bpf.Instruction{
	bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: x32Bit, SkipFalse: 1},
	refuse(unix.ENOSYS),
}

// oldCalls are refused calls that newer architectures do not have.
var oldCalls = []uintptr{
	unix.SYS_CREATE_MODULE, unix.SYS_GET_KERNEL_SYMS, unix.SYS_IOPERM, unix.SYS_IOPL, unix.SYS_QUERY_MODULE, unix.SYS_SYSFS, unix.SYS__SYSCTL, unix.SYS_USELIB, unix.SYS_USTAT,
}
