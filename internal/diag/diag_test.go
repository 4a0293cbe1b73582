package diag_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/internal/diag"
)

func TestPrint(t *testing.T) {
	l := diag.List{
		{File: "b.yaml", Line: 2, Col: 3, Code: "wrong-type", Message: "m2", Source: "  key: [x]"},
		{File: "a.yaml", Code: "empty", Message: "the file is empty", Hint: "write something"},
		{File: "b.yaml", Line: 1, Col: 6, Code: "unknown-key", Message: "m1", Hint: "did you mean x?", Source: "\tab: 漢字"},
		{File: "b.yaml", Line: 2, Col: 3, Code: "wrong-type", Message: "m2"},
	}
	var b strings.Builder
	if err := l.Print(&b, diag.Style{}); err != nil {
		t.Fatal(err)
	}
	want := `a.yaml: error[empty]: the file is empty
  hint: write something
b.yaml:1:6: error[unknown-key]: m1
  |  ab: 漢字
  |      ^
  hint: did you mean x?
b.yaml:2:3: error[wrong-type]: m2
  |   key: [x]
  |   ^
`
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Error(d)
	}
}

func TestPrintCutsLongLines(t *testing.T) {
	p := diag.Problem{File: "f", Line: 1, Col: 501, Code: "c", Message: "m", Source: strings.Repeat("a", 500) + "X" + strings.Repeat("b", 500)}
	var b strings.Builder
	if err := (diag.List{p}).Print(&b, diag.Style{Width: 60}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	if len(lines[1]) > 60 || lines[1][strings.Index(lines[2], "^")] != 'X' {
		t.Errorf("excerpt does not show the column:\n%s", b.String())
	}
}

func TestPrintNeutralisesControlCharacters(t *testing.T) {
	p := diag.Problem{File: "f\x1b[2J", Line: 1, Col: 1, Code: "c", Message: "m\x1b]0;x\a", Hint: "h\u202e", Source: "s\u009b2J"}
	var b strings.Builder
	if err := (diag.List{p}).Print(&b, diag.Style{}); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(b.String(), "\x1b\a\u009b\u202e") {
		t.Errorf("control characters reach the terminal: %q", b.String())
	}
}

func TestColor(t *testing.T) {
	var b strings.Builder
	if err := (diag.List{{File: "f", Line: 1, Col: 1, Code: "c", Message: "m", Source: "x"}}).Print(&b, diag.Style{Color: true}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "\x1b[31merror[c]:\x1b[0m") {
		t.Errorf("no colour: %q", b.String())
	}
}

func TestNearest(t *testing.T) {
	keys := []string{"name", "repo", "branch", "services", "lifecycle", "validate"}
	for in, want := range map[string]string{
		"nmae": "name", "service": "services", "Services": "services", "lifecylce": "lifecycle",
		"repository": "", "x": "", "": "", "NAME": "name", "valdate": "validate", strings.Repeat("a", 5000): "",
	} {
		if got := diag.Nearest(in, keys); got != want {
			t.Errorf("Nearest(%.20q) = %q, want %q", in, got, want)
		}
	}
}
