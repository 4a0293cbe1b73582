package proc

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

const (
	maxFilter = 4096 // BPF_MAXINSNS
	// maxSteps bounds what one call costs: about twice what it is, so that a search in a row is noticed.
	maxSteps = 32
)

// Every number on every instruction set gets the answer of its table, and the program is the same each time.
func TestFilterAnswersAsItsTables(t *testing.T) {
	for goarch, sets := range instructionSets {
		raw, err := callFilter(goarch)
		if err != nil {
			t.Fatal(err)
		}
		if again, _ := callFilter(goarch); !slices.Equal(raw, again) {
			t.Errorf("%s: another program each time", goarch)
		}
		if len(raw) > maxFilter {
			t.Errorf("%s: %d instructions, at most %d", goarch, len(raw), maxFilter)
		}
		t.Logf("%s: %d instructions", goarch, len(raw))
		vm := &machine{t: t, prog: raw}
		for _, s := range sets {
			if !slices.IsSortedFunc(s.calls, func(a, b span) int { return int(a.last) - int(b.first) + 1 }) {
				t.Errorf("%s: the table of %#x is out of order", goarch, s.arch)
			}
			for _, n := range interesting() {
				vm.check(s, n)
			}
		}
		for _, n := range []uint32{0, 39, 102} {
			if got := vm.run(unix.AUDIT_ARCH_S390X, n, 0); got != errno(unix.ENOSYS) {
				t.Errorf("%s: call %d of a foreign instruction set: %#x", goarch, n, got)
			}
		}
		t.Logf("%s: at most %d steps", goarch, vm.most)
		if vm.most > maxSteps {
			t.Errorf("%s: a call costs %d steps, at most %d", goarch, vm.most, maxSteps)
		}
	}
	if _, err := callFilter("z80"); err == nil {
		t.Error("a filter for a machine without a table")
	}
}

// The calls that the profile is there to refuse, named here once more so that no generator can lose one.
func TestTablesRefuseWhatMatters(t *testing.T) {
	for name, calls := range map[string]map[string]uint32{
		"amd64": {"unshare": 272, "setns": 308, "bpf": 321, "keyctl": 250, "perf_event_open": 298, "userfaultfd": 323, "mount": 165},
		"386":   {"unshare": 310, "setns": 346, "bpf": 357, "keyctl": 288, "perf_event_open": 336, "userfaultfd": 374, "mount": 21},
		"arm64": {"unshare": 97, "setns": 268, "bpf": 280, "keyctl": 219, "perf_event_open": 241, "userfaultfd": 282, "mount": 40},
		"arm":   {"unshare": 337, "setns": 375, "bpf": 386, "keyctl": 311, "perf_event_open": 364, "userfaultfd": 388, "mount": 21},
	} {
		table := map[string][]span{"amd64": callsAMD64, "386": calls386, "arm64": callsARM64, "arm": callsARM}[name]
		for call, n := range calls {
			if got := lookUp(table, n); got != refused {
				t.Errorf("%s: %s is %d, want refused", name, call, got)
			}
		}
		for call, n := range map[string]uint32{"clone3": 435, "io_uring_setup": 425, "open_tree_attr": 467, "file_setattr": 469} {
			if got := lookUp(table, n); got != absent {
				t.Errorf("%s: %s is %d, want absent", name, call, got)
			}
		}
	}
	// 32-bit x86's socketcall and ipc: the one hides the family of a socket.
	if lookUp(calls386, 102) != absent || lookUp(calls386, 117) != allowed {
		t.Error("386: socketcall or ipc")
	}
}

func lookUp(calls []span, n uint32) answer {
	for _, s := range calls {
		if s.first <= n && n <= s.last {
			return s.answer
		}
	}
	return absent
}

func errno(e unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(e) }

// interesting are all numbers near a table's, ARM's private ones, x32's and the ends.
func interesting() (all []uint32) {
	for n := range uint32(1200) {
		all = append(all, n, n+0xf0000, n|0x40000000)
	}
	return append(all, 1<<31-1, 1<<31, 1<<32-1)
}

