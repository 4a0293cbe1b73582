package guard

import (
	"context"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// peer is the process that opened a connection.
type peer struct {
	pid      int32
	uid, gid uint32
}

type peerKey struct{}

func withPeer(ctx context.Context, c net.Conn) context.Context {
	if l, ok := c.(*client); ok {
		return context.WithValue(ctx, peerKey{}, peerOf(l.UnixConn))
	}
	return ctx
}

func peerFrom(ctx context.Context) peer {
	p, ok := ctx.Value(peerKey{}).(peer)
	if !ok {
		return nobody
	}
	return p
}

// nobody has no special rights on any file.
var nobody = peer{uid: 65534, gid: 65534}

func peerOf(c *net.UnixConn) peer {
	p := nobody
	rc, err := c.SyscallConn()
	if err != nil {
		return p
	}
	_ = rc.Control(func(fd uintptr) {
		if u, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			p = peer{u.Pid, u.Uid, u.Gid}
		}
	})
	return p
}

// limited bounds the open connections.
type limited struct {
	*net.UnixListener
	slots chan struct{}
	done  chan struct{}
	once  sync.Once
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.done:
		return nil, net.ErrClosed
	}
	c, err := l.AcceptUnix()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &client{UnixConn: c, release: func() { <-l.slots }}, nil
}

func (l *limited) Close() error {
	l.once.Do(func() { close(l.done) })
	return l.UnixListener.Close()
}

type client struct {
	*net.UnixConn
	release func()
	once    sync.Once
}

func (c *client) Close() error {
	err := c.UnixConn.Close()
	c.once.Do(c.release)
	return err
}

// gone reports whether the client has closed both directions. A client that has only
// finished sending (docker exec -i with a finished stdin) is not gone.
func gone(c net.Conn) bool {
	s, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	rc, err := s.SyscallConn()
	if err != nil {
		return true // closed by ourselves
	}
	hangup := false
	err = rc.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(p, 0)
		hangup = err == nil && n > 0 && p[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0
	})
	return err != nil || hangup
}
