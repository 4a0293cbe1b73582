package pullrequest

import (
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func TestTitle(t *testing.T) {
	t.Parallel()
	r := &workorder.Result{Commits: []workorder.Commit{{Subject: "The newest commit"}}}
	for task, want := range map[string]string{
		"Make it\nand more":                      "Make it",
		"\n\n## Make   it ##\n":                  "Make it",
		"<!-- hidden -->\nMake it\u202e\u200b x": "Make it x",
		"":                                       "The newest commit",
		"Make List<String> <b x>":                "Make List<String> <b x>",
		strings.Repeat("a ", 200):                strings.Repeat("a ", 49) + "a…",
	} {
		if got := Title(&workorder.Order{Task: task}, r); got != want {
			t.Errorf("%q: %q, not %q", task, got, want)
		}
	}
	r.Commits[0].Subject = "closes #7 @ann\u200b"
	if got := Title(&workorder.Order{}, r); got != "closes #7 @ann" {
		t.Errorf("of a commit: %q", got)
	}
}
