package detect

import (
	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/projects"
)

var (
	originURL = lazyregexp.New(`(?s)\[remote "origin"\][^\[]*?\burl\s*=\s*(\S+)`)
	headRef   = lazyregexp.New(`^ref: refs/heads/(\S+)`)
)

// readGit reads remote and branch of a folder that has them; a tree of a commit has not.
func readGit(d *detector) {
	if f := d.open(".git/config"); f != nil {
		// A remote that holds a credential is not repeated.
		if m := originURL.FindStringSubmatch(f.text); m != nil && plainName(m[1]) {
			if t, err := projects.RepoTransport(m[1]); err == nil && t != projects.TransportLocal {
				d.Remote = m[1]
			}
		}
	}
	if f := d.open(".git/HEAD"); f != nil {
		if m := headRef.FindStringSubmatch(f.text); m != nil && plainName(m[1]) {
			d.Branch = m[1]
		}
	}
}
