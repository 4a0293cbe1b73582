package localrepo

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// ErrNoRevision means that the repository has no branch, tag or commit of a name.
var ErrNoRevision = errors.New("no branch, tag or commit")

// Base verifies that a run can start from ref, and returns the name of the branch or tag, or the id of the commit. An empty ref means
// the checked-out branch, or the commit of a detached HEAD, as in most CI jobs.
func (r *Repo) Base(ctx context.Context, ref string) (string, error) {
	if base, known := r.bases[ref]; known {
		return base, nil
	}
	base, err := r.findBase(ctx, ref)
	if err == nil {
		if r.bases == nil {
			r.bases = map[string]string{}
		}
		r.bases[ref] = base
	}
	return base, err
}

func (r *Repo) findBase(ctx context.Context, ref string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	if r.Empty && (ref == "" || ref == r.Head) {
		return "", exiterr.New(workorder.ExitGit, fmt.Errorf("repository %s has no commit", r.Path),
			"commit something first: a run starts from a commit")
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
		return id, r.whole(ctx, id) // for example main~1
	}
	base = cmp.Or(base, "HEAD")
	out, err := gitOut(ctx, r.Path, "rev-parse", "--verify", "--quiet", "--end-of-options", base+"^{commit}")
	if id := strings.TrimSpace(out); err == nil && git.ValidSHA(id) {
		return id, r.whole(ctx, id)
	}
	if ctx.Err() != nil {
		return "", fmt.Errorf("look for %q in %s: %w", base, r.Path, context.Cause(ctx))
	}
	return "", exiterr.New(workorder.ExitGit, fmt.Errorf("repository %s has %w %q", r.Path, ErrNoRevision, base), r.branchHint(ctx))
}

// IsBranch reports whether a name from Base is a branch.
func (r *Repo) IsBranch(ctx context.Context, base string) bool {
	at, err := Git(r.Path).Resolve(ctx, workorder.BranchRef(base))
	return err == nil && at != ""
}

// Commit returns the commit of a name from Base.
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
		return "the repository has no branches"
	}
	return "available: " + strings.Join(strings.Fields(out), ", ")
}

// whole returns an error for a partial clone (git clone --filter) with missing objects: git would fetch them from the remote that
// the clone's configuration names, and that configuration is not trusted.
func (r *Repo) whole(ctx context.Context, base string) error {
	if _, err := gitOut(ctx, r.Path, "config", "--get-regexp",
		`^(extensions\.partialclone|remote\..*\.(promisor|partialclonefilter))$`); err != nil {
		return nil // no such setting
	}
	ctx, found := context.WithCancel(ctx)
	defer found()
	missing := false
	_, err := Git(r.Path).Stream(ctx, nil, writer(func(b []byte) {
		if bytes.ContainsRune(b, '?') { // marks the id of a missing object
			missing = true
			found()
		}
	}), time.Second, "rev-list", "--objects", "--no-object-names", "--missing=print", "--branches", "--tags", "--end-of-options", base)
	if err == nil && !missing {
		return nil
	}
	return exiterr.New(workorder.ExitGit, fmt.Errorf("repository %s is a partial clone with missing objects (git clone --filter)", r.Path),
		"fetch them with `git -C "+r.Path+" fetch --refetch --no-filter` (git 2.36 or newer), or clone without --filter")
}

type writer func([]byte)

func (f writer) Write(b []byte) (int, error) {
	f(b)
	return len(b), nil
}

// Free verifies that a run can create a branch: git does not allow the branches agent and agent/x together.
func (r *Repo) Free(ctx context.Context, branch string) error {
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	out, err := gitOut(ctx, r.Path, "for-each-ref", "--format=%(refname:strip=2)", "refs/heads/")
	if err != nil {
		return fmt.Errorf("list the branches of %s: %w", r.Path, err)
	}
	for name := range strings.Lines(out) {
		if name = strings.TrimSuffix(name, "\n"); workorder.BranchesClash(name, branch) {
			return exiterr.New(workorder.ExitGit, fmt.Errorf("branch %s of repository %s excludes a branch %s", name, r.Path, branch),
				"rename it: `git -C "+r.Path+" branch -m "+name+" NAME`")
		}
	}
	return nil
}

