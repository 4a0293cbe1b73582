package credentials

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/forge/setup"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// ForgeToken is a token for the API of a forge.
type ForgeToken struct {
	Token string // empty if there is none
	From  string // its source: a variable, or a program
	// Renew reports that Token is an installation token of the GitHub App, which is valid for an hour.
	Renew bool
}

// Forge finds the token for the API of the forge that has a repository's pull requests. It is the token for the
// repository by HTTPS, even if git uses SSH, or if the repository is a path and pr names the forge. Another person may
// have written the project file on a branch: if its API is on another host than the repository, Forge gives only a
// token that the user has for that host.
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
		if foreign = !isPath(repo) && !setup.SameHost(repo, pr.APIURL); foreign {
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

// webAddress is a repository's HTTP address, by which tokens are found; empty if it has none.
func webAddress(repo string, pr *workorder.PullRequest) string {
	if isPath(repo) {
		return named(pr)
	}
	if _, ssh := sshRemote(repo); ssh {
		r, ok := setup.Parse(repo)
		if !ok {
			return ""
		}
		return "https://" + r.Host + "/" + r.String()
	}
	return repo
}

// readable reports whether others can read what is sent to an address: it is plain HTTP to a host outside of this
// machine and private networks.
func readable(u *url.URL) bool {
	if u.Scheme == "https" || u.Hostname() == "localhost" {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return err != nil || !ip.IsLoopback() && !ip.IsPrivate()
}

// home is the host, with its port, under which the tokens of an API's forge are stored.
func home(api *url.URL) string {
	name := api.Hostname()
	if at := setup.Home(name); !strings.EqualFold(at, name) {
		return at
	}
	return api.Host
}

// isPath reports whether a repository is a folder of this machine, which belongs to no forge.
func isPath(repo string) bool {
	t, err := projects.RepoTransport(repo)
	return err == nil && t == projects.TransportLocal
}

// named is the address of the repository that pr names on a forge; empty if it names none.
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

// HasForge reports whether a repository can have pull requests: it is not a path, or pr names its forge.
func HasForge(repo string, pr *workorder.PullRequest) bool { return !isPath(repo) || named(pr) != "" }
