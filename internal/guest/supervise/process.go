// Package supervise runs one command in a sandbox and can end everything that the command started.
//
// Processes can leave their group and session but not their ancestor. So each command has its own supervisor, this program in the role of
// Main, which adopts orphans below it (PR_SET_CHILD_SUBREAPER) and kills all its descendants. It ends the command when the socket to its
// starter closes.
package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// Spec describes the command of a supervisor.
type Spec struct {
	Argv []string `json:"argv"`
	Dir  string   `json:"dir"`
	Env  []string `json:"env"` // complete environment
	// User runs it; nil means the supervisor's own user, with all its rights.
	User *User `json:"user,omitempty"`
	// Terminal means that standard input is a terminal, which becomes the command's.
	Terminal bool `json:"terminal,omitempty"`
	// DataBytes bounds the private memory of one process; 0 means no limit.
	DataBytes uint64 `json:"data_bytes,omitempty"`
	// Whole ends everything that the command started together with it: no process is left.
	Whole bool `json:"whole,omitempty"`
	// Stderr means that standard error follows the socket; Extra counts the command's descriptors from 3 on. Start sets both.
	Stderr bool `json:"stderr,omitempty"`
	Extra  int  `json:"extra,omitempty"`
}

// User is a user of the sandbox.
type User struct {
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"`
	// Cgroup and Namespace (a proc.Namespace.Name) are the user's; nil and "" mean the supervisor's.
	Cgroup    *proc.Cgroup `json:"cgroup,omitempty"`
	Namespace string       `json:"place,omitempty"`
}

func (u *User) credential() (c *proc.Credential, err error) {
	c = &proc.Credential{UID: u.UID, GID: u.GID, Groups: u.Groups, Cgroup: u.Cgroup}
	if u.Namespace != "" {
		if c.Namespace, err = proc.OpenNamespace(u.Namespace); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Exit reports how a command ended.
type Exit struct {
	Code   int `json:"code"`             // 128+n after signal n
	Signal int `json:"signal,omitempty"` // 0 unless a signal ended it
	// Error is why it could not be started; Code is then 126, or 127 if there is no such program, as in a shell.
	Error string `json:"error,omitempty"`
}

// Orphan is a process that a command left.
type Orphan struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // see proc.Info
}

// Exit codes of a shell for commands that cannot be started.
const (
	cannotRun = 126
	notFound  = 127
)

// request is a starter's request to its supervisor.
type request struct {
	// Signal is sent to the command's group, or with End to everything; 0 for none.
	Signal int  `json:"signal,omitempty"`
	End    bool `json:"end,omitempty"` // all processes
	// GraceMS is the time between the signal and SIGKILL.
	GraceMS int64 `json:"grace_ms,omitempty"`
}

// Process is a running command.
type Process struct {
	p    *proc.Process // its supervisor
	conn *net.UnixConn
	mu   sync.Mutex    // guards writes
	done chan struct{} // closed when the command has ended, or its state cannot be known
	exit Exit
	err  error
}

// Start runs the command under a supervisor: self with the arguments of role. The files become its standard files and
// stay the caller's; extra files become its descriptors from 3 on. The caller must call Wait. ctx does not bound the
// command: End does.
func Start(ctx context.Context, self string, role []string, s Spec, stdin, stdout, stderr *os.File, extra ...*os.File) (*Process, error) {
	s.Extra, s.Stderr = len(extra), stderr != nil
	if s.Stderr { // not the supervisor's own: its crash output is not the command's
		extra = append([]*os.File{stderr}, extra...)
	}
	ours, theirs, err := proc.SocketPair()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", s.Argv[0], err)
	}
	p, err := proc.Start(context.WithoutCancel(ctx), proc.Spec{
		Argv: append([]string{self}, role...), Dir: "/", Env: []string{},
		Stdin: stdin, Stdout: stdout, ExtraFiles: append([]*os.File{theirs}, extra...),
	})
	_ = theirs.Close()
	if err != nil {
		_ = ours.Close()
		return nil, fmt.Errorf("start %s: %w", s.Argv[0], err)
	}
	c := &Process{p: p, conn: ours, done: make(chan struct{})}
	if err := c.send(s); err != nil {
		_ = ours.Close() // which ends the supervisor
		_ = p.Wait()
		return nil, fmt.Errorf("start %s: %w", s.Argv[0], err)
	}
	go c.follow(s.Argv[0])
	return c, nil
}

func (p *Process) follow(argv0 string) {
	reports := json.NewDecoder(p.conn)
	err := reports.Decode(&p.exit)
	ended := err == nil
	var left []Orphan
	if ended {
		close(p.done)
		err = reports.Decode(&left)
	}
	if err == nil {
		current.Load().add(left) // before the supervisor is gone and they are orphans
	}
	wait := p.p.Wait()
	_ = p.conn.Close()
	if err != nil {
		current.Load().killStrays()
	}
	if !ended {
		// The supervisor was killed, which only its own user and root can do. Its processes are killed now.
		p.err = fmt.Errorf("the supervisor of %s ended without a report: %w", argv0, errors.Join(err, wait))
		close(p.done)
	}
}

func (p *Process) send(v any) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return json.NewEncoder(p.conn).Encode(v)
}

// Wait waits for the end of the command itself; processes that it started continue, unless End was called.
func (p *Process) Wait() (Exit, error) {
	<-p.done
	return p.exit, p.err
}

// Signal sends a signal to the command's process group. It does nothing if the command has ended.
func (p *Process) Signal(sig syscall.Signal) { _ = p.send(request{Signal: int(sig)}) }

// overdue is how long a supervisor may take beyond the grace.
const overdue = 5 * time.Second

// End ends the command and everything that it started: with sig, and after grace with SIGKILL. It does not wait.
// Processes that a command left at its own end stay.
func (p *Process) End(sig syscall.Signal, grace time.Duration) {
	_ = p.send(request{End: true, Signal: int(sig), GraceMS: grace.Milliseconds()})
	if current.Load() == nil {
		return // here commands have no rights over their supervisors, and nothing else would kill the processes of a killed one
	}
	// A command of the supervisor's own user may have stopped it, and may do so repeatedly.
	p.p.Signal(syscall.SIGCONT)
	time.AfterFunc(grace+overdue, func() {
		select {
		case <-p.done:
		default:
			p.p.Signal(syscall.SIGKILL)
		}
	})
}
