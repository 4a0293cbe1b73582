package text_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

func TestExpand(t *testing.T) {
	t.Parallel()
	env := []string{"PATH=/no", "PATH=/bin:$X", "A_1=", "X=x"}
	for value, want := range map[string]string{
		"": "", "a": "a", "/x:$PATH": "/x:/bin:$X", "h${PATH}h": "h/bin:$Xh", "$A_1.$X": ".x", "a$$b": "a$b", "$$PATH": "$PATH",
		"$$$X$$": "$x$", "${X}${X}": "xx", "ü$X": "üx",
	} {
		got, err := text.ExpandReferences(map[string]string{"N": value}, env)
		if err != nil || !slices.Equal(got, []string{"N=" + want}) {
			t.Errorf("%q: %q, %v", value, got, err)
		}
	}
	for _, value := range []string{"$", "a$", "$ a", "${", "${X", "${}", "${X:-y}", "$1", "${1}", "$(ls)", "$X$", "$N", "$NOPE", "$Ü"} {
		if got, err := text.ExpandReferences(map[string]string{"N": value}, env); err == nil {
			t.Errorf("%q: %q", value, got)
		}
	}
	if got, err := text.ExpandReferences(map[string]string{"N": text.EscapeReferences("a$PATH$$")}, nil); err != nil || got[0] != "N=a$PATH$$" {
		t.Errorf("%q, %v", got, err)
	}
	plain, refer := text.SplitReferences(map[string]string{"A": "a", "B": "b$$", "C": "$PATH", "D": "$"})
	if !maps.Equal(plain, map[string]string{"A": "a", "B": "b$"}) || !maps.Equal(refer, map[string]string{"C": "$PATH", "D": "$"}) {
		t.Errorf("%q, %q", plain, refer)
	}
	if names, err := text.References("$A:${B}$$C"); err != nil || !slices.Equal(names, []string{"A", "B"}) {
		t.Errorf("%q, %v", names, err)
	}
}
