package wireserver

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/supervise"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

// standardFiles holds both ends of a command's standard files.
type standardFiles struct {
	in, out, err          *os.File // the command's
	ourIn, ourOut, ourErr *os.File // ourErr is nil if out and err are the same
	tty                   *os.File // the guest's side of a terminal
}

func openFiles(size *wire.Size, user *supervise.User) (standardFiles, error) {
	if size != nil {
		return openTerminal(*size, user)
	}
	var f standardFiles
	var err error
	if f.in, f.ourIn, err = os.Pipe(); err != nil {
		return standardFiles{}, err
	}
	if f.ourOut, f.out, err = os.Pipe(); err == nil {
		f.ourErr, f.err, err = os.Pipe()
	}
	if err != nil {
		f.closeTheirs()
		f.closeOurs()
		return standardFiles{}, err
	}
	return f, nil
}

// openTerminal opens a terminal without its path, which may not exist in containers of other images.
func openTerminal(size wire.Size, user *supervise.User) (standardFiles, error) {
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return standardFiles{}, fmt.Errorf("open a terminal: %w", err)
	}
	var theirs *os.File
	err = errors.Join(control(ours, func(fd int) error {
		if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
			return err
		}
		peer, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
		if errno != 0 {
			return errno
		}
		theirs = os.NewFile(peer, "terminal")
		return nil
	}), setSize(ours, size))
	if err == nil && user != nil {
		err = theirs.Chown(int(user.UID), int(user.GID))
	}
	if err != nil {
		closeAll(ours, theirs)
		return standardFiles{}, fmt.Errorf("open a terminal: %w", err)
	}
	return standardFiles{in: theirs, out: theirs, err: theirs, ourIn: ours, ourOut: ours, tty: ours}, nil
}

func setSize(tty *os.File, s wire.Size) error {
	return control(tty, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: s.Rows, Col: s.Cols})
	})
}

// control calls f with the file's descriptor; File.Fd would make its reads block.
func control(file *os.File, f func(fd int) error) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var ferr error
	if err := raw.Control(func(fd uintptr) { ferr = f(int(fd)) }); err != nil {
		return err
	}
	return ferr
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		_ = f.Close() // nil, or the same file twice: the error is irrelevant
	}
}

func (f standardFiles) closeTheirs() { closeAll(f.in, f.out, f.err) }
func (f standardFiles) closeOurs()   { closeAll(f.ourIn, f.ourOut, f.ourErr) }
