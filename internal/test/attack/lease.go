package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// trace is one thing that a lease can leave behind.
type trace struct {
	name string
	// leave leaves it; what it keeps in this process stays as long as that. Where it is refused there is nothing to be found.
	leave func(ctx context.Context) error
	// look says what of it is there.
	look func() (got string, there bool)
}

// leftName is in the names of all that is left, and leftKey and leftPort are its numbers.
const (
	leftName = "left-by-a-lease"
	leftKey  = 0x4711
	leftPort = "127.0.0.1:4711"
	waitPort = "127.0.0.1:4712"
)

// leave leaves each trace in a process of its own that ends by nothing but a kill, and says what was refused.
func leave(ctx context.Context, each func(Row) error) error {
	for _, t := range traces() {
		answer, to, err := os.Pipe()
		if err != nil {
			return err
		}
		_, err = proc.Start(ctx, proc.Spec{Argv: []string{"setsid", os.Args[0], "linger", t.name}, Stdout: to})
		to.Close()
		if err != nil {
			return err
		}
		said := make([]byte, maxGot)
		n, _ := answer.Read(said) // nothing is an answer, too
		got := strings.TrimSpace(string(said[:n]))
		if err := each(Row{Group: leaseGroup, Name: t.name, Expected: string(works), Got: got, Through: got == leftName}); err != nil {
			return err
		}
	}
	return nil
}

// linger leaves one trace and stays.
func linger(ctx context.Context, name string) error {
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGPIPE)
	runtime.LockOSThread() // who traces is a thread
	for _, t := range traces() {
		if t.name != name {
			continue
		}
		if err := t.leave(ctx); err != nil {
			fmt.Println(short(err))
			return nil
		}
		fmt.Println(leftName)
		for {
			time.Sleep(time.Hour)
		}
	}
	return fmt.Errorf("no trace has the name %q", name)
}

const leaseGroup = "what a lease leaves for the next"

// lookAround looks for each trace.
func lookAround(each func(Row) error) error {
	for _, t := range traces() {
		got, there := t.look()
		if err := each(Row{Group: leaseGroup, Name: t.name, Expected: string(refused), Got: got, Through: there, OK: !there}); err != nil {
			return err
		}
	}
	return nil
}

// writable are directories in which files of earlier users would be found.
var writable = []string{
	"/workspace", "/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/dev", "/run", "/run/lock", "/var/lock", "/home", "/etc",
	"/usr/local/bin", "/var/spool/cron/crontabs", "/var/mail",
	"/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids", "/proc", "/",
}

// nodeAge is more than a sandbox takes to make its device nodes.
const nodeAge = 500 * time.Millisecond

// kept are files of this process that stay open.
var kept []*os.File

func keep(f *os.File, err error) (*os.File, error) {
	kept = append(kept, f)
	return f, err
}

