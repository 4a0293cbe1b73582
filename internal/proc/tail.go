package proc

import "sync"

// Tail is a writer that keeps the last bytes. It is safe for concurrent use and never fails.
type Tail struct {
	mu   sync.Mutex
	buf  []byte
	size int
	lost bool
}

// NewTail returns a Tail of size bytes.
func NewTail(size int) *Tail { return &Tail{size: size} }

func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(p)
	if n >= t.size {
		t.lost = t.lost || n > t.size || len(t.buf) > 0
		t.buf = append(t.buf[:0], p[n-t.size:]...)
		return n, nil
	}
	if over := len(t.buf) + n - t.size; over > 0 {
		t.lost = true
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	t.buf = append(t.buf, p...)
	return n, nil
}

// String returns the kept bytes, after a mark if some were dropped.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lost {
		return "[…] " + string(t.buf)
	}
	return string(t.buf)
}
