package credentials

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/forge/setup"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Variables of a GitHub App. The key is PEM, or the path of a file with it.
const (
	appID           = "SANDBOX_AGENT_GITHUB_APP_ID"
	appInstallation = "SANDBOX_AGENT_GITHUB_APP_INSTALLATION"
	appKey          = "SANDBOX_AGENT_GITHUB_APP_KEY"
	appKeyFile      = "SANDBOX_AGENT_GITHUB_APP_KEY_FILE"
)

const maxAppKey = 64 << 10 // bytes of the key file; an RSA key of 16384 bits has about 13 kB

// usesApp reports whether an App opens the remote: one is configured, no token has priority, and the remote is on GitHub.
func (f *Finder) usesApp(remote string) bool {
	if f.Getenv(appID) == "" || f.Getenv(GitToken) != "" {
		return false
	}
	if u, err := url.Parse(remote); err == nil && u.Scheme == "http" && readable(u) {
		return false
	}
	repo, ok := setup.Parse(remote)
	if !ok || repo.Assumed && !f.isGitHub(repo.Host) {
		return false
	}
	return !f.isGitHub(repo.Host) || f.Getenv("GH_TOKEN") == "" && f.Getenv("GITHUB_TOKEN") == ""
}

// App returns the App from the environment; nil if none is configured.
func (f *Finder) App() (*workorder.ForgeApp, error) {
	app := &workorder.ForgeApp{ID: strings.TrimSpace(f.Getenv(appID)), PrivateKey: f.Getenv(appKey)}
	if app.ID == "" {
		return nil, nil
	}
	var errs []error
	if v := strings.TrimSpace(f.Getenv(appInstallation)); v != "" {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n <= 0 {
			errs = append(errs, fmt.Errorf("%s=%q is not an installation number", appInstallation, v))
		}
		app.Installation = n
	}
	file := f.Getenv(appKeyFile)
	switch {
	case app.PrivateKey != "" && file != "":
		errs = append(errs, fmt.Errorf("%s and %s exclude each other", appKey, appKeyFile))
	case app.PrivateKey == "" && file == "":
		errs = append(errs, fmt.Errorf("%s needs %s or %s", appID, appKey, appKeyFile))
	case file != "":
		st, err := os.Stat(file)
		if err == nil && (!st.Mode().IsRegular() || st.Size() > maxAppKey) {
			err = errors.New("not a key file")
		}
		var b []byte
		if err == nil {
			b, err = os.ReadFile(file)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("read the private key of the GitHub App from %s: %w", file, err))
		}
		app.PrivateKey = string(b)
	}
	if len(errs) > 0 {
		return nil, exiterr.New(workorder.ExitGit, errors.Join(errs...), "see docs/pull-requests.md for the configuration of a GitHub App")
	}
	return app, nil
}

// appCredential returns an installation token for git over HTTP, which the box renews.
func (f *Finder) appCredential(ctx context.Context, remote string) (*workorder.GitCredential, error) {
	app, err := f.App()
	if err != nil {
		return nil, err
	}
	conf := forge.Config{Remote: remote, App: app}
	if repo, ok := setup.Parse(remote); ok && repo.Assumed {
		u, err := url.Parse(remote)
		if err != nil {
			return nil, fmt.Errorf("parse the remote's URL: %w", err)
		}
		conf.APIURL = u.Scheme + "://" + u.Host // GH_HOST names this host
	}
	client, err := setup.New(conf)
	if err == nil {
		var t string
		if t, err = client.Token(ctx); err == nil {
			cred := token("", t)
			cred.Renew = true
			return cred, nil
		}
	}
	if fe, ok := errors.AsType[*forge.Error](err); ok {
		return nil, exiterr.New(workorder.ExitGit, fmt.Errorf("%s: %s", fe.Doing, fe.Said), fe.Next)
	}
	return nil, exiterr.New(workorder.ExitGit, fmt.Errorf("use the GitHub App: %w", err), "check "+appID+" and its key")
}

// ForgeToken is a token for the API of a forge.
type ForgeToken struct {
	Token string // empty if there is none
	From  string // its source: a variable, or a program
	Renew bool   // Token is an installation token of the App, valid for an hour
}

// Forge returns the token for the API of the forge with a repository's pull requests. It is the token for the repository over HTTPS,
// even if git uses SSH, or if the repository is a path and pr names the forge. A branch's author may have changed the project file:
// for an API on another host than the repository's, Forge returns only a token that the user has for that host.
func (f *Finder) Forge(ctx context.Context, repo string, pr *workorder.PullRequest) (ForgeToken, error) {
	remote := webAddress(repo, pr)
	u, err := url.Parse(remote)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return ForgeToken{}, nil
	}
	api, find, foreign := u, f.http, false
	if pr != nil && pr.APIURL != "" {
		if api, err = url.Parse(pr.APIURL); err != nil {
			return ForgeToken{}, exiterr.New(workorder.ExitInvalid, fmt.Errorf("parse pr.api_url: %w", err),
				"use a URL like https://ghe.example.com/api/v3")
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
		return ForgeToken{}, exiterr.New(workorder.ExitGit,
			fmt.Errorf("pr.api_url is on %s, not on the repository's host: the repository's token is not sent there, and no token for %s was found",
				api.Host, u.Host),
			"correct pr.api_url in the project file, or log in: `gh auth login --hostname "+u.Host+"` (docs/pull-requests.md)")
	case cred == nil:
		return ForgeToken{}, nil
	case readable(api) && (foreign || !readable(u)):
		return ForgeToken{}, exiterr.New(workorder.ExitGit, fmt.Errorf(
			"pr.api_url is plain HTTP to %s: the token would be readable on the network", api.Host), "use https:// in the project file")
	}
	return ForgeToken{Token: cred.Token, From: from, Renew: cred.Renew}, nil
}

// webAddress returns a repository's HTTP address, for finding tokens; "" if it has none.
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

// readable reports whether data to an address is readable for others: plain HTTP to a public address.
func readable(u *url.URL) bool {
	if u.Scheme == "https" || u.Hostname() == "localhost" {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return err != nil || !ip.IsLoopback() && !ip.IsPrivate()
}

// home returns the host, with its port, under which tokens for an API's forge are stored.
func home(api *url.URL) string {
	name := api.Hostname()
	if at := setup.Home(name); !strings.EqualFold(at, name) {
		return at
	}
	return api.Host
}

// isPath reports whether a repository is a directory of this machine, without a forge.
func isPath(repo string) bool {
	t, err := projects.RepoTransport(repo)
	return err == nil && t == projects.TransportLocal
}

// named returns the address of the repository that pr names on a forge; "" if it names none.
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

// ExpectsPulls reports whether a repository should have pull requests: pr requests them, or the host is a known forge.
func ExpectsPulls(repo string, pr *workorder.PullRequest) bool {
	return HasForge(repo, pr) && (pr != nil || setup.Known(repo))
}
