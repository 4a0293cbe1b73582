package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/host/branch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// CloneDir is the directory of the clone of Spec.Repo, and of a nested sandbox. The clones of Spec.Repos are in it.
const CloneDir = workorder.Workspace

// NamedRepo is one of several repositories of a sandbox.
type NamedRepo struct {
	Name string `json:"name"` // of its directory in CloneDir
	Repo string `json:"repo"` // a path on the host
	Ref  string `json:"ref,omitempty"`
}

// Clone is a clone, or worktree, of a local repository in a sandbox. The repository has a branch with its commits.
type Clone struct{ Repo, Ref, Dir string }

// Clones returns the clones whose changes Save commits.
func (s Spec) Clones() (all []Clone) {
	switch {
	case s.Worktree != "":
		all = append(all, Clone{s.Worktree, s.Ref, CloneDir})
	case filepath.IsAbs(s.Repo):
		all = append(all, Clone{s.Repo, s.Ref, CloneDir})
	}
	for _, r := range s.Repos {
		all = append(all, Clone{r.Repo, r.Ref, CloneDir + "/" + r.Name})
	}
	return all
}

// BranchOf returns the local repository to which Save commits, the first one of several; "" if there is none.
func (s Spec) BranchOf() string {
	for _, c := range s.Clones() {
		return c.Repo
	}
	return ""
}

// HasBranchIn reports whether Save commits to a local repository.
func (s Spec) HasBranchIn(repo string) bool {
	return slices.ContainsFunc(s.Clones(), func(c Clone) bool { return c.Repo == repo })
}

// clonesLocal reports whether the sandbox has clones of repositories of this machine.
func (s Spec) clonesLocal() bool { return s.Worktree == "" && s.BranchOf() != "" }

// clones returns the clones that the Branch is about.
func (b *Branch) clones() []Clone {
	return slices.DeleteFunc(b.in.current().Clones(), func(c Clone) bool { return b.repo != "" && c.Repo != b.repo })
}

// of returns the stored branch of a clone, with the clone.
func (b *Branch) of(c Clone) *branch.Clone {
	return b.in.c.branchOf(b.in.current(), c.Repo).In(b.in.exec, c.Dir)
}

// ValidRepoName reports whether a NamedRepo can have the name.
func ValidRepoName(name string) bool { return workorder.ValidRepoName(name) }

// checkRepos returns all mistakes in Repos.
func (s Spec) checkRepos() error {
	var errs []error
	names := map[string]bool{}
	if len(s.Repos) > 0 && (s.Repo != "" || s.Worktree != "") {
		errs = append(errs, errors.New("named repositories beside one at "+CloneDir))
	}
	for _, r := range s.Repos {
		if !ValidRepoName(r.Name) {
			errs = append(errs, fmt.Errorf("name %q of repository %s: use letters, digits, \".\", \"-\" and \"_\"", r.Name, r.Repo))
		}
		if names[r.Name] {
			errs = append(errs, fmt.Errorf("two repositories are named %s", r.Name))
		}
		names[r.Name] = true
		if t, err := git.RepoTransport(r.Repo); err == nil && t != git.TransportLocal {
			errs = append(errs, fmt.Errorf("repository %s=%s: several must be on this machine: clone it first", r.Name, r.Repo))
		}
	}
	return errors.Join(errs...)
}

// cloneSource is what a clone is made from.
type cloneSource struct {
	Clone
	file string // a bundle of the repository's commits
	base string // the commit at which the clone begins
}

// bundles copies the commits of the local repositories into files, which remove deletes, and completes the spec's repositories and refs.
func (s *Spec) bundles(ctx context.Context) (all []cloneSource, remove func(), err error) {
	wanted := []*NamedRepo{}
	s.Repos = slices.Clone(s.Repos)
	for i := range s.Repos {
		wanted = append(wanted, &s.Repos[i])
	}
	t, err := git.RepoTransport(s.Repo)
	if bad, ok := errors.AsType[*git.RepoURLError](err); ok {
		return nil, nil, exiterr.New(workorder.ExitUsage, fmt.Errorf("repository: %w: repo: %w", ErrInvalidSpec, err), bad.Hint)
	}
	one := NamedRepo{Repo: s.Repo, Ref: s.Ref}
	if t == git.TransportLocal {
		wanted = append(wanted, &one)
	}
	if len(wanted) == 0 {
		return nil, func() {}, nil
	}
	dir, remove, err := copyDir(os.TempDir())
	if err != nil {
		return nil, nil, fmt.Errorf("copy the commits of %s: %w", wanted[0].Repo, err)
	}
	for i, r := range wanted {
		src, err := r.bundle(ctx, filepath.Join(dir, fmt.Sprintf("%d.bundle", i)))
		for _, other := range all {
			if err == nil && localrepo.Same(ctx, other.Repo, src.Repo) {
				err = fmt.Errorf("%w: %s is cloned twice, and has one branch for a sandbox", ErrInvalidSpec, src.Repo)
			}
		}
		if err != nil {
			remove()
			return nil, nil, err
		}
		all = append(all, src)
	}
	if t == git.TransportLocal {
		s.Repo, s.Ref = one.Repo, one.Ref
	}
	return all, remove, nil
}

// bundle copies the commits of the repository into a file, and completes its path and ref.
func (r *NamedRepo) bundle(ctx context.Context, file string) (s cloneSource, err error) {
	repo, err := localrepo.Open(ctx, r.Repo)
	if err != nil {
		return s, err
	}
	if r.Ref, err = repo.Base(ctx, r.Ref); err != nil {
		return s, err
	}
	r.Repo = repo.Path
	s = cloneSource{Clone: Clone{repo.Path, r.Ref, filepath.Join(CloneDir, r.Name)}, file: file}
	if err = repo.Bundle(ctx, file, r.Ref); err == nil {
		s.base, err = repo.BundleHead(ctx, file, r.Ref)
	}
	return s, err
}
