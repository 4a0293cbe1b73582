package proc

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// pipeRoom is what a pipe holds at most, in bytes, unless somebody made it larger: pipe(7).
const pipeRoom = 64 << 10

// Feed copies a pipe to a writer until no process has the pipe open any
// more. A pipe may outlive the child it was made for, in the hands of what that one left in
// the background: then Settle says when the child itself has been heard, however late
// this process gets around to reading.
type Feed struct {
	r     *os.File
	w     io.Writer
	heard chan struct{} // closed when what was in the pipe at Settle's end of patience is passed on
	cut   atomic.Bool
	done  chan struct{}
	err   error
}

// NewFeed begins to read r, which it closes at the end. Where w fails, reading ends.
func NewFeed(r *os.File, w io.Writer) *Feed {
	f := &Feed{r: r, w: w, heard: make(chan struct{}), done: make(chan struct{})}
	go f.run()
	return f
}

// Done is closed when nothing comes any more; then Err may be called.
func (f *Feed) Done() <-chan struct{} { return f.done }

// Err is what kept anything from being read or passed on.
func (f *Feed) Err() error { return f.err }

// Settle is called once, when the child has ended. It returns when everything that the child
// wrote has been passed on: at the end of the pipe, and after patience also where the pipe
// is still open and nothing of the child's can be in it any more. It takes as long as the writer does.
func (f *Feed) Settle(patience time.Duration) {
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-f.done:
		return
	case <-t.C:
	}
	_ = f.r.SetReadDeadline(time.Unix(1, 0)) // fails for a pipe that is closed, which is done
	select {
	case <-f.done:
	case <-f.heard:
	}
}

// Cut is Settle for a pipe that is read no further: its writers get an error.
func (f *Feed) Cut(patience time.Duration) {
	f.cut.Store(true)
	f.Settle(patience)
	<-f.done
}

func (f *Feed) run() {
	defer close(f.done)
	f.err = f.pass()
	f.err = errors.Join(f.err, f.r.Close())
}

func (f *Feed) pass() error {
	buf := make([]byte, 32<<10)
	for {
		n, err := f.r.Read(buf)
		if n > 0 {
			if _, werr := f.w.Write(buf[:n]); werr != nil {
				return werr
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			if err := f.rest(buf); err != nil {
				return err
			}
			close(f.heard)
			if f.cut.Load() {
				return nil
			}
		default:
			return err
		}
	}
}

// rest passes on what is in the pipe now, without waiting for more. It ends although another process
// goes on writing.
func (f *Feed) rest(buf []byte) error {
	if err := f.r.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	raw, err := f.r.SyscallConn()
	if err != nil {
		return err
	}
	for left := pipeRoom; left > 0; {
		var n int
		var readErr error
		if err := raw.Read(func(fd uintptr) bool {
			for {
				if n, readErr = syscall.Read(int(fd), buf); !errors.Is(readErr, syscall.EINTR) {
					return true // whatever came: to wait for more is not ours
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
		if _, err := f.w.Write(buf[:n]); err != nil {
			return err
		}
	}
	return nil
}
