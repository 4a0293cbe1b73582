package text

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestLines(t *testing.T) {
	const text = "one\r\n\ntwo\nthree"
	for n := 1; n < len(text); n++ {
		var got []string
		w := NewLines(MaxLine, func(l []byte, _ int64) { got = append(got, string(l)) })
		for i := 0; i < len(text); i += n {
			_, _ = fmt.Fprint(w, text[i:min(i+n, len(text))])
		}
		w.Close()
		if !slices.Equal(got, []string{"one", "", "two", "three"}) {
			t.Errorf("pieces of %d: %q", n, got)
		}
	}
}

func TestLongLines(t *testing.T) {
	type line struct{ kept, lost int64 }
	var got []line
	w := NewLines(MaxLine, func(l []byte, lost int64) { got = append(got, line{int64(len(l)), lost}) })
	for range 5 {
		_, _ = fmt.Fprint(w, strings.Repeat("x", MaxLine/2))
	}
	_, _ = fmt.Fprint(w, "\nshort\n"+strings.Repeat("y", MaxLine+7)+"\n")
	want := []line{{MaxLine, MaxLine / 2 * 3}, {5, 0}, {MaxLine, 7}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if cap(w.buf) > keptLine {
		t.Errorf("a buffer of %d bytes is kept", cap(w.buf))
	}
}

func TestWholeLines(t *testing.T) {
	var got []string
	w := WholeLines(5, func(l []byte) { got = append(got, string(l)) })
	for _, piece := range []string{"12345\n123456\n", "abc", "def\nab", "cd\nhalf"} {
		_, _ = fmt.Fprint(w, piece)
	}
	w.Restart()
	_, _ = fmt.Fprint(w, "new\nlast")
	if !slices.Equal(got, []string{"12345", "abcd", "new"}) {
		t.Errorf("%q", got)
	}
}
