package credentials

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/forge/github"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// ForgeToken opens the API of a forge.
type ForgeToken struct {
	Token string // empty means there is none
	From  string // what gave it: a variable, or a program
	// Renew: Token is an installation token of the GitHub App, which lives an hour.
	Renew bool
}

// Forge finds the token for the API of the forge that a repository's pull requests are on. It is the one that opens
// the repository by HTTPS, also where git reaches it by SSH, and where it is a path and pr says which
// forge it is on. A project file may come from a branch that somebody else wrote: where its API is on another host than
// the repository, only a token that the user has for that host is given.
func (f *Finder) Forge(ctx context.Context, repo string, pr *workorder.PullRequest) (ForgeToken, error) {
	remote := webAddress(repo, pr)
	u, err := url.Parse(remote)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return ForgeToken{}, nil
	}
	api, find, foreign := u, f.http, false
	if pr != nil && pr.APIURL != "" {
		if api, err = url.Parse(pr.APIURL); err != nil {
			return ForgeToken{}, fault.New(workorder.ExitInvalid, fmt.Errorf("read pr.api_url: %w", err), "give one like https://ghe.example.com/api/v3")
		}
		if foreign = !isPath(repo) && !github.SameHost(repo, pr.APIURL); foreign {
			find = f.ofHost
			u = &url.URL{Scheme: api.Scheme, Host: home(api), Path: u.Path}
			if pr.Repository != "" {
				u.Path = "/" + pr.Repository
			}
		}
	}
	cred, from, err := find(ctx, u, u.String())
	switch {
	case err != nil:
		return ForgeToken{}, err
	case cred == nil && foreign:
		return ForgeToken{}, fault.New(workorder.ExitGit,
			fmt.Errorf("pr.api_url is on %s, which is not the repository's host: the repository's token is not sent there, and there is none for %s", api.Host, u.Host),
			"correct pr.api_url in the project file, or log in there: `gh auth login --hostname "+u.Host+"` (docs/pull-requests.md)")
	case cred == nil:
		return ForgeToken{}, nil
	case readable(api) && (foreign || !readable(u)):
		return ForgeToken{}, fault.New(workorder.ExitGit, fmt.Errorf("pr.api_url is plain HTTP to %s: the token could be read on the way", api.Host),
			"write https:// in the project file")
	}
	return ForgeToken{Token: cred.Token, From: from, Renew: cred.Renew}, nil
}

// webAddress is a repository's address by HTTP, by which tokens are known; empty means it has none.
func webAddress(repo string, pr *workorder.PullRequest) string {
	if isPath(repo) {
		return named(pr)
	}
	if _, ssh := sshRemote(repo); ssh {
		r, ok := github.Parse(repo)
		if !ok {
			return ""
		}
		return fmt.Sprintf("https://%s/%s/%s", r.Host, r.Owner, r.Name)
	}
	return repo
}

// readable tells whether others can read what is sent to an address: it is plain HTTP, and leads further than this
// machine and private networks.
func readable(u *url.URL) bool {
	if u.Scheme == "https" || u.Hostname() == "localhost" {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return err != nil || !ip.IsLoopback() && !ip.IsPrivate()
}

// home is the host, with its port, by which the tokens of an API's forge are known.
func home(api *url.URL) string {
	name := api.Hostname()
	if at := github.Home(name); !strings.EqualFold(at, name) {
		return at
	}
	return api.Host
}

// isPath tells whether a repository is a folder of this machine, which is on no forge by itself.
func isPath(repo string) bool {
	t, err := projects.RepoTransport(repo)
	return err == nil && t == projects.TransportLocal
}

// named is the address of the repository that pr names on a forge, empty when it names none.
func named(pr *workorder.PullRequest) string {
	if pr == nil || pr.APIURL == "" || pr.Repository == "" {
		return ""
	}
	u, err := url.Parse(pr.APIURL)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + home(u) + "/" + pr.Repository
}

// HasForge tells whether a repository can have pull requests: it is no path, or pr says where it is.
func HasForge(repo string, pr *workorder.PullRequest) bool { return !isPath(repo) || named(pr) != "" }
