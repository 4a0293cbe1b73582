package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// filtered is set in the environment of this program when it plays the child.
const filtered = "PROC_TEST_FILTERED"

const nobody = 65534

// The kernel as untrusted code sees it, from inside. The test needs root, as
// only root can drop to another user.
func TestFilterOfSystemCalls(t *testing.T) {
	if os.Getenv(filtered) != "" {
		for _, what := range append(tryCalls(), tryDebugger()...) {
			fmt.Println(what)
		}
		return
	}
	exe, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	program := reachable(t) + "/program"
	if err := os.WriteFile(program, exe, 0o755); err != nil { // another user runs it
		t.Fatal(err)
	}
	out := asNobody(t, "/", program, "-test.run", "^TestFilterOfSystemCalls$")
	if out != "PASS\n" {
		t.Errorf("from inside:\n%s", out)
	}
}

// Programs of the 32-bit instruction set run, and get as little of the kernel.
func TestFilterOfSecondInstructionSet(t *testing.T) {
	second := map[string]string{"amd64": "386", "arm64": "arm"}[runtime.GOARCH]
	if second == "" {
		t.Skip("no second instruction set on " + runtime.GOARCH)
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("the program is built by this test: ", err)
	}
	program := reachable(t) + "/second"
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./testdata/second")
	build.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+second, "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build for %s: %v\n%s", second, err, out)
	}
	if err := exec.CommandContext(t.Context(), program).Run(); errors.Is(err, unix.ENOEXEC) {
		t.Skip("this kernel runs no programs of ", second)
	}
	if out := asNobody(t, "/", program); out != "hello\n" {
		t.Errorf("from inside:\n%s", out)
	}
}

// The calls that work needs are allowed.
func TestFilterLetsToolsWork(t *testing.T) {
	for name, argv := range map[string][]string{
		"bash": {"bash", "-c", "set -e; (echo hello) | cat; exec 3<<<x; wait"},
		"git": {"bash", "-c", "set -e; git init -q . && echo a >a && git add a && git -c user.name=a -c user.email=a@b commit -q -m a " +
			"&& git gc -q && git log --format=tformat:hello"},
		"python3": {
			"python3", "-c", "import subprocess, socket, threading, multiprocessing as m, os\n" +
				"t = threading.Thread(target=len, args=('',)); t.start(); t.join()\n" +
				"m.get_context('fork').Pool(2).map(abs, [1])\n" +
				"s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname()); socket.socketpair()\n" +
				"print(subprocess.check_output(['echo', 'hello'], text=True), end='')",
		},
		"node": {
			"node", "-e", "const {execFileSync} = require('child_process'); const {Worker} = require('worker_threads');" +
				"const s = require('net').createServer(); s.listen(0, '127.0.0.1', () => require('fs').promises.readFile('/etc/passwd').then(() => " +
				"new Worker('', {eval: true}).on('exit', () => { s.close(); process.stdout.write(execFileSync('echo', ['hello'])) })))",
		},
		"strace": {"strace", "-f", "-o", "/dev/null", "sh", "-c", "echo hello; :"},
		"gdb":    {"bash", "-c", "gdb -nx -batch -ex 'starti' -ex 'info registers' -ex 'kill' /bin/true | grep -qE '^(rip|pc) ' && echo hello"},
	} {
		t.Run(name, func(t *testing.T) {
			// Not the caller's PATH: another user does not reach what lies in somebody's home.
			if _, err := lookPath(name, []string{"PATH=/usr/local/bin:/usr/bin:/bin"}); err != nil {
				t.Skip(name, " is not installed")
			}
			dir := reachable(t) + "/home"
			if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, nobody, nobody)); err != nil {
				t.Fatal(err)
			}
			if out := asNobody(t, dir, argv...); out != "hello\n" {
				t.Errorf("got %q", out)
			}
		})
	}
}

