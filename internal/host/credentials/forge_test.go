package credentials

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
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
	vars[GitToken] = "mine"
	mine := ForgeToken{Token: "mine", From: GitToken}
	ask("https://github.com/o/app", nil, mine)
	ask("/src/app", on("https://elsewhere.example/api/v3"), mine)
	ask("/src/app", nil, ForgeToken{})
}

// Where a project file has its API on another host than the repository, that host gets a token which the user has for it,
// and none of the repository's; and nothing goes where others can read it.
func TestTokenStaysOnItsHost(t *testing.T) {
	t.Parallel()
	const refused = "refused"
	onGitHub, ours := map[string]string{"GH_TOKEN": "gh"}, map[string]string{GitToken: "mine", "GH_TOKEN": "gh"}
	for _, c := range []struct {
		repo, api string
		vars      map[string]string
		gh        string // the host that gh has a token for
		helper    string // the host that git's credential helper has one for
		want      string
	}{
		{"https://github.com/o/r", "https://evil.example/api/v3", onGitHub, "github.com", "github.com", refused},
		{"https://github.com/o/r", "https://evil.example/api/v3", ours, "github.com", "github.com", refused},
		{"git@github.com:o/r.git", "https://evil.example/api/v3", ours, "", "", refused},
		{"ssh://git@github.com/o/r.git", "https://api.github.com.evil.example", ours, "", "", refused},
		{"https://github.com/o/r", "https://api.evil.example", ours, "", "", refused},
		{"https://git.example/r.git", "http://127.0.0.1:1/api/v3", ours, "", "", refused},
		{"https://evil.example/o/r", "https://api.evil.example", ours, "", "", refused},
		{"https://github.com/o/r", "https://corp.example/api/v3", ours, "corp.example", "", "by gh"},
		{"https://github.com/o/r", "https://corp.example:8443/api/v3", ours, "", "corp.example:8443", "by helper"},
		{"https://github.com/o/r", "https://corp.example/api/v3", map[string]string{GitToken: "mine", "GH_TOKEN": "corp", "GH_HOST": "corp.example"}, "", "", "corp"},
		{"https://git.example/r.git", "https://api.github.com", ours, "", "", "gh"},
		{"https://github.com/o/r", "https://api.github.com/", ours, "", "", "mine"},
		{"git@github.com:o/r.git", "https://API.github.com", onGitHub, "", "", "gh"},
		{"https://acme.ghe.com/o/r", "https://api.acme.ghe.com", ours, "", "", "mine"},
		{"ssh://git@git.corp:2222/o/r", "https://git.corp:8443/api/v3", ours, "", "", "mine"},
		{"http://172.17.0.1:3000/app.git", "http://172.17.0.1:4000/api/v3", ours, "", "", "mine"},
		{"http://git.corp/o/r", "http://git.corp/api/v3", ours, "", "", "mine"},
		{"https://github.com/o/r", "http://api.github.com", ours, "", "", refused},
		{"https://github.com/o/r", "http://api.github.com", onGitHub, "", "", refused},
		{"git@git.corp:o/r.git", "http://git.corp/api/v3", ours, "", "", refused},
		{"https://github.com/o/r", "http://corp.example/api/v3", ours, "", "corp.example", refused},
		{"/src/app", "http://api.github.com", onGitHub, "github.com", "", ""},
		{"/src/app", "https://evil.example/api/v3", onGitHub, "github.com", "github.com", ""},
		{"/src/app", "https://api.evil.example/", onGitHub, "evil.example", "evil.example", ""},
		{"http://github.com/o/r", "", onGitHub, "github.com", "", ""},
	} {
		f := &Finder{Getenv: func(k string) string { return c.vars[k] }, Run: func(_ context.Context, argv []string, stdin string) (string, error) {
			switch {
			case c.gh != "" && strings.HasSuffix(strings.Join(argv, " "), "gh auth token --hostname "+c.gh):
				return "by gh", nil
			case c.helper != "" && argv[0] == "git" && strings.Contains(stdin, "\nhost="+c.helper+"\n"):
				return "username=me\npassword=by helper\n", nil
			}
			return "", errors.New("none")
		}}
		got, err := f.Forge(t.Context(), c.repo, &workorder.PullRequest{APIURL: c.api, Repository: "o/r"})
		if c.want == refused {
			if err == nil || got.Token != "" || !strings.Contains(err.Error(), "pr.api_url") || exiterr.Code(err) != workorder.ExitGit || exiterr.Hint(err) == "" {
				t.Errorf("%s at %s: %+v, %v", c.repo, c.api, got, err)
			}
		} else if err != nil || got.Token != c.want {
			t.Errorf("%s at %s: %+v, %v, want %q", c.repo, c.api, got, err, c.want)
		}
	}
}

// An address cannot put a line of its own into what git's credential helper is asked.
func TestHelperIsAskedForOneHost(t *testing.T) {
	t.Parallel()
	f := &Finder{Getenv: func(string) string { return "" }, Run: func(_ context.Context, argv []string, stdin string) (string, error) {
		if argv[0] == "git" {
			t.Errorf("git was asked %q", stdin)
		}
		return "", errors.New("none")
	}}
	for _, remote := range []string{"https://evil.example/o%0ahost=github.com%0apath=/r", "https://a%0ahost=github.com@evil.example/o", "https://evil.example/o%00"} {
		if cred, err := f.Git(t.Context(), remote); cred != nil || err == nil || !strings.Contains(exiterr.Hint(err), "%0a") {
			t.Errorf("%s: %+v, %v", remote, cred, err)
		}
	}
}
