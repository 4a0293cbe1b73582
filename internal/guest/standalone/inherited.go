package standalone

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/supervise"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/wireserver"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

// ServeInherited is Serve on inherited descriptors. Commands may run as its own user: they get none of its descriptors
// and cannot reach these or its memory. When it returns, no process of a command is left.
func ServeInherited(ctx context.Context) error {
	if err := supervise.Adopt(); err != nil {
		return err
	}
	proc.SetCloseOnExec()
	for _, fd := range []int{wire.ListenerFD, wire.ConfigFD, wire.KillsFD} {
		unix.CloseOnExec(fd) // on old kernels, too
	}
	b, err := io.ReadAll(io.LimitReader(os.NewFile(wire.ConfigFD, "configuration"), wire.MaxDocument))
	if err != nil {
		return fmt.Errorf("read the sandbox's configuration: %w", err)
	}
	config, c, err := read(b)
	if err != nil {
		return err
	}
	if c.Processes > 0 {
		// It applies to this process and all that it starts, counted in this user namespace only.
		if err := unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: c.Processes, Max: c.Processes}); err != nil {
			return fmt.Errorf("limit processes: %w", err)
		}
	}
	group := config.OOMKills
	outside := countBytes(wire.KillsFD)
	config.OOMKills = func() int { return group() + outside() }
	config.SharedNetwork = true // of the machine's
	l, err := inheritedListener(os.NewFile(wire.ListenerFD, "users"))
	if err != nil {
		return fmt.Errorf("listen for clients: %w", err)
	}
	defer l.Close()
	defer supervise.EndAll()
	// The starter may have gone.
	_, _ = os.Stdout.WriteString(wire.Ready)
	return wireserver.New(config).Serve(ctx, l)
}

// inheritedListener listens on a listening socket, or serves the one client that the socket is connected to.
func inheritedListener(f *os.File) (net.Listener, error) {
	defer f.Close()
	if n, err := unix.GetsockoptInt(int(f.Fd()), unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err == nil && n == 0 {
		conn, err := net.FileConn(f)
		if err != nil {
			return nil, err
		}
		l := &singleListener{conn: make(chan net.Conn, 1), addr: conn.LocalAddr()}
		l.conn <- conn
		return l, nil
	}
	return net.FileListener(f)
}

type singleListener struct {
	conn chan net.Conn
	addr net.Addr
	once sync.Once
}

func (l *singleListener) Accept() (net.Conn, error) {
	c, ok := <-l.conn
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (l *singleListener) Close() error {
	l.once.Do(func() { close(l.conn) })
	return nil
}

func (l *singleListener) Addr() net.Addr { return l.addr }

// countBytes returns a function that counts the bytes that have arrived from a pipe so far.
func countBytes(fd int) func() int {
	var mu sync.Mutex
	n := 0
	_ = unix.SetNonblock(fd, true) // an invalid descriptor has nothing to count
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		var buf [64]byte
		for {
			got, err := unix.Read(fd, buf[:])
			if err != nil || got <= 0 {
				return n
			}
			n += got
		}
	}
}
