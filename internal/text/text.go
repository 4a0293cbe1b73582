// Package text shortens texts, makes untrusted texts safe to show, and splits streams into lines.
package text

import (
	"strings"
	"unicode/utf8"
)

const ellipsis = "…"

// Cut returns s in at most n bytes, ending in " […]" if something is left out.
func Cut(s string, n int) string { return cut(s, n, " […]") }

// Short returns s in at most n bytes, ending in an ellipsis if something is left out.
func Short(s string, n int) string { return cut(s, n, ellipsis) }

// Prefix returns the longest beginning of s in whole characters of at most n bytes.
func Prefix(s string, n int) string {
	if len(s) <= n {
		return s
	}
	n = max(n, 0)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// cut shortens the mark, too, if necessary.
func cut(s string, n int, mark string) string {
	if len(s) <= n {
		return s
	}
	if n < len(mark) {
		return Prefix(mark, n)
	}
	return Prefix(s, n-len(mark)) + mark
}

// Runes returns s in at most n characters, ending in an ellipsis if something is left out.
func Runes(s string, n int) string {
	if n = max(n, 0); utf8.RuneCountInString(s) <= n {
		return s
	}
	if n == 0 {
		return ""
	}
	return strings.TrimRight(string([]rune(s)[:n-1]), " ") + ellipsis
}
