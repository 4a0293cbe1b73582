package forge

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Strip takes out of Markdown what a reader on the forge does not see and an agent
// would read: HTML comments, processing instructions, declarations and CDATA, Markdown's
// own comments (`[//]: # (text)`), invisible and bidirectional characters, the
// tags block, variation selectors that select nothing, control characters. Alt texts
// of images, folded details and titles stay: a reader can get at them. removed is the number
// of characters taken out.
//
// HTML comments go even where they are shown, in code: what is code is decided by
// rules that can be played against any simpler reader of them. Processing instructions and the like
// stay in fenced code, where they are usually a program.
func Strip(text string) (clean string, removed int) {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	before := utf8.RuneCountInString(text)
	text = visible(text)
	text = withoutComments(text)
	text = outsideFences(text, withoutMarkup)
	return text, max(before-utf8.RuneCountInString(text), 0)
}

// visible drops characters that are not seen. A lone variation selector after a
// character that it can belong to stays, as do the joiners within emoji: no; joiners
// can carry text and go, which parts a few emoji and harms nobody.
func visible(text string) string {
	var b strings.Builder
	b.Grow(len(text))
	var last rune
	for _, r := range text {
		switch {
		case r == utf8.RuneError:
			b.WriteRune(unicode.ReplacementChar)
		case r == '\u2028' || r == '\u2029' || r == '\r' || r == '\v' || r == '\f' || r == '\u0085':
			b.WriteByte('\n')
			r = '\n'
		case r == '\ufe0f' || r == '\ufe0e':
			if !pictograph(last) {
				continue
			}
			b.WriteRune(r)
		case invisible(r):
			continue
		default:
			b.WriteRune(r)
		}
		last = r
	}
	return b.String()
}

// pictograph tells whether a character has a text and an emoji form.
func pictograph(r rune) bool {
	return r >= 0x2000 && r <= 0x33ff || r >= 0x1f000 && r <= 0x1faff || r == '#' || r == '*' || r >= '0' && r <= '9' || r == 0xa9 || r == 0xae
}

// invisible tells whether a character takes no place on the screen, changes the
// order of others, or is a control character.
func invisible(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case unicode.Is(unicode.Cc, r), unicode.Is(unicode.Cf, r), unicode.Is(unicode.Co, r):
		return true // Cf: zero width, bidi, soft hyphen, byte order mark, the tags block
	case unicode.Is(unicode.Variation_Selector, r), unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r):
		return true // fillers, grapheme joiner, unassigned ignorables
	case r == 0x2800, r == 0x180e: // a blank of Braille, a separator of Mongolian
		return true
	}
	return false
}

// hiddenStart is a comment that nothing ends: a browser hides the rest where it begins a
// block, and shows it as text elsewhere.
var hiddenStart = regexp.MustCompile(`^[ \t>*+\-0-9.)]*$`)

// withoutComments drops HTML comments. Each leaves a space, so that what was around
// it cannot join to a new one.
func withoutComments(text string) string {
	var b strings.Builder
	for {
		i := strings.Index(text, "<!--")
		if i < 0 {
			b.WriteString(text)
			return b.String()
		}
		b.WriteString(text[:i])
		rest := text[i+len("<!--"):]
		end, skip := strings.Index(rest, "-->"), len("-->")
		// `<!-->` and `<!--->` are whole comments, and `--!>` ends one, in HTML.
		if e := strings.Index(rest, "--!>"); e >= 0 && (end < 0 || e < end) {
			end, skip = e, len("--!>")
		}
		switch {
		case strings.HasPrefix(rest, ">"):
			end, skip = 0, 1
		case strings.HasPrefix(rest, "->"):
			end, skip = 0, 2
		}
		if end < 0 {
			line := b.String()
			if hiddenStart.MatchString(line[strings.LastIndexByte(line, '\n')+1:]) {
				return b.String()
			}
			b.WriteString("< !--") // shown, and no longer the beginning of anything
			text = rest
			continue
		}
		b.WriteByte(' ')
		text = rest[end+skip:]
	}
}

var (
	// markup is what HTML parsers and GitHub's sanitizer drop with all that is in it.
	markup = regexp.MustCompile(`(?s)<\?.*?\?>|<!\[CDATA\[.*?\]\]>|<![A-Za-z][^>]*>`)
	// unendedMarkup begins a block that nothing ends.
	unendedMarkup = regexp.MustCompile(`(?s)(^|\n)([ \t>]*)(<\?|<!\[CDATA\[|<![A-Za-z]).*$`)
	// note is a definition that nothing can refer to usefully, used as a comment.
	note = regexp.MustCompile(`(?m)^[ \t>]*\[[^\]\n]{1,200}\]:[ \t]*(?:#|<>|<#>|/)[ \t]*\n?[ \t]*(?:\([^)]*\)|"[^"]*"|'[^']*')[ \t]*$`)
)

func withoutMarkup(text string) string {
	for { // what is around a piece could join to a new one; each round shortens or ends
		next := note.ReplaceAllString(markup.ReplaceAllString(text, " "), "")
		if next == text {
			break
		}
		text = next
	}
	return unendedMarkup.ReplaceAllString(text, "$1$2")
}

// outsideFences applies f to the text between fenced blocks of code.
func outsideFences(text string, f func(string) string) string {
	var out, part strings.Builder
	fence := ""
	for line := range strings.SplitAfterSeq(text, "\n") {
		bare := strings.TrimLeft(line, " ")
		indent := len(line) - len(bare)
		mark := ""
		if indent <= 3 {
			mark = bare[:len(bare)-len(strings.TrimLeft(bare, "`"))]
			if mark == "" {
				mark = bare[:len(bare)-len(strings.TrimLeft(bare, "~"))]
			}
		}
		switch {
		case fence == "" && len(mark) >= 3 && (mark[0] == '~' || !strings.Contains(bare[len(mark):], "`")):
			out.WriteString(f(part.String()))
			part.Reset()
			fence = mark
			out.WriteString(line)
		case fence != "":
			out.WriteString(line)
			if len(mark) >= len(fence) && mark[0] == fence[0] && strings.TrimSpace(bare[len(mark):]) == "" {
				fence = ""
			}
		default:
			part.WriteString(line)
		}
	}
	out.WriteString(f(part.String()))
	return out.String()
}

// cutRunes shortens text to n bytes at most, at the boundary of a character.
func cutRunes(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "")
}
