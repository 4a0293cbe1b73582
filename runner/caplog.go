package runner

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
)

// Bytes kept of a larger output: its beginning shows what was started, its end how it ended.
const (
	logHead = 8 << 20
	logTail = 8 << 20
)

const droppedMark = "\n[%d bytes of output were dropped here]\n"

// maxAlign bounds the search for the first line start after dropped output.
const maxAlign = 64 << 10

// capLog is a log file with the first head and the last tail bytes, as a ring that Close puts in order: memory stays
// small, and a killed writer leaves both parts. Write never fails, because a full disk must not stop the logged
// process.
type capLog struct {
	mu         sync.Mutex
	f          *os.File
	head, tail int64
	n          int64 // bytes received
	err        error // first error
}

func newCapLog(path string, head, tail int64) (*capLog, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("create log: %w", err)
	}
	return &capLog{f: f, head: head, tail: tail}, nil
}

func (l *capLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	total := len(p)
	if room := l.head - l.n; room > 0 {
		k := min(room, int64(len(p)))
		l.writeAt(p[:k], l.n)
		l.n, p = l.n+k, p[k:]
	}
	if skip := int64(len(p)) - l.tail; skip > 0 {
		l.n, p = l.n+skip, p[skip:]
	}
	for len(p) > 0 {
		at := (l.n - l.head) % l.tail
		k := min(l.tail-at, int64(len(p)))
		l.writeAt(p[:k], l.head+at)
		l.n, p = l.n+k, p[k:]
	}
	return total, nil
}

func (l *capLog) writeAt(p []byte, at int64) {
	if _, err := l.f.WriteAt(p, at); err != nil && l.err == nil {
		l.err = err
	}
}

// Close orders the file and closes it. It returns the first error of all operations.
func (l *capLog) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if dropped := l.n - l.head - l.tail; dropped > 0 && l.err == nil {
		l.err = l.order(dropped)
	}
	return errors.Join(l.err, l.f.Close())
}

func (l *capLog) order(dropped int64) error {
	ring := make([]byte, l.tail)
	if _, err := l.f.ReadAt(ring, l.head); err != nil {
		return err
	}
	at := (l.n - l.head) % l.tail
	ring = append(ring[at:len(ring):len(ring)], ring[:at]...)
	if i := bytes.IndexByte(ring[:min(len(ring), maxAlign)], '\n'); i >= 0 {
		ring, dropped = ring[i+1:], dropped+int64(i)+1
	}
	mark := fmt.Sprintf(droppedMark, dropped)
	if _, err := l.f.WriteAt(append([]byte(mark), ring...), l.head); err != nil {
		return err
	}
	return l.f.Truncate(l.head + int64(len(mark)+len(ring)))
}
