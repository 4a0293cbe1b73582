package credentials

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// ForgeToken opens the API of a forge.
type ForgeToken struct {
	Token string // empty: there is none
	From  string // what gave it: a variable, or a program
}

// Forge finds the token for the API of the forge that a repository's pull requests are on. It is the one that opens
// the repository by HTTPS, also where git reaches it by SSH, and where it is a path and pr says which
// forge it is on.
func (f *Finder) Forge(ctx context.Context, repo string, pr *workorder.PullRequest) (ForgeToken, error) {
	remote := repo
	if IsPath(repo) {
		remote = named(pr)
	} else if _, ssh := sshRemote(repo); ssh {
		r, ok := forge.Parse(repo)
		if !ok {
			return ForgeToken{}, nil
		}
		remote = fmt.Sprintf("https://%s/%s/%s", r.Host, r.Owner, r.Name)
	}
	u, err := url.Parse(remote)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return ForgeToken{}, nil
	}
	cred, from, err := f.http(ctx, u, remote)
	if err != nil || cred == nil {
		return ForgeToken{}, err
	}
	return ForgeToken{Token: cred.Token, From: from}, nil
}

// IsPath tells whether a repository is a folder of this machine, which is on no forge by itself.
func IsPath(repo string) bool {
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
	// github.com and its kin have their API on a host of its own; tokens are known by the forge's.
	return u.Scheme + "://" + strings.TrimPrefix(u.Host, "api.") + "/" + pr.Repository
}

// HasForge tells whether a repository can have pull requests: it is no path, or pr says where it is.
func HasForge(repo string, pr *workorder.PullRequest) bool { return !IsPath(repo) || named(pr) != "" }
