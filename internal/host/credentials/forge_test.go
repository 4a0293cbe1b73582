package credentials

import (
	"context"
	"errors"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// The token of a forge is known with what gave it, and that of GitHub goes to no other host, whatever a project names.
func TestForgeToken(t *testing.T) {
	t.Parallel()
	vars := map[string]string{"GH_TOKEN": "gh"}
	f := &Finder{Getenv: func(k string) string { return vars[k] }, Run: func(context.Context, []string, string) (string, error) { return "", errors.New("none") }}
	on := func(api string) *workorder.PullRequest {
		return &workorder.PullRequest{APIURL: api, Repository: "o/app"}
	}
	ask := func(repo string, pr *workorder.PullRequest, want ForgeToken) {
		t.Helper()
		if got, err := f.Forge(t.Context(), repo, pr); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", repo, got, err, want)
		}
	}
	gh := ForgeToken{Token: "gh", From: "GH_TOKEN"}
	ask("https://github.com/o/app", nil, gh)
	ask("git@github.com:o/app.git", nil, gh)
	ask("/src/app", on("https://api.github.com"), gh)
	ask("/src/app", on("https://elsewhere.example/api/v3"), ForgeToken{})
	ask("/src/app", &workorder.PullRequest{}, ForgeToken{})
	ask("/src/app", nil, ForgeToken{})
	vars[gitToken] = "mine"
	mine := ForgeToken{Token: "mine", From: gitToken}
	ask("https://github.com/o/app", nil, mine)
	ask("/src/app", on("https://elsewhere.example/api/v3"), mine)
	ask("/src/app", nil, ForgeToken{})
}
