package text

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestHarmless(t *testing.T) {
	for _, c := range []struct {
		by      func(string) string
		s, want string
	}{
		{Visible, "a\tb\nc", "a\tb\nc"},
		{Visible, "\x1b[31mred\a", "[31mred"},
		{Visible, "a\r\nb\rc\u2028d", "a\nb\nc\nd"},
		{Visible, "a\u202eb\u200bc\ufeffd\u00ade\U000e0041f\ue000g\u2800h\ufe0fi", "abcdefghi"},
		{Visible, "bad \xff byte", "bad \ufffd byte"},
		{Printable, "a\nb\x1b[2Jc\u2028d", "a b [2Jc d"},
		{Printable, "äß\xffй", "äß\ufffdй"},
		{Words, "  a \n\t b ", "a b"},
		{func(s string) string { return Name(s, 4) }, "ab\ncdef", "ab…"},
		{func(s string) string { return Name(s, 4) }, strings.Repeat("ä", 100), "äää…"},
		{func(s string) string { return Name(s, 4) }, "🙂🙂🙂🙂🙂", "🙂🙂🙂…"},
	} {
		if got := c.by(c.s); got != c.want {
			t.Errorf("%q: %q, want %q", c.s, got, c.want)
		}
	}
	for _, r := range "\x00\x1b\n\u0085\u061c\u200e\u202e\u2066\u2028\u2029" {
		if !IsControl(r) {
			t.Errorf("a terminal acts on %U", r)
		}
	}
	for _, r := range "aä\u00ad\u200d字🙂" {
		if IsControl(r) {
			t.Errorf("a terminal shows %U", r)
		}
	}
}

// FuzzHarmless wants nothing that a terminal obeys.
func FuzzHarmless(f *testing.F) {
	f.Add("a\x1b\u202e\xff\n", 3)
	f.Fuzz(func(t *testing.T, s string, n int) {
		n = max(0, min(n, 1000))
		if got := Name(s, n); strings.ContainsFunc(got, IsControl) || utf8.RuneCountInString(got) > n || !utf8.ValidString(got) {
			t.Errorf("%q: %q", s, got)
		}
		if got := Visible(s); strings.ContainsFunc(strings.NewReplacer("\n", "", "\t", "").Replace(got), IsControl) {
			t.Errorf("%q: %q", s, got)
		}
	})
}
