package render

import (
	"strings"

	"github.com/mattn/go-runewidth"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// oneLine is text.Clean for a single line.
func oneLine(s string) string {
	s = text.Clean(s)
	if !strings.Contains(s, "\n") {
		return strings.TrimSpace(s)
	}
	var parts []string
	for l := range strings.SplitSeq(s, "\n") {
		if l = strings.TrimSpace(l); l != "" {
			parts = append(parts, l)
		}
	}
	return strings.Join(parts, " | ")
}

// columns is the width of a cleaned text in columns.
func columns(s string) int {
	w := 0
	for _, r := range s {
		w += runeColumns(r)
	}
	return w
}

// terminal ignores the locale, so that the same text is cut at the same place everywhere.
var terminal = &runewidth.Condition{StrictEmojiNeutral: true}

// runeColumns counts each character alone. Terminals that join emoji to one show fewer columns; a line that counts
// as too long is only cut early.
func runeColumns(r rune) int { return terminal.RuneWidth(r) }

// cut shortens a text to a number of columns and marks the cut.
func cut(s string, width int) string {
	if width <= 0 {
		return ""
	}
	if columns(s) <= width {
		return s
	}
	w := 0
	for i, r := range s {
		c := runeColumns(r)
		if w+c > width-1 {
			return s[:i] + "…"
		}
		w += c
	}
	return s
}

// wrap breaks a cleaned text into at most limit lines of at most width columns, at spaces if possible.
func wrap(s string, width, limit int) []string {
	width = max(width, 10)
	var lines []string
	for l := range strings.SplitSeq(strings.Trim(s, "\n"), "\n") {
		for columns(l) > width {
			at := breakAt(l, width)
			lines = append(lines, strings.TrimRight(l[:at], " "))
			l = strings.TrimLeft(l[at:], " ")
			if len(lines) > limit {
				break
			}
		}
		lines = append(lines, l)
		if len(lines) > limit {
			break
		}
	}
	if len(lines) > limit {
		lines = append(lines[:limit], "…")
	}
	return lines
}

// breakAt is the place to break a line that is longer than width.
func breakAt(s string, width int) int {
	w, space := 0, 0
	for i, r := range s {
		if w += runeColumns(r); w > width {
			if space > len(s[:i])/2 {
				return space
			}
			return max(i, 1)
		}
		if r == ' ' {
			space = i + 1
		}
	}
	return len(s)
}
