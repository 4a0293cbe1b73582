// Package nested creates nested sandboxes: guests in namespaces of their own that see the sandbox's files and discard their writes.
package nested

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

// Starter starts nested sandboxes.
type Starter struct {
	// Self is this program; Role are its arguments for Main.
	Self string
	Role []string
	wire.NestedConfig
	// Env lists NAME=value pairs for each command, in addition to the guest's own.
	Env []string
}

// plan is the input of Enter.
type plan struct {
	wire.NestedConfig
	Env []string `json:"env,omitempty"`
}

// Nested is a running nested sandbox.
type Nested struct {
	p      *proc.Process
	conn   net.Conn
	stderr *proc.Tail
	// sent is the network's packet count at the start; "" if the nested sandbox has its own network.
	sent string
}

// maxStderr bounds the stored output of the nested guest, in bytes.
const maxStderr = 4 << 10

// endTime bounds the end of all processes of a nested sandbox: the kernel kills thousands within a second.
const endTime = 5 * time.Second

// Start starts a nested sandbox; later errors close Conn and are returned by End. ctx bounds the creation only. It ends
// with the caller's process at the latest.
func (s Starter) Start(ctx context.Context) (*Nested, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ours, theirs, err := proc.SocketPair()
	if err != nil {
		return nil, fmt.Errorf("create a nested sandbox: %w", err)
	}
	defer theirs.Close()
	input, err := s.inputFile()
	if err != nil {
		_ = ours.Close()
		return nil, fmt.Errorf("create a nested sandbox: %w", err)
	}
	defer input.Close()
	none, err := os.Open(os.DevNull) // output of killed processes is not read
	if err != nil {
		_ = ours.Close()
		return nil, fmt.Errorf("create a nested sandbox: %w", err)
	}
	defer none.Close()
	namespaces := uintptr(unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS)
	if !s.Network {
		namespaces |= unix.CLONE_NEWNET
	}
	n := &Nested{conn: ours, stderr: proc.NewTail(maxStderr)}
	if s.Network {
		if n.sent, err = sent("/proc/self/net/dev"); err != nil {
			_ = ours.Close()
			return nil, fmt.Errorf("create a nested sandbox: %w", err)
		}
	}
	n.p, err = proc.Start(context.WithoutCancel(ctx), proc.Spec{
		Argv: append([]string{s.Self}, s.Role...),
		Dir:  "/", Stderr: n.stderr, ExtraFiles: []*os.File{theirs, input, none}, Tied: syscall.SIGKILL, Namespaces: namespaces,
	})
	if err != nil {
		_ = ours.Close()
		return nil, fmt.Errorf("create a nested sandbox: %w", err)
	}
	return n, nil
}

// sent returns how many packets each interface has sent, as counted by the kernel.
func sent(file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read the packet counters: %w", err)
	}
	var all []string
	for line := range strings.Lines(string(b)) {
		name, counts, ok := strings.Cut(line, ":")
		const packets = 9
		if f := strings.Fields(counts); ok && len(f) > packets {
			all = append(all, strings.TrimSpace(name)+" "+f[packets])
		}
	}
	return strings.Join(all, ", "), nil
}

// errTraces reports kernel state of a network's user that remains, such as connections.
var errTraces = errors.New("the nested sandbox has used the sandbox's network, and traces of that remain")

// inputFile writes the plan into a memory file, which the nested guest replaces with its configuration.
func (s Starter) inputFile() (*os.File, error) {
	doc, err := json.Marshal(plan{s.NestedConfig, s.Env})
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("lease", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create a memory file: %w", err)
	}
	f := os.NewFile(uintptr(fd), "lease")
	if _, err := f.WriteAt(doc, 0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Conn returns the connection to the nested guest, and ends with it.
func (n *Nested) Conn() net.Conn { return n.conn }

// End ends all processes of the nested sandbox. After an error some may remain, or it never started.
func (n *Nested) End() error {
	n.p.Signal(syscall.SIGKILL)
	_ = n.conn.Close()
	select {
	case <-n.p.Done():
		if x, ok := errors.AsType[*proc.ExitError](n.p.Wait()); ok && x.Signal == 0 {
			return fmt.Errorf("its guest ended with %d: %s", x.Code, strings.TrimSpace(n.stderr.String()))
		}
		if now, err := sent("/proc/self/net/dev"); n.sent != "" && (err != nil || now != n.sent) {
			return errors.Join(errTraces, err)
		}
		return nil
	case <-time.After(endTime):
		return fmt.Errorf("processes of the nested sandbox have not ended %s after they were killed", endTime)
	}
}
