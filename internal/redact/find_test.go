package redact

import (
	"encoding/base64"
	"slices"
	"testing"
)

func TestFinder(t *testing.T) {
	t.Parallel()
	set := Named(map[string]string{"A": "canary-1234567890", "B": "another-value-42", "SHORT": "x"})
	for text, want := range map[string][]string{
		"nothing, x":                            nil,
		"//r/:_authToken=canary-1234567890\n":   {"A"},
		"canary-another-value-42canary-1234567": {"B"},
		base64.StdEncoding.EncodeToString([]byte("u:canary-1234567890")) + " another-value-42": {"A", "B"},
	} {
		f := set.Finder()
		for i := range len(text) { // split anywhere
			_, _ = f.Write([]byte(text[i : i+1]))
		}
		if got := f.Names(); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if n, err := (*Set)(nil).Finder().Write([]byte("a")); n != 1 || err != nil {
		t.Error(n, err)
	}
}
