package cmdutil

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func TestDurations(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"5": 5 * time.Second, "0.5": time.Second / 2, "0": 0, "1m30s": 90 * time.Second, "-1s": -time.Second} {
		var d time.Duration
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		DurationVar(f, &d, "t", time.Hour, "")
		if err := f.Parse([]string{"--t", text}); err != nil || d != want {
			t.Errorf("%s: %s, %v", text, d, err)
		}
	}
	for _, text := range []string{"", "x", "1h5", ".", "inf"} {
		if err := new(seconds).Set(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

func TestSince(t *testing.T) {
	t.Parallel()
	if a, b := Since(time.Time{}), Since(time.Now().Add(-time.Hour)); a != "-" || b == "-" {
		t.Errorf("%q, %q", a, b)
	}
}
