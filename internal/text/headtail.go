package text

import (
	"fmt"
	"unicode/utf8"
)

// HeadTail keeps the beginning and the end of what is written to it.
type HeadTail struct {
	headMost, tailMost int // -1 for the head means all
	head, tail         []byte
	left               int64 // out, between them
}

// NewHeadTail keeps three quarters of most bytes for the beginning, since errors of tools come first, and the rest for
// the end, where their sum is; with less than 0 all.
func NewHeadTail(most int) *HeadTail {
	if most < 0 {
		return &HeadTail{headMost: -1}
	}
	return &HeadTail{headMost: most - most/4, tailMost: most / 4}
}

// Write never fails.
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

// Limit keeps less of what was written: see NewHeadTail. It does not keep more than before.
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

// Len is how many bytes were kept.
func (h *HeadTail) Len() int { return len(h.head) + len(h.tail) }

// Cut reports whether something was left out.
func (h *HeadTail) Cut() bool { return h.left > 0 }

// Bytes is what was kept, with a notice where something was left out. No character is cut in two there.
func (h *HeadTail) Bytes() []byte {
	if !h.Cut() {
		return append(h.head, h.tail...)
	}
	head, tail, left := h.head, h.tail, h.left
	// A character has four bytes at most: what does not begin or end within them is no UTF-8, and is left as it is.
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
