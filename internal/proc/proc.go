// Package proc starts all processes. A child has its own session and process group, is interrupted, then killed with its whole group, and
// cannot block its starter by an inherited pipe.
package proc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// pipeDelay is how long a grandchild may keep output pipes open after the child's exit.
const pipeDelay = 500 * time.Millisecond

// Credential is the user of a child. The zero value keeps the caller's.
type Credential struct {
	UID, GID uint32
	Groups   []uint32
	// Cgroup is where processes of this user begin, unless a Spec names another; nil means the caller's.
	Cgroup *Cgroup
	// Namespace is the mount namespace of processes of this user; nil means the caller's.
	Namespace *Namespace
}

// Owner returns the user whose files count; nil for no credential: any user's.
func (c *Credential) Owner() *uint32 {
	if c == nil {
		return nil
	}
	return &c.UID
}

// Spec describes a child. Programs are searched in Env's PATH, otherwise in the caller's.
type Spec struct {
	Argv []string
	Dir  string
	// Env is the whole environment; nil inherits the caller's.
	Env []string
	// User drops to another user, with no_new_privs and a filter of system calls as in an ordinary container.
	User *Credential
	// Group is the primary group of a child that keeps the caller's user, by which the kernel recognises its sockets; 0
	// keeps the caller's.
	Group uint32
	// Cgroup is the control group that the child begins in; nil means User's, or the caller's.
	Cgroup *Cgroup
	// Stdin nil is /dev/null.
	Stdin io.Reader
	// Terminal makes Stdin, an *os.File, the controlling terminal of the child's session.
	Terminal bool
	// Stdout and Stderr nil are /dev/null. The child gets an *os.File itself; any other writer is fed through a pipe
	// until pipeDelay after the child's exit. One writer for both gets both in order.
	Stdout, Stderr io.Writer
	// StopSignal starts the stop sequence when ctx ends; 0 is SIGTERM.
	StopSignal syscall.Signal
	// Grace between StopSignal and SIGKILL; 0 kills at once.
	Grace time.Duration
	// ExtraFiles become descriptors 3 and up in the child.
	ExtraFiles []*os.File
	// Tied is sent to the child when this process ends; 0 sends nothing. Linux only.
	Tied syscall.Signal
	// OwnSockets keeps a Tied child and its children from others' sockets without a path, since Linux 6.12.
	OwnSockets bool
	// Namespaces are flags of clone(2) for a Tied child, their first process. Linux only.
	Namespaces uintptr
	// Started, if non-nil, receives the process before Start returns.
	Started func(*Process)
	// DataBytes bounds the private memory of the child and of each process that it starts; 0 does not. Linux only.
	DataBytes uint64
	// OOMScoreAdj raises (never lowers) the child's chance to be killed when memory runs out.
	OOMScoreAdj int
}

// Process is a started child.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// ExitError reports a child that did not exit with 0.
type ExitError struct {
	Argv0 string
	// Code is the exit status, or 128+n after signal n.
	Code   int
	Signal syscall.Signal // 0 unless a signal ended it
	Stderr string         // end of the standard error, when it was captured
}

func (e *ExitError) Error() string {
	s := fmt.Sprintf("%s: exit status %d", e.Argv0, e.Code)
	if e.Signal != 0 {
		s = fmt.Sprintf("%s: ended by signal %s", e.Argv0, e.Signal)
	}
	if t := strings.TrimSpace(e.Stderr); t != "" {
		s += ": " + t
	}
	return s
}

// Start starts the child. When ctx ends, its group gets StopSignal and, after Grace, SIGKILL. The caller must call Wait.
func Start(ctx context.Context, s Spec) (*Process, error) {
	if len(s.Argv) == 0 {
		return nil, errors.New("start process: empty command")
	}
	path, err := lookPath(s.Argv[0], s.Env)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", s.Argv[0], err)
	}
	argv := s.Argv
	if s.DataBytes > 0 {
		path, argv = limitData(path, argv, s.DataBytes)
	}
	// Cancellation is ours (group, grace), so the command does not get ctx.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), path)
	cmd.Args = argv
	cmd.Dir, cmd.Env = s.Dir, s.Env
	cmd.Stdin, cmd.ExtraFiles = s.Stdin, s.ExtraFiles
	cmd.WaitDelay = pipeDelay // of the input, which a child need not read
	out, err := s.outputs(cmd)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", s.Argv[0], err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: s.Terminal}
	if s.User != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: s.User.UID, Gid: s.User.GID, Groups: s.User.Groups}
	} else if s.Group != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(os.Geteuid()), Gid: s.Group, Groups: []uint32{uint32(os.Getegid())}}
	}
	p := &Process{cmd: cmd, done: make(chan struct{})}
	start := cmd.Start
	cgroup := s.Cgroup
	if cgroup == nil && s.User != nil {
		cgroup = s.User.Cgroup
	}
	switch {
	case s.Tied != 0 && s.User != nil:
		return nil, fmt.Errorf("start %s: a child of another user cannot be tied", s.Argv[0]) // the kernel forgets the tie
	case s.Tied != 0:
		start = func() error { return startTied(cmd, cgroup, s, p.done) }
	case s.User != nil || cgroup != nil:
		start = func() error { return startApart(cmd, cgroup, s.User) }
	}
	if err := out.started(own.add(start, cmd)); err != nil {
		return nil, fmt.Errorf("start %s: %w", s.Argv[0], err)
	}
	if s.OOMScoreAdj > 0 {
		// Best effort: the default is correct, too.
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", cmd.Process.Pid), fmt.Appendf(nil, "%d", s.OOMScoreAdj), 0)
	}
	go func() {
		err := cmd.Wait()
		own.remove(cmd)
		if errors.Is(err, exec.ErrWaitDelay) {
			err = nil // it exited with 0 and had not read all of its input
		}
		p.err = p.result(errors.Join(err, out.end()), s.Argv[0])
		close(p.done)
	}()
	go p.stopWith(ctx, s)
	if s.Started != nil {
		s.Started(p)
	}
	return p, nil
}

