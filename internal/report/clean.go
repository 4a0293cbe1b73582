package report

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

const (
	// maxMarks bounds the combining marks on a letter, which could cover the lines above and below.
	maxMarks = 3
	// firstMark is the first combining mark of Unicode.
	firstMark = 0x300
	// bytesPerRune bounds what is read of a text per shown character, with dropped marks.
	bytesPerRune = 16
)

// clean drops invisible characters and those that change other text: control and bidirectional characters, private
// ones, stacks of marks. Broken bytes become U+FFFD. Line feeds stay; tabs become spaces.
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

// block returns a clean text of at most n characters, without repeated, leading and trailing blank lines.
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

// line returns a clean text of one line with at most n characters and an ellipsis.
func line(s string, n int) string {
	if limit := n * bytesPerRune; len(s) > limit {
		s = s[:limit]
	}
	return text.Runes(text.Words(clean(strings.ToValidUTF8(s, "\ufffd"))), n+1)
}

// tail returns the end of a clean text, at most n characters, in whole lines if there are several.
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

// firstRunes returns the first n characters of s, and whether there are more.
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