// machine runs a filter as the kernel does, and counts.
type machine struct {
	t    *testing.T
	prog []bpf.RawInstruction
	most int
}

func (m *machine) check(s instructionSet, n uint32) {
	m.t.Helper()
	want := func(arg, answer uint32) {
		m.t.Helper()
		if got := m.run(s.arch, n, arg); got != answer {
			m.t.Fatalf("arch %#x, call %d (%#x): %#x, want %#x", s.arch, n, arg, got, answer)
		}
	}
	switch lookUp(s.calls, n) {
	case allowed:
		want(0, unix.SECCOMP_RET_ALLOW)
	case refused:
		want(0, errno(unix.EPERM))
	case absent:
		want(0, errno(unix.ENOSYS))
	case byCloneFlags:
		for bit := range 32 {
			refusal := uint32(unix.SECCOMP_RET_ALLOW)
			if slices.Contains([]int{17, 25, 26, 27, 28, 29, 30}, bit) { // the CLONE_NEW… of <linux/sched.h>
				refusal = errno(unix.EPERM)
			}
			want(1<<bit, refusal)
		}
	case byPersonality:
		for _, p := range []uint32{0, 8, 0x20000, 0x20008, 0xffffffff} {
			want(p, unix.SECCOMP_RET_ALLOW)
		}
		for _, p := range []uint32{1, 0x40000, 0x400000, 0x60008, 0xfffffffe} {
			want(p, errno(unix.EPERM))
		}
	case byFamily:
		for f := range uint32(64) {
			answer := errno(unix.EAFNOSUPPORT)
			if slices.Contains([]uint32{1, 2, 10, 16}, f) {
				answer = unix.SECCOMP_RET_ALLOW
			}
			want(f, answer)
		}
	}
}

// run gives the program's answer. The kernel knows ahead what a number alone decides, and skips the program, as
// long as there are no other instructions than these before the answer.
func (m *machine) run(arch, number, arg uint32) uint32 {
	m.t.Helper()
	data := map[uint32]uint32{offNumber: number, offArch: arch, offArg0: arg}
	var a uint32
	steps := 0
	for i := 0; i < len(m.prog); i++ {
		steps++
		in := m.prog[i]
		jump := func(taken bool) {
			if taken {
				i += int(in.Jt)
			} else {
				i += int(in.Jf)
			}
		}
		switch in.Op {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			a = data[in.K]
		case unix.BPF_JMP | unix.BPF_JA:
			i += int(in.K)
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			jump(a == in.K)
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			jump(a >= in.K)
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			jump(a&in.K != 0)
		case unix.BPF_RET | unix.BPF_K:
			m.most = max(m.most, steps)
			return in.K
		default:
			m.t.Fatalf("the filter holds %v, which the kernel's look-ahead does not know", in)
		}
	}
	m.t.Fatal("the filter ends without an answer")
	return 0
}

// The filter's cost for a call that passes by its number alone, and for one with an argument to look at (the
// kernel remembers the answers to the first kind).
func BenchmarkCalls(b *testing.B) {
	for _, filtered := range []bool{false, true} {
		for name, call := range map[string][2]uintptr{"getpid": {unix.SYS_GETPID, 0}, "personality": {unix.SYS_PERSONALITY, 0xffffffff}} {
			b.Run(fmt.Sprintf("%s/filter=%v", name, filtered), func(b *testing.B) {
				// Never unlocked: the thread ends with the goroutine.
				runtime.LockOSThread()
				if filtered {
					if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
						b.Fatal(err)
					}
					if err := filterCalls(); err != nil {
						b.Fatal(err)
					}
				}
				for b.Loop() {
					if _, _, e := unix.RawSyscall(call[0], call[1], 0, 0); e != 0 {
						b.Fatal(e)
					}
				}
			})
		}
	}
}
