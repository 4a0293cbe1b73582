package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// controlFD is the supervisor's end of the socket.
const controlFD = 3

// lookPause is the interval of checks whether the processes to end have ended.
const lookPause = 2 * time.Millisecond

// Main runs a supervisor in a process that Start has started. It returns its exit code.
func Main(ctx context.Context) int {
	_ = unix.SetNonblock(controlFD, true) // so that no thread blocks on it; an invalid descriptor is detected below
	control := os.NewFile(controlFD, "starter")
	if control == nil {
		return 1
	}
	unix.CloseOnExec(controlFD)
	Hide()
	// The starter ends it by the socket. Signals are caught and dropped: the command would inherit ignored ones.
	signal.Notify(
		make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGTSTP, syscall.SIGTTIN,
		syscall.SIGTTOU, syscall.SIGPIPE,
	)
	requests := json.NewDecoder(control)
	var s Spec
	if err := requests.Decode(&s); err != nil {
		return 1 // the starter is gone
	}
	exit := supervise(ctx, s, requests)
	report := json.NewEncoder(control)
	if err := report.Encode(exit); err != nil {
		return 1
	}
	if err := report.Encode(linger()); err != nil {
		return 1
	}
	return 0
}

// Hide makes this process's memory and descriptors unreachable to others of its user.
func Hide() {
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // cannot fail with this argument
}

// oomScore makes the kernel kill a command before its supervisor and other processes that the sandbox needs.
const oomScore = 500

func supervise(ctx context.Context, s Spec, requests *json.Decoder) Exit {
	if err := proc.Adopt(); err != nil {
		return Exit{Code: cannotRun, Error: fmt.Sprintf("adopt orphans: %v", err)}
	}
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	spec := proc.Spec{Argv: s.Argv, Dir: s.Dir, Env: s.Env, Stdin: os.Stdin, Stdout: os.Stdout, Terminal: s.Terminal, OOMScoreAdj: oomScore}
	if s.User != nil {
		var err error
		if spec.User, err = s.User.credential(); err != nil {
			return Exit{Code: cannotRun, Error: err.Error()}
		}
	}
	first := controlFD + 1
	var stderr *os.File
	if s.Stderr {
		unix.CloseOnExec(first)
		stderr = os.NewFile(uintptr(first), "stderr")
		spec.Stderr = stderr
		first++
	}
	for i := range s.Extra {
		fd := first + i
		unix.CloseOnExec(fd)
		spec.ExtraFiles = append(spec.ExtraFiles, os.NewFile(uintptr(fd), "extra"))
	}
	limitData(s.DataBytes)
	p, err := proc.Start(context.WithoutCancel(ctx), spec)
	if err != nil {
		return refused(s.Argv[0], err)
	}
	if s.DataBytes > 0 {
		// For a user other than this process's the inherited limit stays.
		_ = unix.Prlimit(p.PID(), unix.RLIMIT_DATA, &unix.Rlimit{Cur: s.DataBytes, Max: s.DataBytes}, nil)
	}
	// Only the command holds them now, so the end of its output is detected.
	_, _, _ = os.Stdin.Close(), os.Stdout.Close(), stderr.Close()
	for _, f := range spec.ExtraFiles {
		_ = f.Close()
	}
	asked := make(chan request)
	go read(requests, asked)
	for {
		select {
		case <-p.Done():
			if s.Whole {
				end(0, 0)
			}
			return exitOf(p.Wait())
		case <-children:
			bury(proc.Processes())
		case r := <-asked:
			if !r.End {
				p.Signal(syscall.Signal(r.Signal))
				continue
			}
			end(syscall.Signal(r.Signal), time.Duration(r.GraceMS)*time.Millisecond)
			return exitOf(p.Wait())
		}
	}
}

// dataSlack is the memory that a supervisor may need after its start, in bytes.
const dataSlack = 64 << 20

// limitData bounds the memory of processes that this one starts; the limit exceeds its own memory.
func limitData(most uint64) {
	if most == 0 {
		return
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return // the keeper's check remains
	}
	var kb uint64
	if _, rest, ok := strings.Cut(string(status), "VmData:"); ok {
		_, _ = fmt.Sscan(rest, &kb) // from the kernel
	}
	most += kb<<10 + dataSlack
	_ = unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: most, Max: most}) // fails only if a lower limit was inherited
}

const (
	// lingerTime is how long a supervisor stays with its command's processes: a daemon forks and exits, maybe twice.
	lingerTime = 2 * time.Second
	lingerLook = 20 * time.Millisecond
)

// linger returns the processes that a command has left, once they have settled.
func linger() []Orphan {
	if proc.Childless() { // the usual case: checking all processes takes longer than the answer
		return nil
	}
	until := time.Now().Add(lingerTime)
	for {
		all := proc.Processes()
		bury(all)
		var left []Orphan
		for _, r := range proc.Descendants(all, os.Getpid()) {
			left = append(left, Orphan{r.PID, r.Start})
		}
		if proc.Childless() {
			return nil
		}
		if time.Now().After(until) {
			return left
		}
		time.Sleep(lingerLook)
	}
}

// read forwards requests; if the starter is gone it requests the end.
func read(requests *json.Decoder, asked chan<- request) {
	for {
		var r request
		if err := requests.Decode(&r); err != nil {
			asked <- request{End: true}
			return
		}
		asked <- r
	}
}

// end kills all descendants of this process.
func end(sig syscall.Signal, grace time.Duration) {
	if grace > 0 {
		for _, r := range proc.Descendants(proc.Processes(), os.Getpid()) {
			_ = syscall.Kill(r.PID, sig)
			_ = syscall.Kill(r.PID, syscall.SIGCONT) // a stopped process does not react before
		}
		over := time.NewTimer(grace)
		defer over.Stop()
		for waiting := true; waiting; {
			select {
			case <-over.C:
				waiting = false
			case <-time.After(lookPause):
				bury(proc.Processes())
				waiting = !proc.Childless()
			}
		}
	}
	proc.EndChildren(func() { bury(proc.Processes()) })
}

// bury reaps adopted children that have ended, and leaves this process's own children to their waiters.
func bury(all []proc.Info) {
	own := proc.Children()
	for _, r := range all {
		if r.Parent == os.Getpid() && !r.Alive && !slices.Contains(own, r.PID) {
			_, _ = syscall.Wait4(r.PID, nil, syscall.WNOHANG, nil)
		}
	}
}

// ProcessLimit is the error if no process can be started.
const ProcessLimit = "the sandbox has reached its process limit: processes left by ended commands are killed within seconds, " +
	"running commands are not"

// refused returns the exit of a command that could not be started, with a shell's codes.
func refused(argv0 string, err error) Exit {
	switch {
	case errors.Is(err, syscall.EAGAIN):
		return Exit{Code: cannotRun, Error: ProcessLimit}
	case errors.Is(err, proc.ErrNotFound):
		return Exit{Code: notFound, Error: argv0 + " is not on PATH in the sandbox"}
	case errors.Is(err, fs.ErrNotExist):
		return Exit{Code: notFound, Error: fmt.Sprintf("%s does not exist in the sandbox, or its interpreter does not: %v", argv0, err)}
	}
	return Exit{Code: cannotRun, Error: err.Error()}
}

func exitOf(err error) Exit {
	var x *proc.ExitError
	switch {
	case err == nil:
		return Exit{}
	case errors.As(err, &x):
		return Exit{Code: x.Code, Signal: int(x.Signal)}
	default:
		return Exit{Code: cannotRun, Error: err.Error()}
	}
}
