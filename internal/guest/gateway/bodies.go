package gateway

import (
	"errors"
	"io"
	"sync"
	"time"
)

// maxHeld bounds the memory of all bodies at one time, in bytes: requests, answers, and copies of them.
const maxHeld = 4 * maxRequest

// firstRead is the memory that a body gets before any of it has arrived, in bytes. The length that a
// client declares reserves nothing.
const firstRead = 16 << 10

var (
	errNoRoom  = errors.New("too many large bodies at the same time")
	errTooLong = errors.New("the body is too long")
)

// room accounts for the memory of all bodies.
type room struct {
	mu   sync.Mutex
	free int64
	more chan struct{} // closed and replaced when memory is returned
}

func newRoom(size int64) *room { return &room{free: size, more: make(chan struct{})} }

// take takes n bytes, or returns a channel to wait for.
func (r *room) take(n int64) (wait <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n > r.free {
		return r.more
	}
	r.free -= n
	return nil
}

func (r *room) give(n int64) {
	if n == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free += n
	close(r.more)
	r.more = make(chan struct{})
}

// part is one call's share of the room. Only one goroutine uses it at a time.
type part struct {
	room *room
	size int64
	// patience is how long grow waits for others to return memory. Zero means not at all.
	patience time.Duration
	over     <-chan struct{} // ends the wait
}

// grow takes n more bytes.
func (p *part) grow(n int64) bool {
	wait := p.room.take(n)
	if wait != nil && p.patience > 0 {
		t := time.NewTimer(p.patience)
		defer t.Stop()
		for wait != nil {
			select {
			case <-wait:
				wait = p.room.take(n)
			case <-t.C:
				return false
			case <-p.over:
				return false
			}
		}
	}
	if wait != nil {
		return false
	}
	p.size += n
	return true
}

// shrink returns n bytes.
func (p *part) shrink(n int64) {
	p.size -= n
	p.room.give(n)
}

// resize changes the share to n bytes.
func (p *part) resize(n int64) bool {
	if n <= p.size {
		p.shrink(p.size - n)
		return true
	}
	return p.grow(n - p.size)
}

func (p *part) release() { p.shrink(p.size) }

// fill reads to the end and holds little more than it has read. With an error
// it returns the part it has read.
func (p *part) fill(r io.Reader, limit int64) ([]byte, error) {
	var b []byte
	for {
		if len(b) == cap(b) {
			next := min(max(2*int64(cap(b)), firstRead), limit+1)
			if !p.grow(next) { // both exist during the copy
				return b, errNoRoom
			}
			bigger := make([]byte, len(b), next)
			copy(bigger, b)
			p.shrink(int64(cap(b)))
			b = bigger
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case int64(len(b)) > limit:
			return b, errTooLong
		case errors.Is(err, io.EOF):
			return b, nil
		case err != nil:
			return b, err
		}
	}
}
