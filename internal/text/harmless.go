package text

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// IsControl reports whether a terminal obeys a character: a control character, a mark of direction, a separator of
// lines or paragraphs.
func IsControl(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
}

// IsInvisible reports whether a character is invisible or changes the order of others.
func IsInvisible(r rune) bool {
	if r >= ' ' && r < 0x7f {
		return false // most are
	}
	// Cf: zero width, bidi, soft hyphen, byte order mark, the tags block
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs) ||
		// fillers, grapheme joiner, unassigned ignorables
		unicode.In(r, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point) ||
		r >= 0xfdd0 && r <= 0xfdef || r&0xfffe == 0xfffe || // no characters at all
		r == 0x2800 || r == 0x180e // a blank of Braille, a separator of Mongolian
}

// EndsLine reports whether a character other than the line feed ends a line for some reader.
func EndsLine(r rune) bool {
	return r == '\r' || r == '\v' || r == '\f' || r == '\u0085' || r == '\u2028' || r == '\u2029'
}

// Visible returns s without invisible characters, with line feeds as its only line ends; tabs stay. Broken bytes become U+FFFD.
func Visible(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case EndsLine(r):
			return '\n'
		case r != '\n' && r != '\t' && IsInvisible(r):
			return -1
		}
		return r
	}, strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\r\n", "\n"))
}

// Printable returns s with a space for each character that is not printable, line ends included. Broken bytes become U+FFFD.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) && r != unicode.ReplacementChar {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

// Name is Printable for a name, a path or a subject of at most n characters.
func Name(s string, n int) string { return Runes(Printable(s[:min(len(s), utf8.UTFMax*(n+1))]), n) }

// Words returns the words of s with single spaces between them.
func Words(s string) string { return strings.Join(strings.Fields(s), " ") }