func traces() []trace {
	const (
		megabyte = 1 << 20
		pinned   = 48 * megabyte
		spare    = 40 * megabyte
	)
	return []trace{
		{"files in all folders", touchDirs, touchedDirs},
		{"a process that ignores signals, in a session of its own", func(context.Context) error { return nil }, processesLike("linger")},
		{"a process that is stopped", func(ctx context.Context) error { return stopped(ctx, false) }, processesLike("9871")},
		{"a process that is traced", func(ctx context.Context) error { return stopped(ctx, true) }, processesLike("9872")},
		{"orphans of orphans", func(ctx context.Context) error {
			_, err := proc.Output(ctx,
				proc.Spec{Argv: []string{"sh", "-c", "(setsid sh -c 'nohup sleep 9873 & exec sleep 9873' >/dev/null 2>&1 &)"}})
			return err
		}, processesLike("9873")},
		{"shared memory, semaphores and messages of System V", func(context.Context) error {
			_, _, e1 := unix.Syscall(unix.SYS_SHMGET, leftKey, pinned, unix.IPC_CREAT|0o600)
			_, _, e2 := unix.Syscall(unix.SYS_SEMGET, leftKey, 1, unix.IPC_CREAT|0o600)
			_, _, e3 := unix.Syscall(unix.SYS_MSGGET, leftKey, unix.IPC_CREAT|0o600, 0)
			return errno(e1, e2, e3)
		}, func() (string, bool) {
			_, _, e1 := unix.Syscall(unix.SYS_SHMGET, leftKey, 0, 0)
			_, _, e2 := unix.Syscall(unix.SYS_SEMGET, leftKey, 0, 0)
			_, _, e3 := unix.Syscall(unix.SYS_MSGGET, leftKey, 0, 0)
			return anyFound(e1, e2, e3)
		}},
		{"times of device nodes", touchNode, lateNodes},
		{"a message queue of POSIX", func(context.Context) error { return queue(unix.O_CREAT) }, func() (string, bool) {
			err := queue(0)
			return outcome(err), err == nil
		}},
		{
			"a socket without a path", func(ctx context.Context) error { return listens(ctx, "unix", "@"+leftName) },
			connects("unix", "@"+leftName),
		},
		{"a port", func(ctx context.Context) error { return listens(ctx, "tcp", leftPort) }, connects("tcp", leftPort)},
		{"a connection that waits for its end", func(ctx context.Context) error {
			if err := listens(ctx, "tcp", waitPort); err != nil {
				return err
			}
			return reach("tcp", waitPort)
		}, func() (string, bool) {
			b, err := os.ReadFile("/proc/net/tcp")
			_, port, _ := strings.Cut(waitPort, ":")
			n, nerr := strconv.Atoi(port)
			return outcome(errors.Join(err, nerr)), strings.Contains(string(b), fmt.Sprintf(":%04X ", n))
		}},
		{"a key", func(context.Context) error {
			name, content := []byte("user\x00"), []byte(leftName+"\x00")
			_, _, err := unix.Syscall6(unix.SYS_ADD_KEY, ptr(name), ptr(content), ptr(content), uintptr(len(content)), ^uintptr(2), 0)
			return errno(err)
		}, func() (string, bool) {
			name, content := []byte("user\x00"), []byte(leftName+"\x00")
			_, _, err := unix.Syscall6(unix.SYS_REQUEST_KEY, ptr(name), ptr(content), 0, 0, 0, 0)
			return anyFound(err)
		}},
		{"mounts", func(context.Context) error { return unix.Mount("tmpfs", "/tmp", "tmpfs", 0, "") }, func() (string, bool) {
			b, err := os.ReadFile("/proc/self/mountinfo")
			const most = 60
			n := strings.Count(string(b), "\n")
			return fmt.Sprintf("%d", n), err != nil || n > most
		}},
		{"terminals", func(context.Context) error {
			_, err := keep(os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0))
			return err
		}, func() (string, bool) {
			all, _ := filepath.Glob("/dev/pts/[0-9]*")
			return strings.Join(all, " "), len(all) > 0
		}},
		{"disk that is full, by a file without a name", func(context.Context) error {
			f, err := keep(os.CreateTemp("/workspace", leftName))
			if err == nil {
				err = errors.Join(os.Remove(f.Name()), fill(f, pinned))
			}
			return err
		}, func() (string, bool) {
			var s unix.Statfs_t
			err := unix.Statfs("/workspace", &s)
			used := (s.Blocks - s.Bfree) * uint64(s.Bsize)
			return outcome(err), err != nil || used > spare
		}},
		{"memory of files without a name", func(context.Context) error {
			fd, err := unix.MemfdCreate(leftName, 0)
			if err != nil {
				return err
			}
			f, _ := keep(os.NewFile(uintptr(fd), leftName), nil)
			return fill(f, pinned)
		}, func() (string, bool) {
			n, err := usedMemory()
			return outcome(err), err != nil || n > spare
		}},
		{"all watches of the user", func(context.Context) error {
			for {
				if _, err := unix.InotifyInit1(0); errors.Is(err, unix.EMFILE) {
					return nil
				} else if err != nil {
					return err
				}
			}
		}, func() (string, bool) {
			fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
			if err == nil {
				unix.Close(fd)
			}
			return outcome(err), err != nil
		}},
		{"a processor that is busy", func(ctx context.Context) error {
			_, err := proc.Start(ctx, proc.Spec{Argv: []string{"sh", "-c", "while :; do :; done"}})
			return err
		}, func() (string, bool) {
			const while, looks = 500 * time.Millisecond, 3 // other work of the machine may leave it little in one of them
			for range looks {
				before, err := usedProcessor()
				time.Sleep(while)
				after, aerr := usedProcessor()
				if err = errors.Join(err, aerr); err != nil || after-before > while/5 {
					return outcome(err), true
				}
			}
			return outcome(nil), false
		}},
	}
}

// leftPath is what is left in a directory.
func leftPath(dir string) string { return filepath.Join(dir, leftName) }

// touchDirs leaves a file or a directory wherever it can.
func touchDirs(context.Context) error {
	err := errors.New("no folder can be written to")
	for _, d := range writable {
		if os.WriteFile(leftPath(d), nil, 0o600) == nil || os.Mkdir(leftPath(d), 0o700) == nil {
			err = nil
		}
	}
	return err
}

