package localrepo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// ErrNoRevision is a name that no branch, tag or commit of the repository has.
var ErrNoRevision = errors.New("no branch, tag or commit")

// Base verifies that a run can start from ref, and returns its name: that of a branch, or else of a tag, or else the id of a commit. An empty ref is
// what is checked out, which is a commit where HEAD is detached, as in most CI jobs.
func (r *Repo) Base(ctx context.Context, ref string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	if r.Empty && (ref == "" || ref == r.Head) {
		return "", fault.New(workorder.ExitGit, fmt.Errorf("repository %s has no commit", r.Path), "commit something first: a run starts from a commit")
	}
	base := ref
	if base == "" || base == "HEAD" {
		base = r.Head
	}
	for _, space := range []string{"refs/heads/", "refs/tags/"} {
		if base == "" {
			break
		}
		out, err := gitOut(ctx, r.Path, "rev-parse", "--verify", "--quiet", "--end-of-options", space+base+"^{commit}")
		if err != nil {
			continue
		}
		id := strings.TrimSpace(out)
		if _, err := gitOut(ctx, r.Path, "show-ref", "--verify", "--quiet", "--", space+base); err == nil {
			return base, r.whole(ctx, space+base)
		}
		return id, r.whole(ctx, id) // as of main~1
	}
	if base == "" {
		base = "HEAD"
	}
	out, err := gitOut(ctx, r.Path, "rev-parse", "--verify", "--quiet", "--end-of-options", base+"^{commit}")
	if id := strings.TrimSpace(out); err == nil && git.ValidSHA(id) {
		return id, r.whole(ctx, id)
	}
	if ctx.Err() != nil {
		return "", fmt.Errorf("look for %q in %s: %w", base, r.Path, context.Cause(ctx))
	}
	return "", fault.New(workorder.ExitGit, fmt.Errorf("repository %s has %w %q", r.Path, ErrNoRevision, base), r.branchHint(ctx))
}

// IsBranch reports whether a name that Base has returned is a branch's.
func (r *Repo) IsBranch(ctx context.Context, base string) bool {
	at, err := Git(r.Path).Resolve(ctx, workorder.BranchRef(base))
	return err == nil && at != ""
}

// Commit is the commit of a name that Base has returned.
func (r *Repo) Commit(ctx context.Context, base string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	names := []string{"refs/heads/" + base, "refs/tags/" + base}
	if git.ValidSHA(base) {
		names = append(names, base)
	}
	for _, name := range names {
		if out, err := gitOut(ctx, r.Path, "rev-parse", "--verify", "--quiet", "--end-of-options", name+"^{commit}"); err == nil {
			return strings.TrimSpace(out), nil
		}
	}
	return "", fmt.Errorf("repository %s has no branch, tag or commit %q", r.Path, base)
}

func (r *Repo) branchHint(ctx context.Context) string {
	out, err := gitOut(ctx, r.Path, "for-each-ref", "--count=8", "--sort=-committerdate", "--format=%(refname:strip=2)", "refs/heads")
	if err != nil || strings.TrimSpace(out) == "" {
		return "it has no branches"
	}
	return "it has: " + strings.Join(strings.Fields(out), ", ")
}

// whole refuses a partial clone (git clone --filter) that lacks objects: git would fetch them from the remote that the clone names, and nothing in a
// foreign configuration makes us contact one.
func (r *Repo) whole(ctx context.Context, base string) error {
	if _, err := gitOut(ctx, r.Path, "config", "--get-regexp", `^(extensions\.partialclone|remote\..*\.(promisor|partialclonefilter))$`); err != nil {
		return nil // there is no such setting
	}
	ctx, found := context.WithCancel(ctx)
	defer found()
	missing := false
	_, err := Git(r.Path).Stream(ctx, nil, writer(func(b []byte) {
		if bytes.ContainsRune(b, '?') { // before the id of an object that is missing
			missing = true
			found()
		}
	}), time.Second, "rev-list", "--objects", "--no-object-names", "--missing=print", "--branches", "--tags", "--end-of-options", base)
	if err == nil && !missing {
		return nil
	}
	return fault.New(workorder.ExitGit, fmt.Errorf("repository %s is a partial clone, which lacks objects (git clone --filter), and a run needs all of them", r.Path),
		"`git -C "+r.Path+" fetch --refetch --no-filter` brings them (git 2.36 or newer), or make a clone without --filter")
}

// writer is a function as an io.Writer.
type writer func([]byte)

func (f writer) Write(b []byte) (int, error) {
	f(b)
	return len(b), nil
}

// Free verifies that a run can make a branch: git keeps no branch beside one that has a part of its name, such as agent beside agent/x.
func (r *Repo) Free(ctx context.Context, branch string) error {
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	out, err := gitOut(ctx, r.Path, "for-each-ref", "--format=%(refname:strip=2)", "refs/heads/")
	if err != nil {
		return fmt.Errorf("look at the branches of %s: %w", r.Path, err)
	}
	for name := range strings.Lines(out) {
		if name = strings.TrimSuffix(name, "\n"); workorder.BranchesClash(name, branch) {
			return fault.New(workorder.ExitGit, fmt.Errorf("repository %s has a branch %s, beside which git can have no branch %s", r.Path, name, branch),
				"rename it: `git -C "+r.Path+" branch -m "+name+" NAME`")
		}
	}
	return nil
}

// Bundle writes the repository's branches and tags to a file, with their commits: for a sandbox that has no way to this machine. It has the commit of base, too.
func (r *Repo) Bundle(ctx context.Context, file, base string) error {
	ctx, cancel := context.WithTimeout(ctx, bundleTimeout)
	defer cancel()
	var more []string
	if !r.IsBranch(ctx, base) && git.ValidSHA(base) { // it may be on no branch, and there may be none
		more = []string{"HEAD", base}
	}
	if err := bundle(ctx, r.Path, file, more...); err != nil {
		return fmt.Errorf("copy the commits of %s: %w", r.Path, err)
	}
	return nil
}

// BundleHead is the commit of base in a bundle of the repository.
func (r *Repo) BundleHead(ctx context.Context, file, base string) (string, error) {
	out, err := gitOut(ctx, r.Path, "bundle", "list-heads", file, workorder.BranchRef(base))
	if sha, _, _ := strings.Cut(strings.TrimSpace(out), " "); err == nil && sha != "" {
		return sha, nil
	}
	return r.Commit(ctx, base) // a tag or commit, which does not move
}

// bundle writes branches and tags, and further revisions, each by its full name: git leaves out a branch whose short name is a tag's, too.
func bundle(ctx context.Context, dir, file string, more ...string) error {
	refs, err := gitOut(ctx, dir, "for-each-ref", "--format=%(refname)", "refs/heads/", "refs/tags/")
	if err != nil {
		return err
	}
	r := Git(dir)
	r.Stdin = refs + strings.Join(more, "\n")
	return r.Run(ctx, "bundle", "create", "--quiet", "--version=2", file, "--stdin")
}

// bundleTimeout bounds packing a repository of gigabytes.
const bundleTimeout = 15 * time.Minute
