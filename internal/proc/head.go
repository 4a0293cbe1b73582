package proc

import (
	"io"
	"slices"
	"sync"
)

// Head is a writer that passes the first bytes on and reports once that it drops the rest. It is safe for concurrent use.
type Head struct {
	mu   sync.Mutex
	w    io.Writer
	left int
}

// NewHead returns a Head that passes size bytes on to w.
func NewHead(w io.Writer, size int) *Head { return &Head{w: w, left: size} }

func (h *Head) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.left <= 0 {
		return len(p), nil
	}
	b := p[:min(len(p), h.left)]
	h.left -= len(b)
	if h.left == 0 {
		b = append(slices.Clip(b), "\n[…] the rest was dropped\n"...)
	}
	if _, err := h.w.Write(b); err != nil {
		return 0, err
	}
	return len(p), nil
}
