package proc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// filtered is set in the environment of this program when it plays the child.
const filtered = "PROC_TEST_FILTERED"

// What untrusted code gets of the kernel, seen from inside of it. It needs root, as
// only root can drop to another user.
func TestFilterOfSystemCalls(t *testing.T) {
	if os.Getenv(filtered) != "" {
		for _, what := range tryCalls() {
			fmt.Println(what)
		}
		return
	}
	if os.Getuid() != 0 {
		t.Skip("only root can drop to another user")
	}
	exe, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	program := dir + "/program"
	for d := dir; d != "/" && d != "/tmp"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil { //nolint:gosec // another user has to reach the program
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(program, exe, 0o755); err != nil { //nolint:gosec // as above
		t.Fatal(err)
	}
	out, err := Output(t.Context(), Spec{
		Argv: []string{program, "-test.run", "^TestFilterOfSystemCalls$"}, Dir: "/",
		Env: []string{filtered + "=1"}, User: &Credential{UID: 65534, GID: 65534},
	})
	if err != nil {
		t.Fatal(err)
	}
	if string(out) != "PASS\n" {
		t.Errorf("from inside:\n%s", out)
	}
}

// tryCalls says which calls end otherwise than they should.
func tryCalls() (wrong []string) {
	expect := func(what string, want, got error) {
		if !errors.Is(got, want) {
			wrong = append(wrong, fmt.Sprintf("%s: %v, want %v", what, got, want))
		}
	}
	call := func(number, a, b, c uintptr) error {
		if _, _, errno := unix.Syscall(number, a, b, c); errno != 0 {
			return errno
		}
		return nil
	}
	for name, flag := range map[string]int{"user": unix.CLONE_NEWUSER, "network": unix.CLONE_NEWNET, "mount": unix.CLONE_NEWNS} {
		expect("a new namespace: "+name, unix.EPERM, unix.Unshare(flag))
	}
	expect("unshare of files", nil, unix.Unshare(unix.CLONE_FS))
	expect("clone3", unix.ENOSYS, call(unix.SYS_CLONE3, 0, 0, 0))
	expect("io_uring", unix.ENOSYS, call(unix.SYS_IO_URING_SETUP, 1, 0, 0))
	expect("bpf", unix.EPERM, call(unix.SYS_BPF, 0, 0, 0))
	expect("keys", unix.EPERM, call(unix.SYS_KEYCTL, 0, 0, 0))
	expect("userfaultfd", unix.EPERM, call(unix.SYS_USERFAULTFD, 0, 0, 0))
	expect("perf events", unix.EPERM, call(unix.SYS_PERF_EVENT_OPEN, 0, 0, 0))
	expect("mount", unix.EPERM, unix.Mount("x", "/mnt", "tmpfs", 0, ""))
	for name, f := range map[string]int{"vsock": unix.AF_VSOCK, "tipc": unix.AF_TIPC, "alg": unix.AF_ALG, "packet": unix.AF_PACKET} {
		_, err := unix.Socket(f, unix.SOCK_STREAM, 0)
		expect("a socket of "+name, unix.EAFNOSUPPORT, err)
	}
	for name, f := range map[string]int{"unix": unix.AF_UNIX, "inet": unix.AF_INET, "netlink": unix.AF_NETLINK} {
		fd, err := unix.Socket(f, unix.SOCK_DGRAM, 0)
		expect("a socket of "+name, nil, err)
		_ = unix.Close(fd)
	}
	expect("a call of another instruction set", unix.ENOSYS, call(0x40000000|unix.SYS_GETPID, 0, 0, 0))
	return wrong
}
