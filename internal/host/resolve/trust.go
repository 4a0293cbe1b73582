package resolve

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/credentials"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/job"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/internal/host/trust"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// UntrustedError refuses the project file of a repository.
type UntrustedError struct {
	File        string             `json:"file"`
	Permissions []trust.Permission `json:"asks"`
	Changed     bool               `json:"changed"` // the user trusted another content
}

func (e *UntrustedError) Error() string {
	var keys []string
	for _, a := range e.Permissions {
		keys = append(keys, a.Key+" ("+a.Value+")")
	}
	why := "you have not trusted it"
	if e.Changed {
		why = "it has changed since you trusted it"
	}
	return fmt.Sprintf("the project file %s requests more than its repository's code may do in the sandbox, and %s: %s", e.File, why,
		strings.Join(keys, ", "))
}

// ExitCode is the exit code of the CLI for this error.
func (e *UntrustedError) ExitCode() int { return workorder.ExitInvalid }

func (e *UntrustedError) trustCommand() string {
	return text.Shell("sandbox-agent", "project", "trust", e.File)
}

// The ways to name a task's project, as in its record.
const (
	Named  = "named"  // by the user: a path outside of repositories, or a name in one of the user's own directories
	found  = "found"  // in the current directory or in a repository
	Unsaid = "unsaid" // in records of older versions
)

// naming is how a project was named.
type naming struct {
	said   *Flags
	inRepo bool // its file was found in the named repository
}

// by decides whether the project's file is the user's own. The file's content cannot decide this, and a user who names a
// path in a repository may not have read it.
func (n *naming) by(p *projects.Project) string {
	switch {
	case p.Detected:
		return taskstore.Detected
	case p.Path() == "":
		return Named
	case p.Found, n.inRepo, n.said.ProjectSource == found:
		return found
	case n.said.ProjectSource == Named, n.said.ProjectSource == "" && !p.ByPath:
		return Named
	case len(localrepo.ReposOf(p.Path())) > 0:
		return found
	}
	return Named
}

// OwnRepo reports whether a repository is the file's. A file that a link leads to from another repository belongs to no remote.
func OwnRepo(ctx context.Context, file string) func(repo string) bool {
	return func(repo string) bool {
		t, err := projects.RepoTransport(repo)
		if err != nil {
			return false
		}
		top := localrepo.RepoOf(file)
		if t == projects.TransportLocal {
			top = localrepo.RepoRoot(filepath.Dir(file)) // relative paths in the file count from here
		}
		if t == projects.TransportLocal && top == "" {
			return localrepo.Within(repo, filepath.Dir(file))
		}
		return top != "" && isRepo(ctx, top, repo)
	}
}

// isRepo reports whether repo is the repository at top, by its path or by one of its remotes.
func isRepo(ctx context.Context, top, repo string) bool {
	if t, err := projects.RepoTransport(repo); err != nil {
		return false
	} else if t == projects.TransportLocal {
		return localrepo.RepoRoot(repo) == top // neither an outer nor an inner repository
	}
	return slices.ContainsFunc(localrepo.Remotes(ctx, top), func(url string) bool { return localrepo.SameRemote(url, repo) })
}

// isShown reports whether the file's repository has a commit of the remote in its config. The maker of an archive can
// write a private remote into .git/config, but has none of its commits. Without a credential the claim gains nothing.
func isShown(ctx context.Context, find *credentials.Finder, file, remote string) (bool, error) {
	cred, err := find.Git(ctx, remote)
	if err != nil || cred == nil {
		return err == nil, err
	}
	tips, err := find.Tips(ctx, remote, cred)
	return err == nil && localrepo.HasAnyObject(ctx, localrepo.RepoOf(file), tips), err
}

// theirs reports whether a project came with a repository. repo is the task's.
func (n *naming) theirs(ctx context.Context, p *projects.Project, repo string) bool {
	file := p.Path()
	if file == "" {
		return false
	}
	// A user's own directory may also be in the task's repository.
	return n.by(p) != Named || repo != "" && slices.ContainsFunc(localrepo.ReposOf(file),
		func(top string) bool { return isRepo(ctx, top, repo) })
}

// trusted refuses a repository's project with requests, unless the user trusted exactly that. asks are the requests of
// the file as it was read; repo is the task's.
func (f *Resolver) trusted(ctx context.Context, n *naming, p *projects.Project, asks []trust.Permission, repo string) error {
	file := p.Path()
	if len(asks) == 0 || !n.theirs(ctx, p, repo) {
		return nil
	}
	dir, err := f.StateDir()
	if err != nil {
		return err
	}
	store := trust.Open(dir)
	was, err := store.Lookup(file)
	if err != nil {
		return exiterr.New(workorder.ExitInvalid, err, "remove that file, and trust the project again")
	}
	sum := trust.Sum(p)
	covered := func() bool { return len(asks) == 0 || was != nil && was.Sum == sum && was.Covers(asks) }
	if covered() {
		return nil
	}
	if i := slices.IndexFunc(asks, func(k trust.Permission) bool { return k.Claim }); i >= 0 {
		ok := n.said.DryRun // contacts nothing
		if !ok {
			if ok, err = isShown(ctx, f.Credentials, file, asks[i].Value); err != nil {
				return err
			}
		}
		if ok {
			asks = slices.Delete(slices.Clone(asks), i, i+1)
		}
		if covered() {
			return nil
		}
	}
	no := &UntrustedError{file, asks, was != nil}
	if !n.said.DryRun && f.Confirm != nil && !f.asked {
		f.asked = true
		yes, err := f.Confirm(ctx, no)
		if err != nil {
			return err
		}
		if yes {
			return store.Trust(file, sum, asks, time.Now())
		}
	}
	return exiterr.New(workorder.ExitInvalid, no, "review it, then trust its current content: `"+no.trustCommand()+"`")
}

// asks returns the requests of the project's file that no flag overrides.
func (f *Resolver) asks(ctx context.Context, s *Flags, p *projects.Project) []trust.Permission {
	file := p.Path()
	if file == "" {
		return nil
	}
	u := trust.UserOverrides{
		Own: OwnRepo(ctx, file), MemoryBytes: machineMemory() / 10 * job.MemoryTenths,
		Token: f.Credentials.Getenv(credentials.GitToken) != "", Gives: s.gives,
	}
	repo := p.Repo
	if u.Gives("repo") {
		repo, u.Repo = s.Values["repo"], s.Values["repo"]
	}
	if t, err := projects.RepoTransport(repo); err == nil && t == projects.TransportLocal && u.Own(repo) {
		u.Borrows = localrepo.AlternateDirs(ctx, repo)
	}
	if u.Gives("network") {
		u.Network = workorder.NetworkMode(s.Values["network"])
	}
	return trust.Permissions(p, u)
}

// TrustBox is trusted for a command that uses only the project's settings of the box.
func (f *Resolver) TrustBox(ctx context.Context, s *Flags, p *projects.Project) error {
	asks := slices.DeleteFunc(f.asks(ctx, s, p), func(k trust.Permission) bool {
		return !slices.Contains([]string{"image", "isolation", "oci_runtime"}, k.Key)
	})
	return f.trusted(ctx, &naming{said: s}, p, asks, p.Repo)
}
