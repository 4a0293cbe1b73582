package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

const (
	// maxTitledName bounds the part of a name that is made of a title, in bytes.
	maxTitledName = 40
	// maxNameTries bounds the search for an unused name.
	maxNameTries = 1000
)

// CreateTitled creates a sandbox with a clone of a local repository, under a name made of its title that neither a sandbox nor a branch
// has. ref is the branch, tag or commit to start from; "" is the checked-out one. changed lists the user's uncommitted files, which are
// not in the clone.
func (b Sandboxes) CreateTitled(
	ctx context.Context, m *sandbox.Manager, s sandbox.Spec, top, ref string,
) (sb *sandbox.Sandbox, changed []string, err error) {
	repo, err := localrepo.Open(ctx, top)
	if err != nil {
		return nil, nil, err
	}
	begin, err := beginning(ctx, repo, ref)
	if err != nil {
		return nil, nil, err
	}
	switch s.Runtime {
	case sandbox.RuntimeContainer, sandbox.RuntimeJail:
		s.Repo, s.Ref = top, begin
		if s.Runtime == sandbox.RuntimeContainer {
			s.Image, err = containerImage(ctx, b)
		}
	default:
		err = b.ApplyProject(ctx, &s, "", top, begin)
	}
	if err != nil {
		return nil, nil, err
	}
	sb, err = createNamed(ctx, b, m, s)
	return sb, repo.Changed, SandboxError(err)
}

// createNamed creates a sandbox. A spec without a name gets one made of its title that neither a sandbox nor a branch of its repository
// has.
func createNamed(ctx context.Context, b Sandboxes, m *sandbox.Manager, s sandbox.Spec) (*sandbox.Sandbox, error) {
	if s.Name != "" {
		return m.Create(ctx, s)
	}
	all, err := b.BranchStore()
	if err != nil {
		return nil, err
	}
	used := func(name string) bool {
		return slices.ContainsFunc(reposOf(s, s.Repo), func(repo string) bool {
			dir := localDir(repo)
			return dir != "" && all.Of(name, localrepo.RepoRoot(dir)).Head(ctx) != ""
		})
	}
	stem := titledName(s.Title)
	for n := 1; n <= maxNameTries; n++ {
		s.Name = stem
		if n > 1 {
			s.Name += "-" + strconv.Itoa(n)
		}
		if used(s.Name) {
			continue
		}
		sb, err := m.Create(ctx, s)
		if !errors.Is(err, sandbox.ErrExists) {
			return sb, err
		}
	}
	return nil, fmt.Errorf("%d sandboxes have names that begin with %s: choose another title", maxNameTries, stem)
}

var notInName = lazyregexp.New(`[^a-z0-9]+`)

func titledName(title string) string {
	name := strings.Trim(notInName.ReplaceAllString(strings.ToLower(title), "-"), "-")
	return cmp.Or(strings.Trim(name[:min(len(name), maxTitledName)], "-"), "env")
}

// validRef is how an agent may name a commit.
var validRef = lazyregexp.New(`^[a-zA-Z0-9._~/][a-zA-Z0-9._~/-]{0,199}$`)

// beginning returns the branch, tag or commit that a clone begins at.
func beginning(ctx context.Context, repo *localrepo.Repo, ref string) (string, error) {
	if ref != "" && !validRef.MatchString(ref) {
		return "", Usagef("%.80q is neither branch, tag nor commit", ref)
	}
	begin, err := repo.Base(ctx, ref)
	if errors.Is(err, localrepo.ErrNoRevision) {
		return "", Usagef("%w", err)
	}
	return begin, err
}
