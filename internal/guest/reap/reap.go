// Package reap runs one command in a sandbox and can end everything that the command started.
//
// A command's processes can leave its group and session and drop every mark of where they came from. They cannot leave their family: each
// command has a supervisor of its own, a process that adopts what loses its parent below it (PR_SET_CHILD_SUBREAPER). To end the
// command is to kill all that descends from the supervisor until nothing does.
//
// The supervisor is this program again, in the role of Main. Whoever starts it (Start) and the supervisor talk over a socket; when that
// ends, because its starter died, the supervisor ends the command.
package reap

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

// Spec is what a supervisor runs.
type Spec struct {
	Argv []string `json:"argv"`
	Dir  string   `json:"dir"`
	Env  []string `json:"env"` // the whole environment
	// User runs it; nil means the supervisor's own, with all that it may do.
	User *User `json:"user,omitempty"`
	// Terminal says that standard input is a terminal, which becomes the command's.
	Terminal bool `json:"terminal,omitempty"`
	// DataBytes bounds the memory that one process can have for itself; 0 does not.
	DataBytes uint64 `json:"data_bytes,omitempty"`
	// Whole ends with the command all that it started: nothing is left behind.
	Whole bool `json:"whole,omitempty"`
	// Stderr says that the command's standard error follows the socket, and Extra how many descriptors the command has from 3 on: Start sets both.
	Stderr bool `json:"stderr,omitempty"`
	Extra  int  `json:"extra,omitempty"`
}

// User is a user of the sandbox.
type User struct {
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"`
	// Cgroup and Place are where the user's processes are: see proc.Credential; nil and "" mean where the supervisor is. Place is a name that
	// proc.Place.Name gave.
	Cgroup *proc.Cgroup `json:"cgroup,omitempty"`
	Place  string       `json:"place,omitempty"`
}

// credential is the user as proc knows it.
func (u *User) credential() (c *proc.Credential, err error) {
	c = &proc.Credential{UID: u.UID, GID: u.GID, Groups: u.Groups, Cgroup: u.Cgroup}
	if u.Place != "" {
		if c.Place, err = proc.OpenPlace(u.Place); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Exit is how a command ended.
type Exit struct {
	Code   int `json:"code"`             // 128+n after signal n
	Signal int `json:"signal,omitempty"` // 0 unless a signal ended it
	// Error is why it could not be started; Code is then 126, or 127 where there is no such program, as of a shell.
	Error string `json:"error,omitempty"`
}

// Left is a process that was left behind.
type Left struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // see proc.Relative
}

// Exit codes of a shell for what cannot be started.
const (
	cannotRun = 126
	notFound  = 127
)

// request is what a starter asks of its supervisor.
type request struct {
	// Signal goes to the command's group, or before an end to everything; 0 means none.
	Signal int  `json:"signal,omitempty"`
	End    bool `json:"end,omitempty"` // everything
	// GraceMS is the time between the signal and SIGKILL.
	GraceMS int64 `json:"grace_ms,omitempty"`
}

// Command is one that runs.
type Command struct {
	p    *proc.Process // its supervisor
	conn *net.UnixConn
	mu   sync.Mutex    // of writes
	done chan struct{} // closed when the command has ended, or cannot be known any more
	exit Exit
	err  error
}

// Start runs the command under a supervisor: self with the arguments of role. The files become the command's standard files and stay
// the caller's, who must call Wait; extra ones become its descriptors from 3 on. ctx bounds nothing of the command: End does.
func Start(ctx context.Context, self string, role []string, s Spec, stdin, stdout, stderr *os.File, extra ...*os.File) (*Command, error) {
	s.Extra, s.Stderr = len(extra), stderr != nil
	if s.Stderr { // not the supervisor's own: what it says when it crashes is not the command's
		extra = append([]*os.File{stderr}, extra...)
	}
	ours, theirs, err := proc.Pair()
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
	c := &Command{p: p, conn: ours, done: make(chan struct{})}
	if err := c.send(s); err != nil {
		_ = ours.Close() // which ends the supervisor
		_ = p.Wait()
		return nil, fmt.Errorf("start %s: %w", s.Argv[0], err)
	}
	go c.follow(s.Argv[0])
	return c, nil
}

func (c *Command) follow(argv0 string) {
	reports := json.NewDecoder(c.conn)
	err := reports.Decode(&c.exit)
	ended := err == nil
	var left []Left
	if ended {
		close(c.done)
		err = reports.Decode(&left)
	}
	if err == nil {
		kin.Load().leave(left) // before its supervisor is gone, and they are orphans
	}
	wait := c.p.Wait()
	_ = c.conn.Close()
	if err != nil {
		kin.Load().killStrays()
	}
	if !ended {
		// Something killed the supervisor, which only its own user and root can do. What it watched was killed now.
		c.err = fmt.Errorf("the supervisor of %s ended without a report: %w", argv0, errors.Join(err, wait))
		close(c.done)
	}
}

func (c *Command) send(v any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return json.NewEncoder(c.conn).Encode(v)
}

// Wait waits for the end of the command itself; what it started goes on, unless End was called.
func (c *Command) Wait() (Exit, error) {
	<-c.done
	return c.exit, c.err
}

// Signal sends a signal to the command's process group. A command that has ended is no error.
func (c *Command) Signal(sig syscall.Signal) { _ = c.send(request{Signal: int(sig)}) }

// overdue is how long a supervisor may take beyond the grace: thousands of processes are killed within seconds.
const overdue = 5 * time.Second

// End ends the command and everything that it started: sig, and after grace SIGKILL until nothing is left; with a grace of 0 at once. It does not
// wait. What a command has left behind at its own end stays.
func (c *Command) End(sig syscall.Signal, grace time.Duration) {
	_ = c.send(request{End: true, Signal: int(sig), GraceMS: grace.Milliseconds()})
	if kin.Load() == nil {
		return // commands have no right to their supervisors here, and nobody else would kill what one leaves
	}
	// A command of the supervisor's own user may have stopped it, and may do so again and again.
	c.p.Signal(syscall.SIGCONT)
	time.AfterFunc(grace+overdue, func() {
		select {
		case <-c.done:
		default:
			c.p.Signal(syscall.SIGKILL)
		}
	})
}
