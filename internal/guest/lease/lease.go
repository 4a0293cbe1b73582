// Package lease creates leases: each is one clean use of a sandbox. A lease is a nested guest with its own
// mount, process, IPC, host name and network namespaces, which sees the sandbox's files and keeps its writes
// to itself. It ends together with its processes, since the kernel ends a process namespace with its first
// process.
package lease

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

// Maker creates leases.
type Maker struct {
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

// Lease is a running lease.
type Lease struct {
	p    *proc.Process
	conn net.Conn
	said *proc.Tail
	// sent is the packet count of the sandbox's network when the lease began; "" if the lease has its own
	// network.
	sent string
}

// maxSaid bounds the stored output of a lease's guest, in bytes.
const maxSaid = 4 << 10

// endTime bounds the end of all processes of a lease: the kernel kills thousands within a second.
const endTime = 5 * time.Second

// Make creates a lease. It returns an error if something could not be started; errors inside close Conn and
// are returned by End. ctx bounds the creation only; the lease ends with the caller's process at the latest.
func (m Maker) Make(ctx context.Context) (*Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ours, theirs, err := proc.Pair()
	if err != nil {
		return nil, fmt.Errorf("create a lease: %w", err)
	}
	defer theirs.Close()
	told, err := m.tell()
	if err != nil {
		_ = ours.Close()
		return nil, fmt.Errorf("create a lease: %w", err)
	}
	defer told.Close()
	none, err := os.Open(os.DevNull) // output of killed processes is not read
	if err != nil {
		_ = ours.Close()
		return nil, fmt.Errorf("create a lease: %w", err)
	}
	defer none.Close()
	namespaces := uintptr(unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS)
	if !m.Network {
		namespaces |= unix.CLONE_NEWNET
	}
	l := &Lease{conn: ours, said: proc.NewTail(maxSaid)}
	if m.Network {
		if l.sent, err = sent("/proc/self/net/dev"); err != nil {
			_ = ours.Close()
			return nil, fmt.Errorf("create a lease: %w", err)
		}
	}
	l.p, err = proc.Start(context.WithoutCancel(ctx), proc.Spec{
		Argv: append([]string{m.Self}, m.Role...),
		Dir:  "/", Stderr: l.said, ExtraFiles: []*os.File{theirs, told, none}, Tied: syscall.SIGKILL, Namespaces: namespaces,
	})
	if err != nil {
		_ = ours.Close()
		return nil, fmt.Errorf("create a lease: %w", err)
	}
	return l, nil
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

// errTraces reports kernel state that outlives the user of a network: connections that wait for their peers,
// and cached data about these.
var errTraces = errors.New("the lease has used the sandbox's network, and traces of that remain")

// tell writes the plan into a memory file, which the lease's guest replaces with its configuration.
func (m Maker) tell() (*os.File, error) {
	doc, err := json.Marshal(plan{m.NestedConfig, m.Env})
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

// Conn returns the connection to the lease's guest, and ends with it.
func (l *Lease) Conn() net.Conn { return l.conn }

// End ends all processes of the lease. After an error some may be left, or the lease never started.
func (l *Lease) End() error {
	l.p.Signal(syscall.SIGKILL)
	_ = l.conn.Close()
	select {
	case <-l.p.Done():
		if x, ok := errors.AsType[*proc.ExitError](l.p.Wait()); ok && x.Signal == 0 {
			return fmt.Errorf("its guest ended with %d: %s", x.Code, strings.TrimSpace(l.said.String()))
		}
		if now, err := sent("/proc/self/net/dev"); l.sent != "" && (err != nil || now != l.sent) {
			return errors.Join(errTraces, err)
		}
		return nil
	case <-time.After(endTime):
		return fmt.Errorf("processes of the lease have not ended %s after they were killed", endTime)
	}
}
