package rootgit

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestLeftoverMessage: the subject is of the task's words, one line, and does nothing on a forge.
func TestLeftoverMessage(t *testing.T) {
	t.Parallel()
	for task, want := range map[string]string{
		"add a health check.\nIt answers 200.":    "Add a health check",
		"\n## Mend   the login ##\n":              "Mend the login",
		"- Write docs":                            "Write docs",
		"<!-- hidden -->\nMake it\u202e fast":     "Make it fast",
		"fixes #7 and a/b#8, says @ann":           "Fixes 7 and a/b 8, says ann",
		"closes https://example.com/o/r/issues/7": "Closes https example.com/o/r/issues/7",
		"":           "Keep uncommitted work",
		" \n\t\n":    "Keep uncommitted work",
		"übe C# 7":   "Übe C# 7",
		"--\n***\nx": "X",
	} {
		subject, body, ok := strings.Cut(leftoverMessage(task), "\n\n")
		if subject != want || !ok || body == "" {
			t.Errorf("%q: %q, not %q", task, subject, want)
		}
	}
	subject, _, _ := strings.Cut(leftoverMessage(strings.Repeat("wörd ", 100)), "\n")
	if n := utf8.RuneCountInString(subject); n > maxSubject || n < maxSubject/2 {
		t.Errorf("%d characters: %q", n, subject)
	}
}
