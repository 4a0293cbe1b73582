package text

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestEnds(t *testing.T) {
	t.Parallel()
	all := strings.Repeat("é€😀x", 100) // 1,000 bytes
	for most := range 1100 {
		for _, step := range []int{1, 7, len(all)} {
			c := NewHeadTail(most)
			for i := 0; i < len(all); i += step {
				if n, err := c.Write([]byte(all[i:min(i+step, len(all))])); err != nil || n == 0 {
					t.Fatal(n, err)
				}
			}
			got := c.Bytes()
			if c.Cut() != (most < len(all)) {
				t.Fatalf("%d: cut %t", most, c.Cut())
			}
			if !utf8.Valid(got) {
				t.Fatalf("%d in steps of %d: a character was cut: %q", most, step, got)
			}
			if !c.Cut() {
				if string(got) != all {
					t.Fatalf("%d: %q", most, got)
				}
				continue
			}
			var left int
			head, rest, ok := bytes.Cut(got, []byte("\n[… "))
			if _, err := fmt.Sscanf(string(rest), "%d bytes", &left); err != nil || !ok {
				t.Fatalf("%d: %q, %v", most, got, err)
			}
			_, tail, _ := bytes.Cut(rest, []byte("…]\n"))
			if len(head)+left+len(tail) != len(all) || !strings.HasPrefix(all, string(head)) || !strings.HasSuffix(all, string(tail)) ||
				len(head)+len(tail) > most {
				t.Fatalf("%d in steps of %d: %d, %d left out, %d", most, step, len(head), left, len(tail))
			}
		}
	}
	c := NewHeadTail(-1)
	_, _ = c.Write([]byte(all))
	if c.Cut() || string(c.Bytes()) != all {
		t.Error("cut without a limit")
	}
}
