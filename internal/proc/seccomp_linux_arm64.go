package proc

import (
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

const nativeArch = unix.AUDIT_ARCH_AARCH64

var (
	otherNumbers []bpf.Instruction
	oldCalls     []uintptr
)
