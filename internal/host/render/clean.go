package render

import (
	"strings"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// Clean makes untrusted text safe for a terminal: escape sequences are removed,
// of lines that were overwritten with carriage returns the last state is kept,
// tabs become spaces, and every other control character, bidirectional override
// or broken byte becomes a visible replacement. Line feeds stay.
func Clean(s string) string {
	if plain(s) {
		return s
	}
	var out strings.Builder
	for i, line := range strings.Split(strings.ReplaceAll(s, "\r\n", "\n"), "\n") {
		if i > 0 {
			out.WriteByte('\n')
		}
		line = strings.TrimRight(line, "\r")
		if cr := strings.LastIndexByte(line, '\r'); cr >= 0 {
			line = line[cr+1:]
		}
		cleanLine(&out, line)
	}
	return out.String()
}

// plain reports whether there is nothing to clean, which is the usual case.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 0x20 && c != '\n' || c >= 0x7f {
			return false
		}
	}
	return true
}

// oneLine is Clean for a place that has room for one line.
func oneLine(s string) string {
	s = Clean(s)
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

func cleanLine(out *strings.Builder, s string) {
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == 0x1b:
			s = s[escapeLen(s, 1):]
			continue
		case r >= 0x80 && r <= 0x9f && n == 2:
			// An eight-bit control: CSI and its kin have an argument, as after ESC.
			s = s[escapeLen(s, n):]
			continue
		case r == '\t':
			out.WriteString("    ")
		case r == utf8.RuneError && n == 1, text.Acts(r):
			out.WriteRune(utf8.RuneError)
		default:
			out.WriteString(s[:n])
		}
		s = s[n:]
	}
}

// escapeLen is the length of the escape sequence that s begins with; intro is
// the length of its first character (ESC, or an eight-bit control).
func escapeLen(s string, intro int) int {
	kind, i := byte(0), intro
	switch {
	case intro == 2: // 0xC2 0x80-0x9f stands for ESC 0x40-0x5f
		kind = s[1] - 0x40
	case len(s) > 1:
		kind, i = s[1], 2
	default:
		return len(s)
	}
	switch kind {
	case '[': // control sequence: parameters, then one final byte
		for ; i < len(s); i++ {
			if s[i] >= 0x40 && s[i] <= 0x7e {
				return i + 1
			}
			if s[i] < 0x20 || s[i] > 0x7e {
				return i
			}
		}
		return i
	case ']', 'P', 'X', '^', '_': // string: until BEL or ST
		for ; i < len(s); i++ {
			switch {
			case s[i] == 0x07:
				return i + 1
			case s[i] == 0x1b && i+1 < len(s) && s[i+1] == '\\':
				return i + 2
			case s[i] == 0xc2 && i+1 < len(s) && s[i+1] == 0x9c:
				return i + 2
			}
		}
		return i
	}
	if kind >= 0x20 && kind <= 0x2f { // charset selection: one byte more
		return min(i+1, len(s))
	}
	if intro == 1 && (kind < 0x20 || kind > 0x7e) {
		return 1 // a lone ESC before something that is no part of it
	}
	return i
}

// columns is the number of columns a cleaned text takes.
func columns(s string) int {
	w := 0
	for _, r := range s {
		w += runeColumns(r)
	}
	return w
}

// terminal has no say in it by its locale: the same text is cut at the same place everywhere.
var terminal = &runewidth.Condition{StrictEmojiNeutral: true}

// runeColumns counts each character by itself: terminals that join emoji to one show fewer columns, and a line that
// is thought too long is merely cut early.
func runeColumns(r rune) int { return terminal.RuneWidth(r) }

// cut shortens a text to a number of columns and marks that it did.
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

// wrap breaks a cleaned text into lines of at most width columns, at spaces
// where there are any, and into at most limit lines.
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

// breakAt is where to break a line that is longer than width.
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
