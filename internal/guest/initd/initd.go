// Package initd is PID 1 of the box: it reads the work order, forks boot, forwards signals, reaps children, and forks rescue if boot dies.
//
// It owns wait4(-1). No other code that starts children may run in its process: a wait for any child takes the exit codes of others.
package initd

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Init is PID 1.
type Init struct {
	Order   io.Reader // the work order; standard input in a container
	Stdout  *os.File
	Stderr  *os.File
	Log     *slog.Logger
	Self    string // this program, run as `Self boot` and `Self rescue`
	Signals <-chan os.Signal
	// Done reports whether a final result exists.
	Done func() bool
	// Prepare prepares the box for boot with the order's limits, and reports unavailable protections as variables. It
	// may be nil.
	Prepare func(order []byte) (env []string)
	// Work returns the order's own time limit, 0 for none; then KillAgent kills the task's processes. If nil, only boot does.
	Work      func(order []byte) time.Duration
	KillAgent func() error
	// Longest returns the maximum duration of a run; a longer boot is stuck and is stopped. Nil, or 0, if there is no maximum.
	Longest func(order []byte) time.Duration
	// KillAll kills every other process of the box after boot has died: they could prevent rescue. Nil kills nothing.
	KillAll func()

	in    *bufio.Reader // of Order
	grace time.Duration // announced before a stop; 0 if none was
	began time.Time     // when the stop was requested; zero if none was
}

func (i *Init) endWork() {
	if err := i.KillAgent(); err != nil {
		i.Log.Error("end the task's processes at the time limit", "error", err)
	}
}

// limited fires when the time from one of the order's limits, plus more, has passed; never if there is no limit.
func limited(limit func([]byte) time.Duration, order []byte, more time.Duration) <-chan time.Time {
	if limit == nil {
		return nil
	}
	most := limit(order)
	if most <= 0 {
		return nil
	}
	return time.After(most + more)
}

func (i *Init) stopping() bool { return !i.began.IsZero() }

// until returns a timer for a time after the beginning of the stop.
func (i *Init) until(after time.Duration) <-chan time.Time {
	return time.After(time.Until(i.began.Add(after)))
}

// note records what a signal means for PID 1.
func (i *Init) note(sig syscall.Signal) {
	if sig == LongStop {
		i.grace = workorder.LongStop
	} else if !i.stopping() {
		i.began = time.Now()
	}
}

// handle notes and forwards a signal, and reports whether the box is being stopped.
func (i *Init) handle(c *child, s os.Signal) bool {
	sig, ok := s.(syscall.Signal)
	if !ok {
		return false
	}
	i.note(sig)
	i.pass(c, sig)
	return i.stopping()
}

// pass forwards a signal, with the announcement before it, which the child may have missed.
func (i *Init) pass(c *child, sig syscall.Signal) {
	if sig != LongStop && i.grace > 0 {
		c.signal(LongStop)
	}
	c.signal(sig)
}

// LongStop is workorder.LongStopSignal.
const LongStop = syscall.SIGUSR1

// workGrace is the time for boot to end the task's processes at the time limit; then PID 1 does.
const workGrace = workorder.AgentGrace + 8*time.Second

// rescueReserve is the time for rescue to end after its own limit.
const rescueReserve = 10 * time.Second

// A box without a free process slot gets some back shortly after KillAll.
const (
	forkTries = 20
	forkPause = 50 * time.Millisecond
)

type exit struct {
	pid  int
	code int
}

