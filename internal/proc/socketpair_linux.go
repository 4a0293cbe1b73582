package proc

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// SocketPair returns a connection to a future child, and the child's end for its ExtraFiles, which the caller closes.
func SocketPair() (ours *net.UnixConn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a pair of sockets: %w", err)
	}
	end, theirs := os.NewFile(uintptr(fds[0]), "child"), os.NewFile(uintptr(fds[1]), "parent")
	defer end.Close()
	conn, err := net.FileConn(end)
	if err != nil {
		_ = theirs.Close()
		return nil, nil, fmt.Errorf("make a pair of sockets: %w", err)
	}
	return conn.(*net.UnixConn), theirs, nil
}
