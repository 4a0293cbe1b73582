package proc

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

//go:generate go run seccomp_generate.go

// A child that drops to another user gets a filter of system calls: the box has none, because its inner engine needs
// forbidden calls.
//
// It is the engine's default profile for a process without capabilities, as tables by seccomp_generate.go. What the
// profile does not let pass is refused, and unknown calls do not exist. ptrace and the machine's 32-bit instruction set
// are allowed.
//
// It is stricter than the profile:
// - only the families of sockets below can be created;
// - io_uring does not exist, because its requests bypass filters;
// - socketcall of 32-bit x86 does not exist: its arguments are in memory, which a filter cannot read. Go's 386 programs
// have no sockets.

// answer is the filter's answer to a call.
type answer int

const (
	// absent calls fail with ENOSYS, as do all calls that no table has.
	absent answer = iota
	allowed
	// refused calls fail with EPERM whatever their arguments are.
	refused
	byCloneFlags
	byPersonality
	byFamily
)

// span is a range of numbers with one answer; a table has them in order.
type span struct {
	first, last uint32
	answer      answer
}

type instructionSet struct {
	arch  uint32
	calls []span
}

// instructionSets are those of a machine's programs; its own comes first.
var instructionSets = map[string][]instructionSet{
	"amd64": {{unix.AUDIT_ARCH_X86_64, callsAMD64}, {unix.AUDIT_ARCH_I386, calls386}},
	"arm64": {{unix.AUDIT_ARCH_AARCH64, callsARM64}, {unix.AUDIT_ARCH_ARM, callsARM}},
}

// families are the allowed kinds of sockets; others (vsock, tipc, can, alg) fail as if the kernel had none.
var families = []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}

// personalities are the profile's: Linux and its 32-bit form, each also as kernel 2.6, and the query.
var personalities = []uint32{0, 0x8, 0x20000, 0x20008, 0xffffffff}

// newNamespaces are forbidden flags of clone. The time namespace's bit is part of the child's signal.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// Offsets in struct seccomp_data: the low half of an argument comes first on little-endian machines.
const (
	offNumber = 0
	offArch   = 4
	offArg0   = 16
)

func refuse(errno unix.Errno) bpf.Instruction {
	return bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(errno)}
}

var pass = bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}

// callFilter returns the filter's program for the architecture goarch.
func callFilter(goarch string) ([]bpf.RawInstruction, error) {
	sets := instructionSets[goarch]
	if len(sets) == 0 {
		return nil, fmt.Errorf("no table of system calls for %s: add one with seccomp_generate.go", goarch)
	}
	p := []bpf.Instruction{bpf.LoadAbsolute{Off: offArch, Size: 4}}
	for _, s := range sets {
		calls := search(withGaps(s.calls))
		p = append(p,
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: s.arch, SkipTrue: 1},
			bpf.Jump{Skip: uint32(len(calls)) + 1},
			bpf.LoadAbsolute{Off: offNumber, Size: 4},
		)
		p = append(p, calls...)
	}
	return bpf.Assemble(append(p, refuse(unix.ENOSYS)))
}

// withGaps fills gaps, so that each span ends where the next one begins.
func withGaps(calls []span) (all []span) {
	next := uint32(0)
	for _, s := range calls {
		if s.first > next {
			all = append(all, span{first: next, answer: absent})
		}
		all = append(all, s)
		next = s.last + 1
	}
	return append(all, span{first: next, answer: absent})
}

// search finds the span of the loaded number by bisection. A jump reaches over 255 instructions, and half a table has fewer.
func search(calls []span) []bpf.Instruction {
	if len(calls) == 1 {
		return calls[0].answer.instructions()
	}
	middle := len(calls) / 2
	low, high := search(calls[:middle]), search(calls[middle:])
	p := []bpf.Instruction{bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: calls[middle].first, SkipTrue: uint8(len(low))}}
	return append(append(p, low...), high...)
}

func (a answer) instructions() []bpf.Instruction {
	switch a {
	case allowed:
		return []bpf.Instruction{pass}
	case refused:
		return []bpf.Instruction{refuse(unix.EPERM)}
	case byCloneFlags:
		return []bpf.Instruction{
			bpf.LoadAbsolute{Off: offArg0, Size: 4},
			bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: newNamespaces, SkipFalse: 1},
			refuse(unix.EPERM),
			pass,
		}
	case byPersonality:
		return oneOf(personalities, unix.EPERM)
	case byFamily:
		return oneOf(families, unix.EAFNOSUPPORT)
	default:
		return []bpf.Instruction{refuse(unix.ENOSYS)}
	}
}

// oneOf lets a call pass whose first argument is among values.
func oneOf(values []uint32, otherwise unix.Errno) []bpf.Instruction {
	p := []bpf.Instruction{bpf.LoadAbsolute{Off: offArg0, Size: 4}}
	for _, v := range values {
		p = append(p, bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipFalse: 1}, pass)
	}
	return append(p, refuse(otherwise))
}

var nativeFilter = sync.OnceValues(func() ([]bpf.RawInstruction, error) { return callFilter(runtime.GOARCH) })

// CallFilter returns the filter as the kernel's array of struct sock_filter.
func CallFilter() ([]byte, error) {
	raw, err := nativeFilter()
	if err != nil {
		return nil, fmt.Errorf("assemble the filter of system calls: %w", err)
	}
	var b []byte
	for _, r := range raw {
		b = binary.NativeEndian.AppendUint16(b, r.Op)
		b = append(b, r.Jt, r.Jf)
		b = binary.NativeEndian.AppendUint32(b, r.K)
	}
	return b, nil
}

// filterCalls applies the filter to the calling thread, which must have given up new privileges.
func filterCalls() error {
	raw, err := nativeFilter()
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