// Run runs PID 1 and returns the container's exit code.
func (i *Init) Run() int {
	exits := make(chan exit)
	go reap(exits)

	order, err := i.readOrder()
	if err != nil {
		i.Log.Error("no work order", "error", err)
		return i.rescue(nil, exits, workorder.RescueGrace, fmt.Sprintf("the work order did not arrive: %v", err))
	}
	var env []string
	if i.Prepare != nil {
		env = i.Prepare(order)
	}
	boot, err := i.fork("boot", order, env...)
	if err != nil {
		i.Log.Error("start boot", "error", err)
		return workorder.ExitBox
	}
	var stopped, overdue, worked <-chan time.Time
	var late <-chan input // the order of a standby, which has no limits yet
	standby := bytes.HasPrefix(order, []byte(workorder.StandbyMark))
	if standby {
		late = i.read(readLine)
	} else {
		overdue, worked = i.begin(boot, order)
	}
	reason, done, limit := "boot ended without a result", false, workorder.LandLimit
	for {
		select {
		case <-boot.listening:
			boot.ready()
		case r := <-late:
			late = nil
			standby, order = r.err != nil, r.b // without an order, boot reads the end of its input, and ends
			boot.send(order)
			overdue, worked = i.begin(boot, order)
		case s := <-i.Signals:
			if !i.handle(boot, s) {
				continue
			}
			limit = workorder.RescueGrace // the engine does not wait
			if !done {
				stopped = i.until(workorder.ShutdownIn(i.grace).Boot)
			}
		case <-worked:
			i.endWork()
		case <-overdue:
			i.Log.Error("boot exceeds the maximum duration of a run; stopping it")
			boot.signal(syscall.SIGTERM)
			if stopped == nil {
				stopped = time.After(workorder.ShutdownIn(0).Boot)
			}
		case <-stopped:
			if i.Done() && !done {
				// The result is safe; only the end of the lease and of the inner engine remain.
				done = true
				stopped = time.After(workorder.ReleaseGrace + workorder.EngineGrace)
				continue
			}
			i.Log.Error("boot does not end; killing it")
			reason = "boot did not end in time after a stop request"
			_ = syscall.Kill(boot.pid, syscall.SIGKILL)
			stopped = make(chan time.Time)
		case e := <-exits:
			if e.pid != boot.pid {
				continue
			}
			if i.Done() || standby { // a standby has nothing to land
				return e.code
			}
			i.Log.Error("boot ended without a result", "exit_code", e.code)
			return i.rescue(order, exits, limit, fmt.Sprintf("%s (exit code %d)", reason, e.code))
		}
	}
}

// begin ends boot's input after the order, and returns the order's limits.
func (i *Init) begin(boot *child, order []byte) (overdue, worked <-chan time.Time) {
	boot.close()
	return limited(i.Longest, order, 0), limited(i.Work, order, workGrace)
}

// input is a document of standard input.
type input struct {
	b   []byte
	err error
}

// read reads a document in the background.
func (i *Init) read(read func(*bufio.Reader) ([]byte, error)) <-chan input {
	c := make(chan input, 1)
	go func() {
		b, err := read(i.in)
		if err == nil && len(bytes.TrimSpace(b)) == 0 {
			err = errors.New("standard input is empty; start sandboxes with `sandbox-agent create`")
		}
		c <- input{b, err}
	}()
	return c
}

// readFirst reads the document of a standby, or all of the input.
func readFirst(in *bufio.Reader) ([]byte, error) {
	if head, _ := in.Peek(len(workorder.StandbyMark)); string(head) == workorder.StandbyMark {
		return readLine(in)
	}
	b, err := io.ReadAll(in)
	if err != nil {
		err = fmt.Errorf("read standard input: %w", err)
	}
	return b, err
}

// readLine reads a document that a line feed ends.
func readLine(in *bufio.Reader) ([]byte, error) { return in.ReadBytes('\n') }

// readOrder reads the first document, within workorder.OrderDeadline.
func (i *Init) readOrder() ([]byte, error) {
	i.in = bufio.NewReader(io.LimitReader(i.Order, 2*workorder.MaxEnvelope))
	select {
	case r := <-i.read(readFirst):
		return r.b, r.err
	case <-time.After(workorder.OrderDeadline):
		return nil, fmt.Errorf("nothing on standard input within %s", workorder.OrderDeadline)
	}
}

// Environment variables that tell rescue why it was started and how much time it has.
const (
	RescueReason = "SANDBOX_AGENT_RESCUE_REASON"
	RescueLimit  = "SANDBOX_AGENT_RESCUE_LIMIT"
)

