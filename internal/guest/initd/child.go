package initd

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
)

// child is a role of this program. A signal that arrives before the role has a handler would kill it by
// default, so signals wait until the role reports that it listens.
type child struct {
	pid       int
	listening <-chan struct{} // closed then; nil from then on
	waiting   []syscall.Signal
}

// signal forwards a signal, or keeps it until the child listens.
func (c *child) signal(sig syscall.Signal) {
	if c.listening == nil {
		_ = syscall.Kill(c.pid, sig)
		return
	}
	if !slices.Contains(c.waiting, sig) {
		c.waiting = append(c.waiting, sig)
	}
}

// ready forwards the waiting signals.
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

// fork starts a role of this program with the order on its standard input.
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
	go func() {
		defer w.Close()
		_, _ = w.Write(order) // a child that died does not need it
	}()
	listening := make(chan struct{})
	go func() {
		defer close(listening)
		defer said.Close()
		_, _ = said.Read(make([]byte, 1)) // until it is closed there; a child that died needs no signals
	}()
	c := &child{pid: p.Pid, listening: listening}
	_ = p.Release()
	return c, nil
}
