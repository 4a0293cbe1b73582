package sandboxcmd

import (
	"bytes"
	"strings"
	"testing"
)

// What is not kept any more is told before what follows, which begins at a line, and else every byte is passed on.
func TestGap(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		lost  int64
		parts []string
		want  string
		notes string // numbers that are told
	}{
		"nothing":  {0, []string{"a\xff", "\nb"}, "a\xff\nb", ""},
		"a line":   {10, []string{"ine\nnext\n", "x"}, "next\nx", "14 5 19"},
		"no line":  {10, []string{"\xff\xfe", "x\n"}, "\xff\xfex\n", "10 5 15"},
		"no more":  {10, nil, "", "10 5 15"},
		"line end": {10, []string{"ine\n", "next"}, "next", "14 5 19"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, notes bytes.Buffer
			g := &gap{at: 5, lost: row.lost, notes: &notes}
			for _, p := range row.parts {
				if n, err := (gapWriter{g, &out}).Write([]byte(p)); n != len(p) || err != nil {
					t.Fatal(n, err)
				}
			}
			g.tell(0)
			numbers := strings.Join(strings.FieldsFunc(notes.String(), func(r rune) bool { return r < '0' || r > '9' }), " ")
			if out.String() != row.want || numbers != row.notes {
				t.Errorf("%q, %q", out.String(), notes.String())
			}
		})
	}
}
