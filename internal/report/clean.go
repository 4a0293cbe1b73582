package report

import (
	"strings"
	"unicode"
	"unicode/utf8"
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
		case r == '\r', r == '\v', r == '\f', r == '\u0085', r == '\u2028', r == '\u2029':
			r = '\n'
		case r == '\t':
			b.WriteString("    ")
			marks = 0
			continue
		case r != '\n' && unseen(r):
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

// unseen tells whether a character takes no place, or changes the order of others.
func unseen(r rune) bool {
	if r >= ' ' && r < 0x7f {
		return false // most are
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs) ||
		unicode.In(r, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point) ||
		r >= 0xfdd0 && r <= 0xfdef || r&0xfffe == 0xfffe || r == 0x2800 || r == 0x180e
}

// block is a clean text of several lines with at most n characters. Blank lines are
// never more than one, none at the ends.
func block(s string, n int) (text string, cut bool) {
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
	text = strings.TrimRight(strings.Join(out, "\n"), "\n")
	if head, more := firstRunes(text, n); more {
		return strings.TrimRightFunc(head, unicode.IsSpace) + " …", true
	}
	if cut {
		text += " …"
	}
	return text, cut
}

// line is a clean text of one line with at most n characters.
func line(s string, n int) string {
	if limit := n * bytesPerRune; len(s) > limit {
		s = s[:limit]
	}
	s = strings.Join(strings.Fields(clean(strings.ToValidUTF8(s, "\ufffd"))), " ")
	if head, more := firstRunes(s, n); more {
		return strings.TrimRight(head, " ") + "…"
	}
	return s
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

// shellWord quotes a word for a shell where it needs that.
func shellWord(s string) string {
	if s != "" && s[0] != '-' && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
