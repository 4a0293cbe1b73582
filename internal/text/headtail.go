package text

import (
	"fmt"
	"unicode/utf8"
)

// HeadTail keeps the beginning and the end of its input.
type HeadTail struct {
	headMost, tailMost int // -1 for the head means all
	head, tail         []byte
	left               int64 // out, between them
}

// NewHeadTail keeps three quarters of most bytes for the beginning and the rest for the end; all if most is negative.
func NewHeadTail(most int) *HeadTail {
	if most < 0 {
		return &HeadTail{headMost: -1}
	}
	return &HeadTail{headMost: most - most/4, tailMost: most / 4}
}

func (h *HeadTail) Write(p []byte) (int, error) {
	n := len(p)
	if h.headMost < 0 {
		h.head = append(h.head, p...)
		return n, nil
	}
	room := min(h.headMost-len(h.head), len(p))
	h.head, p = append(h.head, p[:room]...), p[room:]
	if over := len(p) - h.tailMost; over > 0 {
		h.left += int64(over + len(h.tail))
		h.tail, p = h.tail[:0], p[over:]
	}
	if over := len(h.tail) + len(p) - h.tailMost; over > 0 {
		h.left += int64(over)
		h.tail = append(h.tail[:0], h.tail[over:]...)
	}
	h.tail = append(h.tail, p...)
	return n, nil
}

// Limit reduces the kept bytes to most.
func (h *HeadTail) Limit(most int) {
	if h.headMost >= 0 && h.headMost+h.tailMost <= most {
		return
	}
	n := NewHeadTail(most)
	_, _ = n.Write(h.head)
	n.left += h.left
	_, _ = n.Write(h.tail)
	*h = *n
}

// Len returns the number of kept bytes.
func (h *HeadTail) Len() int { return len(h.head) + len(h.tail) }

// Cut reports whether bytes were dropped.
func (h *HeadTail) Cut() bool { return h.left > 0 }

// Bytes returns the kept bytes, with a notice for dropped ones. It cuts no character.
func (h *HeadTail) Bytes() []byte {
	if !h.Cut() {
		return append(h.head, h.tail...)
	}
	head, tail, left := h.head, h.tail, h.left
	// A character has at most four bytes: what does not begin or end within them is no UTF-8.
	for i := 1; i <= min(utf8.UTFMax-1, len(head)); i++ {
		if last := head[len(head)-i:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				head, left = head[:len(head)-i], left+int64(i)
			}
			break
		}
	}
	for i := 0; i < min(utf8.UTFMax, len(tail)); i++ {
		if utf8.RuneStart(tail[i]) {
			tail, left = tail[i:], left+int64(i)
			break
		}
	}
	notice := fmt.Sprintf("\n[… %d bytes were left out …]\n", left)
	return append(append(append([]byte(nil), head...), notice...), tail...)
}
