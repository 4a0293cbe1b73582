package proc

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// pipeRoom is the default capacity of a pipe in bytes, see pipe(7).
const pipeRoom = 64 << 10

// PipeCopier copies a pipe to a writer until no process has it open for writing. Drain waits for the child's own output.
type PipeCopier struct {
	r       *os.File
	w       io.Writer
	drained chan struct{} // closed when the pipe's content at the end of Drain's wait is copied
	cut     atomic.Bool
	done    chan struct{}
	err     error
}

// NewPipeCopier starts to read r, which it closes at the end. It stops if w fails.
func NewPipeCopier(r *os.File, w io.Writer) *PipeCopier {
	c := &PipeCopier{r: r, w: w, drained: make(chan struct{}), done: make(chan struct{})}
	go c.run()
	return c
}

// Done is closed at the end of the copying. After that Err may be called.
func (c *PipeCopier) Done() <-chan struct{} { return c.done }

// Err returns the error that ended the copying, if any.
func (c *PipeCopier) Err() error { return c.err }

// Drain is called once after the child's end. It returns at the end of the pipe, or after patience once its present
// content is copied.
func (c *PipeCopier) Drain(patience time.Duration) {
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-c.done:
		return
	case <-t.C:
	}
	_ = c.r.SetReadDeadline(time.Unix(1, 0)) // fails if the pipe is closed, and then done is closed, too
	select {
	case <-c.done:
	case <-c.drained:
	}
}

// Abandon is Drain, but then closes the pipe, so that its writers get an error.
func (c *PipeCopier) Abandon(patience time.Duration) {
	c.cut.Store(true)
	c.Drain(patience)
	<-c.done
}

func (c *PipeCopier) run() {
	defer close(c.done)
	c.err = c.pass()
	c.err = errors.Join(c.err, c.r.Close())
}

func (c *PipeCopier) pass() error {
	buf := make([]byte, 32<<10)
	for {
		n, err := c.r.Read(buf)
		if n > 0 {
			if _, werr := c.w.Write(buf[:n]); werr != nil {
				return werr
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			if err := c.drain(buf); err != nil {
				return err
			}
			close(c.drained)
			if c.cut.Load() {
				return nil
			}
		default:
			return err
		}
	}
}

// drain copies the pipe's current content without waiting for more.
func (c *PipeCopier) drain(buf []byte) error {
	if err := c.r.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	raw, err := c.r.SyscallConn()
	if err != nil {
		return err
	}
	for left := pipeRoom; left > 0; {
		var n int
		var readErr error
		if err := raw.Read(func(fd uintptr) bool {
			for {
				if n, readErr = syscall.Read(int(fd), buf); !errors.Is(readErr, syscall.EINTR) {
					return true // do not wait for more
				}
			}
		}); err != nil {
			return err
		}
		if errors.Is(readErr, syscall.EAGAIN) || readErr == nil && n == 0 {
			return nil
		}
		if readErr != nil {
			return readErr
		}
		left -= n
		if _, err := c.w.Write(buf[:n]); err != nil {
			return err
		}
	}
	return nil
}
