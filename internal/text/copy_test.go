package text

import (
	"bytes"
	"strings"
	"testing"
	"testing/iotest"
	"unicode"
)

func TestCopy(t *testing.T) {
	for in, want := range map[string]string{
		"plain\n\ttext\n":                        "plain\n\ttext\n",
		"\x1b[31mred\x1b[0m\n":                   "red\n",
		"\x1b]0;title\x07a\x1b]52;c;eA==\x1b\\b": "ab",
		"\u009b2Ja\x9b2J":                        "a\ufffd2J",
		"one\rtwo\r\nthree":                      "one\ntwo\nthree",
		"a\x00b\x08c\x7fd\u202ee":                "a\ufffdb\ufffdc\ufffdd\ufffde",
		"\x1b":                                   "",
		"grün €\n":                               "grün €\n",
	} {
		var out bytes.Buffer
		if err := Copy(&out, strings.NewReader(in)); err != nil || out.String() != want {
			t.Errorf("%q is %q, %v, want %q", in, out.String(), err, want)
		}
	}
	// Characters and sequences at whatever place of a line that has no end.
	long := strings.Repeat("€", textPart) + strings.Repeat("ab\x1b[31m", textPart)
	var out bytes.Buffer
	if err := Copy(&out, iotest.OneByteReader(strings.NewReader(long))); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "€"); n != textPart || strings.ContainsFunc(out.String(),
		func(r rune) bool { return r == '\ufffd' || unicode.IsControl(r) }) {
		t.Errorf("%d of %d characters", n, textPart)
	}
	if err := Copy(&out, iotest.ErrReader(iotest.ErrTimeout)); err == nil {
		t.Error("an error of the source is lost")
	}
}
