package runtime_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
)

func TestLines(t *testing.T) {
	t.Parallel()
	var got []string
	l := &runtime.Lines{Limit: 5, Fn: func(b []byte) { got = append(got, string(b)) }}
	for _, s := range []string{"one\ntw", "o\n", strings.Repeat("x", 6), `{"a"}`, "\n", "123456\nthree\n", "\nrest"} {
		if n, err := l.Write([]byte(s)); n != len(s) || err != nil {
			t.Fatal(n, err)
		}
	}
	if want := []string{"one", "two", "three", ""}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
