package text

import (
	"fmt"
	"unicode/utf8"
)

// Ends keeps the beginning and the end of what is written to it.
type Ends struct {
	headMost, tailMost int // -1 for the head means all
	head, tail         []byte
	left               int64 // out, between them
}

// NewEnds keeps three quarters of most bytes for the beginning, since errors of tools come first, and the rest for
// the end, where their sum is; with less than 0 all.
func NewEnds(most int) *Ends {
	if most < 0 {
		return &Ends{headMost: -1}
	}
	return &Ends{headMost: most - most/4, tailMost: most / 4}
}

// Write never fails.
func (c *Ends) Write(p []byte) (int, error) {
	n := len(p)
	if c.headMost < 0 {
		c.head = append(c.head, p...)
		return n, nil
	}
	room := min(c.headMost-len(c.head), len(p))
	c.head, p = append(c.head, p[:room]...), p[room:]
	if over := len(p) - c.tailMost; over > 0 {
		c.left += int64(over + len(c.tail))
		c.tail, p = c.tail[:0], p[over:]
	}
	if over := len(c.tail) + len(p) - c.tailMost; over > 0 {
		c.left += int64(over)
		c.tail = append(c.tail[:0], c.tail[over:]...)
	}
	c.tail = append(c.tail, p...)
	return n, nil
}

// Limit keeps less of what was written: see NewEnds. It does not keep more than before.
func (c *Ends) Limit(most int) {
	if c.headMost >= 0 && c.headMost+c.tailMost <= most {
		return
	}
	n := NewEnds(most)
	_, _ = n.Write(c.head)
	n.left += c.left
	_, _ = n.Write(c.tail)
	*c = *n
}

// Len is how many bytes were kept.
func (c *Ends) Len() int { return len(c.head) + len(c.tail) }

// Cut reports whether something was left out.
func (c *Ends) Cut() bool { return c.left > 0 }

// Bytes is what was kept, with a notice where something was left out. No character is cut in two there.
func (c *Ends) Bytes() []byte {
	if !c.Cut() {
		return append(c.head, c.tail...)
	}
	head, tail, left := c.head, c.tail, c.left
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
