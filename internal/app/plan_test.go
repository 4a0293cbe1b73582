package app

import (
	"strings"
	"testing"
)

func TestPlannedText(t *testing.T) {
	t.Parallel()
	got := plannedText("Do it\n", "\n1. First\n", "and this")
	for i, want := range []string{"Do it\n\n# The plan\n", "\n\n1. First\n", "\n# What the user adds\n", "\nand this"} {
		at := strings.Index(got, want)
		if at < 0 {
			t.Fatalf("%d: it lacks %q:\n%s", i, want, got)
		}
		got = got[at+len(want)-1:]
	}
	if strings.Count(plannedText("t", "p", ""), "\n# ") != 1 {
		t.Error("nothing is added")
	}
}
