// Package lease makes leases: each is one clean turn in a sandbox, a guest within the guest with mount, process, IPC, host name and network namespaces of its own,
// which sees the sandbox's files and keeps what it writes to itself. It ends with all that was in it, since the kernel ends a process namespace with its first process.
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

// Maker makes leases.
type Maker struct {
	// Self is this program; Role are its arguments for Main.
	Self string
	Role []string
	wire.Leases
	// Env is NAME=value, of each command beside the guest's own.
	Env []string
}

// plan is what Enter is told.
type plan struct {
	wire.Leases
	Env []string `json:"env,omitempty"`
}

// Lease is one that is there.
type Lease struct {
	p    *proc.Process
	conn net.Conn
	said *proc.Tail
	// sent is what had been sent over the sandbox's network when the lease began; "" if it has a network of its own.
	sent string
}

// maxSaid bounds what is kept of what a lease's guest says, in bytes.
const maxSaid = 4 << 10

// endTime bounds the end of all processes of a lease: the kernel kills thousands within a second.
const endTime = 5 * time.Second

// Make makes a lease. An error shows what could not be started; what goes wrong inside ends Conn and is in the error of End. ctx bounds the making and not the lease, which ends with the caller's process at the latest.
func (m Maker) Make(ctx context.Context) (*Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ours, theirs, err := proc.Pair()
	if err != nil {
		return nil, fmt.Errorf("make a lease: %w", err)
	}
	defer theirs.Close()
	told, err := m.tell()
	if err != nil {
		_ = ours.Close()
		return nil, fmt.Errorf("make a lease: %w", err)
	}
	defer told.Close()
	none, err := os.Open(os.DevNull) // nobody outside counts what was killed
	if err != nil {
		_ = ours.Close()
		return nil, fmt.Errorf("make a lease: %w", err)
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
			return nil, fmt.Errorf("make a lease: %w", err)
		}
	}
	l.p, err = proc.Start(context.WithoutCancel(ctx), proc.Spec{
		Argv: append([]string{m.Self}, m.Role...), Dir: "/", Stderr: l.said, ExtraFiles: []*os.File{theirs, told, none}, Tied: syscall.SIGKILL, Namespaces: namespaces,
	})
	if err != nil {
		_ = ours.Close()
		return nil, fmt.Errorf("make a lease: %w", err)
	}
	return l, nil
}

// sent is how many packets each interface has sent, as the kernel counts them.
func sent(file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("count what was sent: %w", err)
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

// errTraces is of what the kernel keeps of a network's use beyond its user's end: connections that wait for their peers, and what it has learnt of these.
var errTraces = errors.New("the lease has used the sandbox's network, and the traces of that stay")

// tell writes the plan into a file in memory, in whose place the lease's guest writes its configuration.
func (m Maker) tell() (*os.File, error) {
	doc, err := json.Marshal(plan{m.Leases, m.Env})
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("lease", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), "lease")
	if _, err := f.WriteAt(doc, 0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Conn leads to the lease's guest, and ends with it.
func (l *Lease) Conn() net.Conn { return l.conn }

// End ends all that runs in the lease. After an error something of it may be left, or it never began.
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
		return fmt.Errorf("what ran in the lease has not ended %s after it was killed", endTime)
	}
}