func (p *Process) stopWith(ctx context.Context, s Spec) {
	select {
	case <-p.done:
		return
	case <-ctx.Done():
	}
	if s.Grace > 0 {
		sig := cmp.Or(s.StopSignal, syscall.SIGTERM)
		p.Signal(sig)
		p.Signal(syscall.SIGCONT) // after it: a stopped process acts on nothing before, and must not go on without
		t := time.NewTimer(s.Grace)
		defer t.Stop()
		select {
		case <-p.done:
		case <-t.C:
		}
	}
	// The leader may be gone while its group lives.
	p.Signal(syscall.SIGKILL)
}

func (p *Process) result(err error, argv0 string) error {
	var ee *exec.ExitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &ee):
	case p.cmd.ProcessState == nil:
		return fmt.Errorf("wait for %s: %w", argv0, err)
	}
	st, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok {
		return fmt.Errorf("wait for %s: %w", argv0, err)
	}
	if p.cmd.ProcessState.Success() {
		// The child succeeded, but copying its output failed.
		return fmt.Errorf("read output of %s: %w", argv0, err)
	}
	x := &ExitError{Argv0: argv0, Code: st.ExitStatus()}
	if st.Signaled() {
		x.Signal, x.Code = st.Signal(), 128+int(st.Signal())
	}
	return x
}

// PID returns the child's process id, which is also its group's and session's.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the child has exited and its output has been read.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the child's end: nil for exit status 0, *ExitError for another, any other error if waiting failed.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// Signal sends sig to the child's process group. A missing group is no error.
func (p *Process) Signal(sig syscall.Signal) { _ = syscall.Kill(-p.cmd.Process.Pid, sig) }

// Run starts the child and waits for it.
func Run(ctx context.Context, s Spec) error {
	p, err := Start(ctx, s)
	if err != nil {
		return err
	}
	err = p.Wait()
	if ctx.Err() != nil && err != nil {
		return fmt.Errorf("%s: %w", s.Argv[0], errors.Join(context.Cause(ctx), err))
	}
	return err
}

// captureLimit bounds what Output keeps, in bytes.
const captureLimit = 16 << 20

// Output runs the child and returns its standard output, at most captureLimit bytes; the end of its standard error goes
// into the error. The Spec's Stdout gets the output as it comes.
func Output(ctx context.Context, s Spec) ([]byte, error) {
	out := &Prefix{Max: captureLimit}
	tail := NewTail(4 << 10)
	if s.Stdout == nil {
		s.Stdout = out
	} else {
		s.Stdout = io.MultiWriter(out, s.Stdout)
	}
	if s.Stderr == nil {
		s.Stderr = tail
	}
	err := Run(ctx, s)
	if ee, ok := errors.AsType[*ExitError](err); ok {
		ee.Stderr = tail.String()
	}
	if out.Cut {
		return nil, fmt.Errorf("%s: more than %d bytes of output", s.Argv[0], captureLimit)
	}
	return out.Bytes(), err
}

// ErrNotFound is in the error of Start if the program is not on the PATH.
var ErrNotFound = exec.ErrNotFound

// ExitCode returns the exit code in err: 0 for nil, -1 if err has none.
func ExitCode(err error) int {
	var ee *ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &ee):
		return ee.Code
	}
	return -1
}

// Find returns the absolute path of a program on the caller's PATH.
func Find(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

func lookPath(name string, env []string) (string, error) {
	if strings.ContainsRune(name, '/') || env == nil {
		return exec.LookPath(name)
	}
	for _, kv := range env {
		if dirs, ok := strings.CutPrefix(kv, "PATH="); ok {
			for d := range strings.SplitSeq(dirs, ":") {
				p := d + "/" + name
				if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
					return p, nil
				}
			}
			return "", &exec.Error{Name: name, Err: exec.ErrNotFound}
		}
	}
	return exec.LookPath(name)
}

// Missing returns the program that an error reports as missing on PATH; "" for another error.
func Missing(err error) string {
	if e, ok := errors.AsType[*exec.Error](err); ok && errors.Is(e.Err, exec.ErrNotFound) {
		return e.Name
	}
	return ""
}
