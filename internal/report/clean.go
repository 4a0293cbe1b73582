package report

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

const (
	// maxMarks bounds the combining marks on a letter: more than any language
	// stacks, and less than what covers the lines above and below.
	maxMarks = 3
	// firstMark is the first combining mark of Unicode.
	firstMark = 0x300
	// bytesPerRune is what a character may take, with marks that are dropped, before the
	// text is cut unread: so that a text of gigabytes costs what it shows.
	bytesPerRune = 16
)

// clean drops what is not seen or changes how other text is seen: control and
// bidirectional characters, invisible ones, private ones, towers of marks. Broken
// bytes become U+FFFD. Line feeds stay; tabs become blanks.
func clean(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	marks := 0
	for _, r := range strings.ReplaceAll(s, "\r\n", "\n") {
		switch {
		case text.EndsLine(r):
			r = '\n'
		case r == '\t':
			b.WriteString("    ")
			marks = 0
			continue
		case r != '\n' && text.IsInvisible(r):
			continue
		}
		if r >= firstMark && unicode.In(r, unicode.Mn, unicode.Me) {
			if marks++; marks > maxMarks {
				continue
			}
		} else {
			marks = 0
		}
		b.WriteRune(r)
	}
	return b.String()
}

// block is a clean text of several lines with at most n characters. Blank lines are
// never more than one, none at the ends.
func block(s string, n int) (plain string, cut bool) {
	if limit := n * bytesPerRune; len(s) > limit {
		s, cut = s[:limit], true
	}
	var out []string
	for l := range strings.SplitSeq(clean(strings.ToValidUTF8(s, "\ufffd")), "\n") {
		l = strings.TrimRightFunc(l, unicode.IsSpace)
		if l == "" && (len(out) == 0 || out[len(out)-1] == "") {
			continue
		}
		out = append(out, l)
	}
	plain = strings.TrimRight(strings.Join(out, "\n"), "\n")
	if head, more := firstRunes(plain, n); more {
		return strings.TrimRightFunc(head, unicode.IsSpace) + " …", true
	}
	if cut {
		plain += " …"
	}
	return plain, cut
}

// line is a clean text of one line with at most n characters and an ellipsis.
func line(s string, n int) string {
	if limit := n * bytesPerRune; len(s) > limit {
		s = s[:limit]
	}
	return text.Runes(text.Words(clean(strings.ToValidUTF8(s, "\ufffd"))), n+1)
}

// tail is the end of a clean text, at most n characters and whole lines where there are several.
func tail(s string, n int) string {
	if limit := n * bytesPerRune; len(s) > limit {
		s = s[len(s)-limit:]
	}
	s, _ = block(s, n*bytesPerRune)
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	s = string(r[len(r)-n:])
	if _, after, ok := strings.Cut(s, "\n"); ok && len(after) > len(s)/2 {
		s = after
	}
	return "… " + s
}

// firstRunes is the beginning of s with n characters, and whether there is more.
func firstRunes(s string, n int) (string, bool) {
	if len(s) <= n {
		return s, false
	}
	at := 0
	for range n {
		if at >= len(s) {
			return s, false
		}
		_, size := utf8.DecodeRuneInString(s[at:])
		at += size
	}
	return s[:at], at < len(s)
}