// Bundle writes the repository's branches and tags to a file, with their commits and the commit of base, for a sandbox without
// access to the host.
func (r *Repo) Bundle(ctx context.Context, file, base string) error {
	ctx, cancel := context.WithTimeout(ctx, bundleTimeout)
	defer cancel()
	var more []string
	if !r.IsBranch(ctx, base) && git.ValidSHA(base) { // the commit may be on no branch
		more = []string{"HEAD", base}
	}
	if err := bundle(ctx, r.Path, file, more...); err != nil {
		return fmt.Errorf("copy the commits of %s: %w", r.Path, err)
	}
	return nil
}

// BundleHead returns the commit of base in a bundle of the repository.
func (r *Repo) BundleHead(ctx context.Context, file, base string) (string, error) {
	out, err := gitOut(ctx, r.Path, "bundle", "list-heads", file, workorder.BranchRef(base))
	if sha, _, _ := strings.Cut(strings.TrimSpace(out), " "); err == nil && sha != "" {
		return sha, nil
	}
	return r.Commit(ctx, base) // a tag or commit does not move
}

// bundle writes branches, tags and further revisions by full names: git omits a branch with the short name of a tag.
func bundle(ctx context.Context, dir, file string, more ...string) error {
	refs, err := gitOut(ctx, dir, "for-each-ref", "--format=%(refname)", "refs/heads/", "refs/tags/")
	if err != nil {
		return err
	}
	r := Git(dir)
	r.Stdin = refs + strings.Join(more, "\n")
	return r.Run(ctx, "bundle", "create", "--quiet", "--version=2", file, "--stdin")
}

const bundleTimeout = 15 * time.Minute // for gigabytes

// Submodule is a submodule of a commit.
type Submodule struct {
	Path   string // relative to the top
	Commit string
	Dir    string // its working tree on this machine with the commit; "" if missing
}

// Submodules returns the submodules of a base, without nested ones.
func (r *Repo) Submodules(ctx context.Context, base string) (all []Submodule, err error) {
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	commit, err := r.Commit(ctx, base)
	if err != nil {
		return nil, err
	}
	err = Git(r.Path).Each(ctx, func(record string) {
		head, path, ok := strings.Cut(record, "\t")
		fields := strings.Fields(head)
		const gitlink, parts = "160000", 3
		if !ok || len(fields) < parts || fields[0] != gitlink {
			return
		}
		s := Submodule{Path: path, Commit: fields[2]}
		if dir := filepath.Join(r.Path, path); !r.Bare && filepath.IsLocal(path) && bounds(ctx, dir) == nil && has(ctx, dir, s.Commit) {
			s.Dir = dir
		}
		all = append(all, s)
	}, "ls-tree", "-r", "-z", "--full-tree", "--end-of-options", commit)
	if err != nil {
		return nil, fmt.Errorf("list the submodules of %s: %w", r.Path, err)
	}
	return all, nil
}

// has reports whether the repository of dir itself, not of a parent, has a commit.
func has(ctx context.Context, dir, commit string) bool {
	top, err := gitOut(ctx, dir, "rev-parse", "--show-toplevel")
	if err != nil || resolved(strings.TrimSuffix(top, "\n")) != resolved(dir) {
		return false
	}
	_, err = gitOut(ctx, dir, "cat-file", "-e", commit+"^{commit}")
	return err == nil
}

// Bundle writes a bundle for a clone at the submodule's commit.
func (s Submodule) Bundle(ctx context.Context, file string) error {
	ctx, cancel := context.WithTimeout(ctx, bundleTimeout)
	defer cancel()
	if s.Dir == "" {
		return errors.New("not checked out on this machine: run git submodule update --init")
	}
	// A bundle has only refs: in an up-to-date submodule HEAD is the commit.
	if err := bundle(ctx, s.Dir, file, "HEAD"); err != nil {
		return fmt.Errorf("copy the commits of %s: %w", s.Dir, err)
	}
	return nil
}

