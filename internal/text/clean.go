package text

import (
	"strings"
	"unicode/utf8"
)

// Clean makes untrusted text safe for a terminal: it removes escape sequences, keeps the last state of overwritten
// lines, turns tabs into spaces, and replaces every other control character, bidirectional override or broken byte by a
// visible character. Line feeds stay.
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

// plain reports whether a text needs no cleaning, which is the usual case.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 0x20 && c != '\n' || c >= 0x7f {
			return false
		}
	}
	return true
}

func cleanLine(out *strings.Builder, s string) {
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == 0x1b:
			s = s[escapeLen(s, 1):]
			continue
		case r >= 0x80 && r <= 0x9f && n == 2:
			// An eight-bit control: CSI and the like have an argument, as after ESC.
			s = s[escapeLen(s, n):]
			continue
		case r == '\t':
			out.WriteString("    ")
		case r == utf8.RuneError && n == 1, IsControl(r):
			out.WriteRune(utf8.RuneError)
		default:
			out.WriteString(s[:n])
		}
		s = s[n:]
	}
}

// escapeLen returns the length of the escape sequence that s begins with; intro is the length of its first character.
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
		return 1 // a lone ESC before a character that is not part of it
	}
	return i
}
