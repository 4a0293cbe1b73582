// Package setup chooses the forge of a repository. To add a forge, write a package like internal/forge/github that passes
// internal/test/forgetest, and add a case to each function here.
package setup

import (
	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/forge/github"
)

// New returns a client of the repository's forge and sends nothing. A host with an unknown name may be a GitHub
// Enterprise server: the client asks it, without the token.
func New(conf forge.Config) (forge.Forge, error) { return github.New(conf) }

// Parse splits the clone URL of a repository. It is false for paths, other schemes, and unsupported forges.
func Parse(remote string) (forge.Repo, bool) {
	r, ok := github.Parse(remote)
	return r.Repo, ok
}

// Known reports whether the host of a remote is a forge by its name.
func Known(remote string) bool {
	r, ok := github.Parse(remote)
	return ok && !r.Assumed
}

// PagesOf returns the addresses of a repository's pages; nil if they are not known.
func PagesOf(conf forge.Config) forge.Pages { return github.PagesOf(conf) }

// SameHost reports whether an API belongs to the host of a remote, at any port.
func SameHost(remote, api string) bool { return github.SameHost(remote, api) }

// Home returns the forge's host for an API's host.
func Home(host string) string { return github.Home(host) }
