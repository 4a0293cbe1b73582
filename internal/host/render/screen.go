package render

import (
	"fmt"
	"io"
	"strings"
)

// screen writes permanent lines above lines that are repainted. Each repaint is one write
// that overwrites in place, marked as a synchronised update for terminals that support
// it, so nothing flickers.
type screen struct {
	w    io.Writer
	last []int // columns of the painted live lines
	gone bool  // the reader has gone away
}

const (
	syncOn    = "\x1b[?2026h"
	syncOff   = "\x1b[?2026l"
	eraseLine = "\x1b[K"
	eraseDown = "\x1b[J"
)

func (s *screen) live() bool { return len(s.last) > 0 }

// draw replaces the live part by permanent lines and a new live part. Lines have no
// control characters except colours, and are shorter than the width.
func (s *screen) draw(stay, live []string, width int) {
	if s.gone || len(stay) == 0 && len(live) == 0 && len(s.last) == 0 {
		return
	}
	var b strings.Builder
	b.WriteString(syncOn)
	// A terminal that became narrower has wrapped the old lines into more rows.
	rows := 0
	for _, c := range s.last {
		rows += max(1, (c+width-1)/max(width, 1))
	}
	if rows > 0 {
		fmt.Fprintf(&b, "\r\x1b[%dA", rows)
	}
	for _, l := range stay {
		b.WriteString(l + eraseLine + "\n")
	}
	s.last = s.last[:0]
	for _, l := range live {
		b.WriteString(l + eraseLine + "\n")
		s.last = append(s.last, columns(stripColor(l)))
	}
	b.WriteString(eraseDown + syncOff)
	if _, err := io.WriteString(s.w, b.String()); err != nil {
		s.gone = true
	}
}

// stripColor removes the renderer's own colours.
func stripColor(s string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, "\x1b[")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		_, s, _ = strings.Cut(after, "m")
	}
}
