package github_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/forge/github"
)

func TestParse(t *testing.T) {
	t.Parallel()
	const dot, dotGraph = "https://api.github.com/", "https://api.github.com/graphql"
	for remote, want := range map[string]github.Repo{
		"https://github.com/o/r":                {Repo: forge.Repo{Host: "github.com", Owner: "o", Name: "r"}, API: dot, GraphQL: dotGraph},
		"https://user:pass@GitHub.com/o/r.git/": {Repo: forge.Repo{Host: "github.com", Owner: "o", Name: "r"}, API: dot, GraphQL: dotGraph},
		"http://www.github.com/o/r.js.git":      {Repo: forge.Repo{Host: "github.com", Owner: "o", Name: "r.js"}, API: dot, GraphQL: dotGraph},
		"git@github.com:o/r.git":                {Repo: forge.Repo{Host: "github.com", Owner: "o", Name: "r"}, API: dot, GraphQL: dotGraph},
		"github.com:o/r":                        {Repo: forge.Repo{Host: "github.com", Owner: "o", Name: "r"}, API: dot, GraphQL: dotGraph},
		"org-1@github.com:/o/r.git":             {Repo: forge.Repo{Host: "github.com", Owner: "o", Name: "r"}, API: dot, GraphQL: dotGraph},
		"ssh://git@ssh.github.com:443/o/r.git":  {Repo: forge.Repo{Host: "github.com", Owner: "o", Name: "r"}, API: dot, GraphQL: dotGraph},
		"https://corp.ghe.com/o/r": {
			Repo: forge.Repo{Host: "corp.ghe.com", Owner: "o", Name: "r"}, API: "https://api.corp.ghe.com/",
			GraphQL: "https://api.corp.ghe.com/graphql",
		},
		"git@ghe.example.com:o/r.git": {
			Repo: forge.Repo{Host: "ghe.example.com", Owner: "o", Name: "r", Assumed: true},
			API:  "https://ghe.example.com/api/v3/", GraphQL: "https://ghe.example.com/api/graphql",
		},
		"ssh://git@ghe.example.com:2222/o/r.git": {
			Repo: forge.Repo{Host: "ghe.example.com", Owner: "o", Name: "r", Assumed: true},
			API:  "https://ghe.example.com/api/v3/", GraphQL: "https://ghe.example.com/api/graphql",
		},
		"https://ghe.example.com:8443/o_x/r.git": {
			Repo: forge.Repo{Host: "ghe.example.com:8443", Owner: "o_x", Name: "r", Assumed: true},
			API:  "https://ghe.example.com:8443/api/v3/", GraphQL: "https://ghe.example.com:8443/api/graphql",
		},
		"http://127.0.0.1:3000/o/r.git": {
			Repo: forge.Repo{Host: "127.0.0.1:3000", Owner: "o", Name: "r", Assumed: true}, API: "http://127.0.0.1:3000/api/v3/",
			GraphQL: "http://127.0.0.1:3000/api/graphql",
		},
		"https://github.com.evil.example/o/r.git": {
			Repo: forge.Repo{Host: "github.com.evil.example", Owner: "o", Name: "r", Assumed: true},
			API:  "https://github.com.evil.example/api/v3/", GraphQL: "https://github.com.evil.example/api/graphql",
		},
		"https://github.com@evil.example/o/r.git": {
			Repo: forge.Repo{Host: "evil.example", Owner: "o", Name: "r", Assumed: true}, API: "https://evil.example/api/v3/",
			GraphQL: "https://evil.example/api/graphql",
		},
		"https://evilghe.com/o/r.git": {
			Repo: forge.Repo{Host: "evilghe.com", Owner: "o", Name: "r", Assumed: true}, API: "https://evilghe.com/api/v3/",
			GraphQL: "https://evilghe.com/api/graphql",
		},
		"https://[2001:db8::1]:8443/o/r": {
			Repo: forge.Repo{Host: "[2001:db8::1]:8443", Owner: "o", Name: "r", Assumed: true},
			API:  "https://[2001:db8::1]:8443/api/v3/", GraphQL: "https://[2001:db8::1]:8443/api/graphql",
		},
	} {
		if got, ok := github.Parse(remote); !ok || got != want {
			t.Errorf("%s: %+v, %v", remote, got, ok)
		}
	}
	for _, remote := range []string{
		"", ".", "/srv/r.git", "../o/r", "o/r", "file:///o/r", "git://github.com/o/r", "https://github.com", "https://github.com/o",
		"https://github.com/o/r/x",
		"https://github.com/o/..", "https://github.com/o/.git", "https://github.com/-o/r", "https://github.com/o/r?x",
		"https://github.com/o/r#x", "https://github.com/o%2fx/r",
		"git@github.com:o/r\n", "git@github.com:r.git", "https://gitlab.com/o/r", "git@bitbucket.org:o/r.git",
		"https://me.visualstudio.com/o/r", "https:///o/r", "https://ho st/o/r",
		"https://github.com:x/o/r", "https://-x-/o/r", "C:/o/r", "ext::sh -c x", "https://github.com/o/" + strings.Repeat("r", 101),
	} {
		if got, ok := github.Parse(remote); ok {
			t.Errorf("%q: %+v", remote, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"https://github.com/o/r.git", "git@ghe.example.com:o/r", "ssh://git@[::1]:22/o/r", "http://a:1/b/c",
		"x@y:z/w", "https://%67ithub.com/o/r",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, remote string) {
		r, ok := github.Parse(remote)
		if !ok {
			if r != (github.Repo{}) && r.API != "" {
				t.Errorf("refused and located: %+v", r)
			}
			return
		}
		for _, s := range []string{r.API, r.GraphQL} {
			u, err := url.Parse(s)
			if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "https" && u.Scheme != "http" {
				t.Errorf("%q leads to %q: %v", remote, s, err)
			}
		}
		if !strings.HasSuffix(r.API, "/") || strings.ContainsAny(r.Owner+r.Name, "/\\?#% \n") || r.Owner == "" || r.Name == "" || r.Name == ".." {
			t.Errorf("%q: %+v", remote, r)
		}
	})
}