// RepoRoot returns the work tree or bare repository that contains a path, or "". It does not run git: an untrusted repository must not
// influence the answer.
func RepoRoot(path string) string { return repoAbove(RealPath(path)) }

// repoAbove returns the nearest work tree or bare repository among a path and its parents by name.
func repoAbove(path string) string {
	for at := path; ; at = filepath.Dir(at) {
		if _, err := os.Lstat(filepath.Join(at, ".git")); err == nil {
			return at
		}
		// A bare repository by git's rules: missing parts may be at the target of commondir.
		if _, err := os.Lstat(filepath.Join(at, "HEAD")); err == nil {
			for _, name := range []string{"objects", "commondir"} {
				if _, err := os.Lstat(filepath.Join(at, name)); err == nil {
					return at
				}
			}
		}
		if at == filepath.Dir(at) {
			return ""
		}
	}
}

// RepoOf returns the repository of a project file: the one that its path leads through, if the file really is in it. It is "" without
// one, and if a link leads out of that repository.
func RepoOf(file string) string {
	byName, root := repoAbove(filepath.Dir(AbsPath(file))), RepoRoot(file)
	if byName == "" || RealPath(byName) != root {
		return ""
	}
	return root
}

// ReposOf returns all repositories of a file: the one that its path leads through, and those that really contain the file and its
// directory.
func ReposOf(file string) (roots []string) {
	byName := repoAbove(filepath.Dir(AbsPath(file)))
	if byName != "" {
		byName = RealPath(byName)
	}
	for _, root := range []string{byName, RepoRoot(filepath.Dir(file)), RepoRoot(file)} {
		if root != "" && !slices.Contains(roots, root) {
			roots = append(roots, root)
		}
	}
	return roots
}

// Within reports whether a path is in a directory, after resolving links in both.
func Within(path, dir string) bool { return dir != "" && Below(RealPath(path), RealPath(dir)) }

// Below reports whether a path is in a directory, by name.
func Below(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// RealPath resolves the links of a path as far as the path exists.
func RealPath(path string) string {
	path = AbsPath(path)
	if r, err := filepath.EvalSymlinks(path); err == nil {
		return r
	}
	if dir := filepath.Dir(path); dir != path {
		return filepath.Join(RealPath(dir), filepath.Base(path))
	}
	return path
}

// AbsPath returns the absolute path without resolving links, or the path itself where the working directory is unknown.
func AbsPath(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// SameRemote reports whether two URLs name the same repository. It ignores user, default port, the suffix .git, and the protocol
// unless that is plain HTTP or git://.
func SameRemote(a, b string) bool {
	x, y := remote(a), remote(b)
	return x != "" && x == y
}

func remote(s string) string {
	host, path := "", ""
	if u, err := url.Parse(s); err == nil && u.Scheme != "" && u.Host != "" {
		host, path = u.Host, u.Path
		if u.Scheme == "http" || u.Scheme == "git" {
			host = u.Scheme + "://" + host // unencrypted: the token would be readable
		}
		for _, port := range []string{":22", ":80", ":443"} {
			host = strings.TrimSuffix(host, port)
		}
	} else if h, p, scp := strings.Cut(s, ":"); scp && !strings.Contains(h, "/") {
		host, path = h[strings.LastIndexByte(h, '@')+1:], p
	}
	if host == "" {
		return ""
	}
	return strings.ToLower(host) + "/" + strings.TrimSuffix(strings.Trim(path, "/"), ".git")
}

// BelongsTo reports whether repo, a path or a URL, is the repository of the working tree at top, or the one that top is a clone of.
func BelongsTo(ctx context.Context, repo, top string) bool {
	if filepath.IsAbs(repo) {
		return RepoRoot(repo) == top || Same(ctx, repo, top)
	}
	return IsClone(ctx, top, repo)
}

// IsClone reports whether the repository at dir has a remote with the URL.
func IsClone(ctx context.Context, dir, url string) bool {
	return slices.ContainsFunc(Remotes(ctx, dir), func(remote string) bool { return SameRemote(remote, url) })
}
