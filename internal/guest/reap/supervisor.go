package reap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// controlFD is the supervisor's end of the socket.
const controlFD = 3

const (
	// killRounds bounds the rounds of a kill: each kills all that exist, so that what forks as fast as it dies loses within a few. By hand, three were
	// needed at most.
	killRounds = 500
	killPause  = 2 * time.Millisecond
)

// Main is the life of a supervisor, a process that Start has started. It returns its exit code.
func Main(ctx context.Context) int {
	control := os.NewFile(controlFD, "starter")
	if control == nil {
		return 1
	}
	unix.CloseOnExec(controlFD)
	// Its starter ends it by the socket. Signals are caught and dropped, since the command would inherit that they are ignored.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGPIPE)
	requests := json.NewDecoder(control)
	var s Spec
	if err := requests.Decode(&s); err != nil {
		return 1 // the starter is gone
	}
	exit := supervise(ctx, s, requests)
	if err := json.NewEncoder(control).Encode(exit); err != nil {
		return 1
	}
	return 0
}

func supervise(ctx context.Context, s Spec, requests *json.Decoder) Exit {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return Exit{Code: cannotRun, Error: fmt.Sprintf("adopt orphans: %v", err)}
	}
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	spec := proc.Spec{Argv: s.Argv, Dir: s.Dir, Env: s.Env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Terminal: s.Terminal}
	if s.User != nil {
		var err error
		if spec.User, err = s.User.credential(); err != nil {
			return Exit{Code: cannotRun, Error: err.Error()}
		}
		spec.OOMScoreAdj = s.User.OOMScoreAdj
	}
	p, err := proc.Start(context.WithoutCancel(ctx), spec)
	if err != nil {
		return refused(s.Argv[0], err)
	}
	// The command alone has them now: an end of its output is its own.
	_, _, _ = os.Stdin.Close(), os.Stdout.Close(), os.Stderr.Close()
	asked := make(chan request)
	go read(requests, asked)
	for {
		select {
		case <-p.Done():
			bury(p.PID())
			return exitOf(p.Wait())
		case <-children:
			bury(p.PID())
		case r := <-asked:
			if !r.End {
				p.Signal(syscall.Signal(r.Signal))
				continue
			}
			end(p, syscall.Signal(r.Signal), time.Duration(r.GraceMS)*time.Millisecond)
			return exitOf(p.Wait())
		}
	}
}

// read hands requests on; a starter that is gone asks for the end.
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

// end ends all that descends from this process.
func end(p *proc.Process, sig syscall.Signal, grace time.Duration) {
	if grace > 0 {
		for _, pid := range descendants() {
			_ = syscall.Kill(pid, sig)
			_ = syscall.Kill(pid, syscall.SIGCONT) // a stopped process acts on nothing before
		}
		over := time.NewTimer(grace)
		defer over.Stop()
		for waiting := true; waiting; {
			select {
			case <-over.C:
				waiting = false
			case <-time.After(killPause):
				bury(p.PID())
				waiting = len(descendants()) > 0
			}
		}
	}
	for range killRounds {
		left := descendants()
		if len(left) == 0 {
			return
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(killPause)
		bury(p.PID())
	}
}

// bury takes the exit codes of adopted children that have ended. The command's own is for whoever waits for it, so that a wait for any
// child is not possible.
func bury(command int) {
	for _, p := range processes() {
		if p.parent == os.Getpid() && !p.alive && p.pid != command {
			_, _ = syscall.Wait4(p.pid, nil, syscall.WNOHANG, nil)
		}
	}
}

// descendants are the living processes below this one.
func descendants() []int {
	below := map[int][]int{}
	for _, p := range processes() {
		if p.alive {
			below[p.parent] = append(below[p.parent], p.pid)
		}
	}
	var all []int
	for next := below[os.Getpid()]; len(next) > 0; {
		pid := next[0]
		next = append(next[1:], below[pid]...)
		all = append(all, pid)
	}
	return all
}

type process struct {
	pid, parent int
	alive       bool
}

// processes are those that /proc shows.
func processes() []process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var all []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // gone meanwhile
		}
		if parent, alive, ok := readStat(string(b)); ok {
			all = append(all, process{pid, parent, alive})
		}
	}
	return all
}

// readStat reads a process's parent from its stat: "pid (name) state parent …", where the name can be whatever, parentheses too. A process
// whose first thread has ended looks like a dead one and is not, as long as it has others.
func readStat(stat string) (parent int, alive, ok bool) {
	const state, parentAt, threadsAt = 0, 1, 17
	f := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(f) <= threadsAt {
		return 0, false, false
	}
	parent, err := strconv.Atoi(f[parentAt])
	if err != nil {
		return 0, false, false
	}
	threads, err := strconv.Atoi(f[threadsAt])
	if err != nil {
		return 0, false, false
	}
	return parent, f[state] != "X" && (f[state] != "Z" || threads > 1), true
}

// refused is the exit of a command that could not be started, with a shell's codes.
func refused(argv0 string, err error) Exit {
	switch {
	case errors.Is(err, proc.ErrNotFound):
		return Exit{Code: notFound, Error: argv0 + " is not on PATH in the sandbox"}
	case errors.Is(err, fs.ErrNotExist):
		return Exit{Code: notFound, Error: fmt.Sprintf("there is no %s in the sandbox, or not what it is to be run by: %v", argv0, err)}
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
