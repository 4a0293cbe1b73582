package dockerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// socket is the listening socket that successive daemons inherit.
type socket struct {
	l    *net.UnixListener
	file *os.File // a duplicate, for the child
	path string
}

func listen(ctx context.Context, path string) (*socket, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("create directory of docker socket: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove stale docker socket: %w", err)
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("create docker socket: %w", err)
	}
	l, ok := ln.(*net.UnixListener)
	if !ok {
		ln.Close()
		return nil, fmt.Errorf("create docker socket: got a %T", ln)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("restrict docker socket: %w", err)
	}
	f, err := l.File()
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("duplicate docker socket: %w", err)
	}
	return &socket{l: l, file: f, path: path}, nil
}

// waitClient waits for a connection without accepting it: the daemon accepts it.
func (s *socket) waitClient(ctx context.Context) error {
	rc, err := s.l.SyscallConn()
	if err != nil {
		return fmt.Errorf("watch docker socket: %w", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("watch docker socket: %w", err)
	}
	defer r.Close()
	stop := context.AfterFunc(ctx, func() { w.Close() }) // wakes the poll
	defer func() {
		if stop() {
			w.Close()
		}
	}()
	wake := int32(r.Fd())
	var perr error
	err = rc.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: wake}}
		for {
			_, perr = unix.Poll(p, -1)
			if !errors.Is(perr, unix.EINTR) {
				return
			}
		}
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := errors.Join(err, perr); err != nil {
		return fmt.Errorf("watch docker socket: %w", err)
	}
	return nil
}
