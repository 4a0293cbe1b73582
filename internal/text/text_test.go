package text

import (
	"testing"
	"unicode/utf8"
)

func TestShortened(t *testing.T) {
	for _, c := range []struct {
		by   func(string, int) string
		s    string
		n    int
		want string
	}{
		{Cut, "", 0, ""},
		{Cut, "abc", 3, "abc"},
		{Cut, "abcdefghij", 9, "abc […]"},
		{Cut, "abcdef", 2, " ["},
		{Short, "abcdef", 5, "ab…"},
		{Short, "äöü", 5, "ä…"},
		{Short, "abcdef", 2, ""},
		{Short, "abc", -1, ""},
		{Short, "\x80\x80\x80\x80\x80", 4, "…"},
		{Prefix, "äöü", 3, "ä"},
		{Prefix, "äöü", 1, ""},
		{Prefix, "abc", 9, "abc"},
		{Prefix, "abc", -1, ""},
		{Runes, "äöü", 3, "äöü"},
		{Runes, "äöüß", 3, "äö…"},
		{Runes, "ab", 1, "…"},
		{Runes, "ab", 0, ""},
		{Runes, "ab", -1, ""},
	} {
		if got := c.by(c.s, c.n); got != c.want {
			t.Errorf("%q in %d: %q, want %q", c.s, c.n, got, c.want)
		}
	}
}

// FuzzShortened wants whole characters, and no more than there is room for.
func FuzzShortened(f *testing.F) {
	f.Add("äöü", 4)
	f.Fuzz(func(t *testing.T, s string, n int) {
		for _, got := range []string{Cut(s, n), Short(s, n), Prefix(s, n)} {
			if len(got) > max(n, 0) || utf8.ValidString(s) && !utf8.ValidString(got) {
				t.Errorf("%q in %d bytes: %q", s, n, got)
			}
		}
	})
}