// reachable is a new folder that another user can enter.
func reachable(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can drop to another user")
	}
	dir := t.TempDir()
	for d := dir; d != "/"; d = filepath.Dir(d) {
		st, err := os.Stat(d)
		if err == nil && st.Mode().Perm()&0o005 != 0o005 { // another user has to reach the program; what he reaches is not ours to change
			err = os.Chmod(d, st.Mode()|0o055)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func asNobody(t *testing.T, dir string, argv ...string) string {
	t.Helper()
	out, err := Output(t.Context(), Spec{
		Argv: argv, Dir: dir, User: &Credential{UID: nobody, GID: nobody},
		Env: []string{filtered + "=1", "PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + dir},
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// tryCalls says which calls end otherwise than they should.
func tryCalls() (wrong []string) {
	expect := func(what string, want, got error) {
		if !errors.Is(got, want) {
			wrong = append(wrong, fmt.Sprintf("%s: %v, want %v", what, got, want))
		}
	}
	call := func(number uintptr, args ...uintptr) error {
		args = append(args, 0, 0, 0)
		if _, _, e := unix.Syscall(number, args[0], args[1], args[2]); e != 0 {
			return e
		}
		return nil
	}
	for name, flag := range map[string]uintptr{
		"user": unix.CLONE_NEWUSER, "network": unix.CLONE_NEWNET, "mount": unix.CLONE_NEWNS, "pid": unix.CLONE_NEWPID,
		"ipc": unix.CLONE_NEWIPC, "uts": unix.CLONE_NEWUTS, "cgroup": unix.CLONE_NEWCGROUP,
	} {
		expect("unshare: "+name, unix.EPERM, call(unix.SYS_UNSHARE, flag))
		expect("clone: "+name, unix.EPERM, clone(flag))
		expect("clone, among others: "+name, unix.EPERM, clone(flag|unix.CLONE_NEWUSER|unix.CLONE_FS))
		args := [8]uint64{0: uint64(flag), 4: uint64(unix.SIGCHLD)} // struct clone_args
		expect("clone3: "+name, unix.ENOSYS, call(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args)))
	}
	expect("unshare of time", unix.EPERM, call(unix.SYS_UNSHARE, unix.CLONE_NEWTIME))
	expect("a plain clone", nil, clone(0))
	expect("clone3 of nothing", unix.ENOSYS, call(unix.SYS_CLONE3))
	for name, number := range map[string]uintptr{
		"setns": unix.SYS_SETNS, "bpf": unix.SYS_BPF, "keyctl": unix.SYS_KEYCTL, "add_key": unix.SYS_ADD_KEY, "request_key": unix.SYS_REQUEST_KEY,
		"userfaultfd": unix.SYS_USERFAULTFD, "perf_event_open": unix.SYS_PERF_EVENT_OPEN, "mount": unix.SYS_MOUNT, "umount": unix.SYS_UMOUNT2,
		"kcmp": unix.SYS_KCMP, "fanotify_init": unix.SYS_FANOTIFY_INIT, "chroot": unix.SYS_CHROOT, "syslog": unix.SYS_SYSLOG,
		"open_tree": unix.SYS_OPEN_TREE, "fsopen": unix.SYS_FSOPEN, "mount_setattr": unix.SYS_MOUNT_SETATTR, "pidfd_getfd": unix.SYS_PIDFD_GETFD,
		"open_by_handle_at": unix.SYS_OPEN_BY_HANDLE_AT, "kexec_load": unix.SYS_KEXEC_LOAD, "lsm_list_modules": unix.SYS_LSM_LIST_MODULES,
		"pivot_root": unix.SYS_PIVOT_ROOT, "move_pages": unix.SYS_MOVE_PAGES,
	} {
		expect(name, unix.EPERM, call(number))
	}
	// io_uring; what is newer than the profile (open_tree_attr, file_getattr, file_setattr, listns); numbers
	// that no kernel has; x32's getpid, and the x32 form of native numbers.
	for _, number := range []uintptr{
		425, 426, 427, 467, 468, 469, 470, 471, 500, 600, 5000, 0x40000000 | 39, 0x40000000 | 520,
		0x7fffffff, 0xffffffff,
	} {
		expect(fmt.Sprintf("call %d", number), unix.ENOSYS, call(number))
	}
	for _, p := range []uintptr{1, 0x40000, 0x400000, 0x20009} {
		expect(fmt.Sprintf("personality %#x", p), unix.EPERM, call(unix.SYS_PERSONALITY, p))
	}
	for _, p := range []uintptr{0xffffffff, 8, 0x20000, 0} {
		expect(fmt.Sprintf("personality %#x", p), nil, call(unix.SYS_PERSONALITY, p))
	}
	// The kernel takes an int: what stands in the upper half changes nothing.
	upper := ^uintptr(0) &^ (1<<32 - 1)
	for name, f := range map[string]uintptr{
		"vsock": unix.AF_VSOCK, "tipc": unix.AF_TIPC, "alg": unix.AF_ALG, "packet": unix.AF_PACKET,
		"vsock, upper half": unix.AF_VSOCK | upper,
	} {
		expect("a socket of "+name, unix.EAFNOSUPPORT, call(unix.SYS_SOCKET, f, unix.SOCK_STREAM))
		expect("a pair of "+name, unix.EAFNOSUPPORT, call(unix.SYS_SOCKETPAIR, f, unix.SOCK_STREAM))
	}
	for name, f := range map[string]int{"unix": unix.AF_UNIX, "inet": unix.AF_INET, "netlink": unix.AF_NETLINK} {
		fd, err := unix.Socket(f, unix.SOCK_DGRAM, 0)
		expect("a socket of "+name, nil, err)
		_ = unix.Close(fd)
	}
	_, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	expect("a pair of unix", nil, err)
	return wrong
}

// clone makes a child by the system call itself, which ends at once.
func clone(flags uintptr) error {
	pid, _, e := unix.RawSyscall6(unix.SYS_CLONE, flags|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if e != 0 {
		return e
	}
	if pid == 0 {
		for {
			_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	_, err := unix.Wait4(int(pid), nil, 0, nil)
	return err
}

// tryDebugger stops a child of its own as a debugger does, reads its memory and lets it go.
func tryDebugger() (wrong []string) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/bin/true") //nolint:noctx // it has the life of this child
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		return []string{"a traced child: " + err.Error()}
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(cmd.Process.Pid, &status, 0, nil); err != nil || !status.Stopped() {
		return []string{fmt.Sprintf("a traced child: %v, status %#x, want it stopped", err, status)}
	}
	var regs unix.PtraceRegs
	if err := unix.PtraceGetRegs(cmd.Process.Pid, &regs); err != nil {
		wrong = append(wrong, "its registers: "+err.Error())
	}
	word := make([]byte, 8)
	where := []unix.RemoteIovec{{Base: uintptr(regs.PC()), Len: len(word)}}
	local := []unix.Iovec{{Base: &word[0]}}
	local[0].SetLen(len(word))
	if _, err := unix.ProcessVMReadv(cmd.Process.Pid, local, where, 0); err != nil {
		wrong = append(wrong, "its memory: "+err.Error())
	}
	if err := unix.PtraceDetach(cmd.Process.Pid); err != nil {
		wrong = append(wrong, "letting it go: "+err.Error())
	}
	if err := cmd.Wait(); err != nil {
		wrong = append(wrong, "its end: "+err.Error())
	}
	return wrong
}