// rescue forks the last line of defence, which has limit to land, and waits for it.
func (i *Init) rescue(order []byte, exits <-chan exit, limit time.Duration, reason string) int {
	if i.KillAll != nil {
		i.KillAll()
	}
	var c *child
	var err error
	for range forkTries {
		if c, err = i.fork("rescue", order, RescueReason+"="+reason, RescueLimit+"="+limit.String()); !errors.Is(err, syscall.EAGAIN) {
			break
		}
		drain(exits, forkPause) // the killed processes free their slots when they are reaped
	}
	if err != nil {
		i.Log.Error("start rescue", "error", err)
		return workorder.ExitBox
	}
	c.close()
	over := time.After(limit + rescueReserve)
	hurried := limit <= workorder.RescueGrace // the stop came before rescue began
	for {
		select {
		case <-c.listening:
			c.ready()
		case s := <-i.Signals:
			// The engine does not wait: rescue keeps as files what it cannot push by then.
			if i.handle(c, s) && !hurried {
				over = i.until(workorder.ShutdownIn(i.grace).Rescue)
			}
		case e := <-exits:
			if e.pid == c.pid {
				return e.code
			}
		case <-over:
			i.Log.Error("rescue does not end")
			_ = syscall.Kill(c.pid, syscall.SIGKILL)
			return workorder.ExitBox
		}
	}
}

// drain consumes the reaper's reports for a while.
func drain(exits <-chan exit, most time.Duration) {
	limit := time.After(most)
	for {
		select {
		case <-exits:
		case <-limit:
			return
		}
	}
}

// reap waits for every child, forever, and reports each end.
func reap(exits chan<- exit) {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.ECHILD):
			// No child at the moment (before the first fork, or after the last).
			time.Sleep(5 * time.Millisecond)
		case err == nil && ws.Exited():
			exits <- exit{pid, ws.ExitStatus()}
		case err == nil && ws.Signaled():
			exits <- exit{pid, 128 + int(ws.Signal())}
		}
	}
}

// child is a role of this program. Signals wait until the role reports that it listens: before, they would kill it.
type child struct {
	pid       int
	stdin     *os.File
	writes    sync.WaitGroup  // of documents on stdin
	listening <-chan struct{} // closed then; nil from then on
	waiting   []syscall.Signal
}

// send writes a document to the role's standard input. It may take until the role has read it.
func (c *child) send(document []byte) {
	c.writes.Go(func() { _, _ = c.stdin.Write(document) }) // a child that died does not need it
}

// close ends the role's standard input after the documents.
func (c *child) close() {
	go func() {
		c.writes.Wait()
		_ = c.stdin.Close()
	}()
}

func (c *child) signal(sig syscall.Signal) {
	if c.listening == nil {
		_ = syscall.Kill(c.pid, sig)
		return
	}
	if !slices.Contains(c.waiting, sig) {
		c.waiting = append(c.waiting, sig)
	}
}

func (c *child) ready() {
	c.listening = nil
	for _, sig := range c.waiting {
		_ = syscall.Kill(c.pid, sig)
	}
	c.waiting = nil
}

// listenFD names, in a role's environment, the descriptor whose close tells PID 1 that the role listens.
const listenFD = "SANDBOX_AGENT_LISTENS"

// Listen must be called by a role once it has handlers for all signals that it may receive.
var Listen = sync.OnceFunc(func() {
	fd, err := strconv.Atoi(os.Getenv(listenFD))
	_ = os.Unsetenv(listenFD)
	if err == nil {
		_ = os.NewFile(uintptr(fd), "listens").Close()
	}
})

// fork starts a role of this program with the order on its standard input, which stays open.
func (i *Init) fork(role string, order []byte, env ...string) (*child, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	said, says, err := os.Pipe()
	if err != nil {
		_, _ = r.Close(), w.Close()
		return nil, err
	}
	files := []*os.File{r, i.Stdout, i.Stderr, says}
	// os.StartProcess and never Wait: the reaper owns all waits.
	p, err := os.StartProcess(i.Self, []string{"entrypoint", role}, &os.ProcAttr{ //nolint:forbidigo // see above
		Env: append(append(os.Environ(), env...), listenFD+"="+strconv.Itoa(len(files)-1)), Files: files,
		Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	_, _ = r.Close(), says.Close()
	if err != nil {
		_, _ = w.Close(), said.Close()
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	listening := make(chan struct{})
	go func() {
		defer close(listening)
		defer said.Close()
		_, _ = said.Read(make([]byte, 1)) // until it is closed there; a child that died needs no signals
	}()
	c := &child{pid: p.Pid, stdin: w, listening: listening}
	c.send(order)
	_ = p.Release()
	return c, nil
}