// touchedDirs looks for what touchDirs leaves.
func touchedDirs() (string, bool) {
	var all []string
	for _, d := range writable {
		if _, err := os.Lstat(leftPath(d)); err == nil {
			all = append(all, d)
		}
	}
	return strings.Join(all, " "), len(all) > 0
}

// touchNode sets the times of a device node to now, later than all were made.
func touchNode(context.Context) error {
	time.Sleep(2 * nodeAge)
	return unix.Utimes("/dev/null", nil)
}

// lateNodes looks for nodes that were touched after they were made.
func lateNodes() (string, bool) {
	var late []string
	var node, untouched unix.Stat_t
	err := unix.Stat("/dev/full", &untouched)
	for _, name := range []string{"/dev/null", "/dev/zero", "/dev/tty"} {
		if err = errors.Join(err, unix.Stat(name, &node)); time.Duration(node.Mtim.Nano()-untouched.Mtim.Nano()) > nodeAge {
			late = append(late, name)
		}
	}
	return strings.Join(append(late, outcome(err)), " "), err != nil || len(late) > 0
}

func outcome(err error) string {
	if err != nil {
		return short(err)
	}
	return "done"
}

func listens(ctx context.Context, network, address string) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, network, address)
	if err == nil {
		go func() {
			for {
				if c, err := l.Accept(); err == nil {
					c.Close()
				}
			}
		}()
	}
	return err
}

func connects(network, address string) func() (string, bool) {
	return func() (string, bool) {
		err := reach(network, address)
		return outcome(err), err == nil
	}
}

func ptr(b []byte) uintptr { return uintptr(unsafe.Pointer(&b[0])) }

func errno(all ...syscall.Errno) error {
	for _, e := range all {
		if e != 0 {
			return e
		}
	}
	return nil
}

func anyFound(all ...syscall.Errno) (string, bool) {
	if slices.Contains(all, 0) {
		return "it is there", true
	}
	return short(all[0]), false
}

func queue(flags int) error {
	name := []byte(leftName + "\x00")
	fd, _, err := unix.Syscall6(unix.SYS_MQ_OPEN, ptr(name), uintptr(unix.O_RDWR|flags), 0o600, 0, 0, 0)
	if err == 0 && flags == 0 {
		unix.Close(int(fd))
	}
	return errno(err)
}

// processesLike counts processes that have the word among their arguments.
func processesLike(word string) func() (string, bool) {
	return func() (string, bool) {
		all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		n := 0
		for _, p := range all {
			if b, err := os.ReadFile(p); err == nil && strings.Contains("\x00"+string(b), "\x00"+word+"\x00") {
				n++
			}
		}
		return strconv.Itoa(n) + " processes", n > 0
	}
}

// stopped leaves a process that is stopped, by a signal or by a tracer.
func stopped(ctx context.Context, traced bool) error {
	arg := "9871"
	if traced {
		arg = "9872"
	}
	p, err := proc.Start(ctx, proc.Spec{Argv: []string{"sleep", arg}})
	if err != nil {
		return err
	}
	if traced {
		return errors.Join(unix.PtraceSeize(p.PID()), unix.PtraceInterrupt(p.PID()))
	}
	p.Signal(unix.SIGSTOP)
	return nil
}

func fill(f *os.File, n int) error {
	b := make([]byte, 1<<20)
	for i := 0; i < n; i += len(b) {
		if _, err := f.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// usedMemory is what the sandbox has of memory that cannot be reclaimed: of processes, and of files in it.
func usedMemory() (n uint64, err error) {
	for path, names := range map[string][]string{
		"/sys/fs/cgroup/memory/memory.stat": {"total_rss", "total_shmem"},
		"/sys/fs/cgroup/memory.stat":        {"anon", "shmem"},
	} {
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		for line := range strings.Lines(string(b)) {
			for _, name := range names {
				if rest, ok := strings.CutPrefix(line, name+" "); ok {
					v, err := strconv.ParseUint(strings.TrimSpace(rest), 10, 64)
					if err != nil {
						return 0, err
					}
					n += v
				}
			}
		}
		return n, nil
	}
	return 0, errors.New("the sandbox's memory is not counted where it can be seen")
}

// usedProcessor is the time of processors that the sandbox has had.
func usedProcessor() (time.Duration, error) {
	if b, err := os.ReadFile("/sys/fs/cgroup/cpuacct/cpuacct.usage"); err == nil {
		n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		return time.Duration(n), err
	}
	b, err := os.ReadFile("/sys/fs/cgroup/cpu.stat")
	if err != nil {
		return 0, err
	}
	var us int64
	_, err = fmt.Sscanf(string(b), "usage_usec %d", &us)
	return time.Duration(us) * time.Microsecond, err
}
