package wireserver

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/wire"
)

// spoolSize bounds the stored output of a command, in bytes, for clients that reconnect.
const spoolSize = 8 << 20

// spool stores the end of a command's output, with the offset of each byte. It is safe for concurrent use.
type spool struct {
	mu         sync.Mutex
	pieces     []piece // in order, without gaps between them
	start, end int64   // offsets of the first stored byte, and after the last
	closed     bool
	changed    chan struct{} // closed at the next change of the fields above
	// reader is the offset of the starting client, for which output waits; -1 drops old output.
	reader int64
}

type piece struct {
	stream wire.FrameType
	data   []byte
	at     int64
}

// newSpool returns an empty spool. With a reader, output waits for it.
func newSpool(reader bool) *spool {
	s := &spool{changed: make(chan struct{}), reader: -1}
	if reader {
		s.reader = 0
	}
	return s
}

func (s *spool) change() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// writer returns a writer for one stream. It never fails.
func (s *spool) writer(stream wire.FrameType) io.Writer { return spoolWriter{s, stream} }

type spoolWriter struct {
	s      *spool
	stream wire.FrameType
}

func (w spoolWriter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		part := p[:min(len(p), wire.MaxOutputFrame)]
		w.s.add(w.stream, part)
		p = p[len(part):]
	}
	return n, nil
}

func (s *spool) add(stream wire.FrameType, p []byte) {
	s.mu.Lock()
	for s.reader >= 0 && s.end-s.reader >= spoolSize {
		changed := s.changed
		s.mu.Unlock()
		<-changed
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	if last := len(s.pieces) - 1; last >= 0 && s.pieces[last].stream == stream && len(s.pieces[last].data)+len(p) <= wire.MaxOutputFrame {
		// Readers hold only data before its end.
		s.pieces[last].data = append(s.pieces[last].data, p...)
	} else {
		s.pieces = append(s.pieces, piece{stream, append([]byte(nil), p...), s.end})
	}
	s.end += int64(len(p))
	for s.end-s.start > spoolSize && len(s.pieces) > 1 && (s.reader < 0 || s.pieces[1].at <= s.reader) {
		s.start += int64(len(s.pieces[0].data))
		s.pieces[0].data = nil
		s.pieces = s.pieces[1:]
	}
	s.change()
}

// close marks the end of the output.
func (s *spool) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		s.change()
	}
}

// drop discards all output, also later output: it will not be requested.
func (s *spool) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pieces, s.start, s.reader = nil, s.end, -1
	s.change()
}

// read sets the offset of the client that started the command; -1 if it is gone.
func (s *spool) read(to int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reader >= 0 {
		s.reader = to
		s.change()
	}
}

// len returns the size of the output so far.
func (s *spool) len() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end
}

// next waits for output from the offset on. It returns output of one stream, or how many bytes are no longer stored. At
// the end of all output the error is io.EOF; if quiet fires first, errQuiet.
func (s *spool) next(ctx context.Context, at int64, quiet <-chan time.Time) (p piece, lost int64, err error) {
	for {
		s.mu.Lock()
		changed, closed := s.changed, s.closed
		if at < s.start {
			defer s.mu.Unlock()
			return piece{}, s.start - at, nil
		}
		for i := len(s.pieces) - 1; i >= 0 && at < s.end; i-- {
			if p := s.pieces[i]; p.at <= at {
				s.mu.Unlock()
				return piece{p.stream, p.data[at-p.at:], at}, 0, nil
			}
		}
		s.mu.Unlock()
		if closed {
			return piece{}, 0, io.EOF
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return piece{}, 0, ctx.Err()
		case <-quiet:
			return piece{}, 0, errQuiet
		}
	}
}
