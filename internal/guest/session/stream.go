package session

import (
	"errors"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxBetween bounds the stored output between two cells, in bytes: the next cell shows its end.
const maxBetween = 64 << 10

// stream is one output pipe of an interpreter. A cell's end is at an exact point of the output.
type stream struct {
	f       *os.File
	raw     syscall.RawConn
	mu      sync.Mutex
	sink    func([]byte) // nil while no cell runs
	between []byte
	buf     []byte
}

func newStream(f *os.File) (*stream, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &stream{f: f, raw: raw, buf: make([]byte, 64<<10)}, nil
}

// follow forwards output until the pipe's end or its deadline.
func (s *stream) follow() {
	for {
		over := false
		err := s.raw.Read(func(fd uintptr) bool {
			more, end := s.take(int(fd))
			over = end
			return more || end
		})
		if err != nil || over {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drain()
	_ = s.f.Close()
}

// take reads once, and reports whether there was data and whether it was the end.
func (s *stream) take(fd int) (more, end bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.read(fd)
}

func (s *stream) read(fd int) (more, end bool) {
	for {
		n, err := unix.Read(fd, s.buf)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return false, false
		case err != nil || n <= 0:
			return false, true
		case s.sink != nil:
			s.sink(s.buf[:n])
		default:
			s.between = append(s.between, s.buf[:n]...)
			if over := len(s.between) - maxBetween; over > 0 {
				s.between = append(s.between[:0], s.between[over:]...)
			}
		}
		return true, false
	}
}

// begin directs output to a cell.
func (s *stream) begin(sink func([]byte)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sink = sink
	if len(s.between) > 0 {
		sink(s.between)
		s.between = nil
	}
}

// maxDrain bounds the reads at a cell's end: a child of the cell may print forever.
const maxDrain = 256

// end forwards all data in the pipe, and ends the cell's part.
func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drain()
	s.sink = nil
}

// catchUp forwards all data in the pipe for a cell that continues.
func (s *stream) catchUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drain()
}

// drain reads the data in the pipe. The caller holds the lock.
func (s *stream) drain() {
	_ = s.raw.Control(func(fd uintptr) { // a closed pipe has none
		for range maxDrain {
			if more, _ := s.read(int(fd)); !more {
				return
			}
		}
	})
}
