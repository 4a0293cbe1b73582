package github_test

import (
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/test/forgetest"
)

// TestTitle: a title pings nobody and closes nothing, nor does the commit that a squash makes of it, and one that stays
// the same is not written again.
func TestTitle(t *testing.T) {
	t.Parallel()
	f, c, _ := scripted(t, forgetest.Options{})
	for title, want := range map[string]string{
		"Tell @acme/all, fixes #1":                              "Tell @\u200bacme/all, fixes #\u200b1",
		"x fixes o/app#12, gh-3 and a@b.c\u200b":                "x fixes o/app#\u200b12, gh-\u200b3 and a@\u200bb.c",
		"fixes https://github.com/o/app/issues/1 @@x ##1 C# 12": "fixes https:\u200b//github.com/o/app/issues/1 @@\u200bx ##\u200b1 C# 12",
	} {
		s := spec()
		s.Title = title
		for range 2 {
			if _, err := c.OpenPR(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		if i, _ := f.Issue(1); i.Title != want {
			t.Errorf("%q: %q, not %q", title, i.Title, want)
		}
	}
	if n := count(f, "pulls/update"); n != 2 {
		t.Errorf("%d updates", n)
	}
}
