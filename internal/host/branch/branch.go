// Package branch saves the changes of a sandbox's clone as commits of a branch, in a bare repository of the state directory,
// and brings such commits, or a task's, into the user's repository.
package branch

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/host/lockfile"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Dir is the directory of the bare repositories, in the state directory.
const Dir = "repos"

// Names in repositories.
const (
	Remote = "sandbox"       // the name of the bare repository as a remote of the user's repository
	notes  = "sandbox-agent" // the notes ref that records the commands of each commit

	heads   = "refs/heads/"
	bases   = "refs/sandbox-agent/base/"
	earlier = "refs/sandbox-agent/earlier/"
	// inside is the prefix of the refs that map commits of a clone to commits of the branch: see record.
	inside = "refs/sandbox-agent/inside/"

	gitTime = time.Minute
)

var (
	// ErrNotFound means that a sandbox has no branch.
	ErrNotFound = errors.New("no branch")
	// ErrSeveral means that several repositories have a branch of the sandbox.
	ErrSeveral = errors.New("several repositories have a branch of it, and the current directory is in none of them")
	// ErrNotPublished means that the user's repository does not show a branch: it has moved, or has another remote named
	// Remote. The commits are saved in the bare repository.
	ErrNotPublished = errors.New("branch not shown in the repository")
)

// Store has the branches of a state directory.
type Store struct{ dir string }

// New returns the Store of a state directory. It creates nothing.
func New(state string) *Store { return &Store{filepath.Join(state, Dir)} }

// Branch is the branch of one sandbox.
type Branch struct {
	Sandbox string // the sandbox's name, and the branch's in the bare repository
	repo
}

// repo is a bare repository of branches.
type repo struct {
	Repo   string             // the user's repository
	Author workorder.Identity // who commits; zero means the user, by the repository's settings
	dir    string
}

// Clone is a sandbox's clone of the user's repository, whose changes are saved.
type Clone struct {
	*Branch
	in       ExecFunc
	cloneDir string // in the sandbox
}

// In returns the clone at directory dir of the sandbox. in runs commands there.
func (b *Branch) In(in ExecFunc, dir string) *Clone { return &Clone{b, in, dir} }

// Of returns the branch of a sandbox in a repository of this machine. The branch may not exist.
func (s *Store) Of(sandbox, userRepo string) *Branch {
	h := sha256.Sum256([]byte(userRepo))
	// A git config key has no "=" and no line break, and a file name at most 255 bytes.
	const most = 200
	base := strings.NewReplacer("=", "_", "\n", "_").Replace(filepath.Base(userRepo))
	return &Branch{
		Sandbox: sandbox,
		repo:    repo{Repo: userRepo, dir: filepath.Join(s.dir, fmt.Sprintf("%s-%x.git", base[:min(len(base), most)], h[:6]))},
	}
}

// Find returns the branch of a sandbox that may be removed: in repo, else in the only repository that has one of that name.
func (s *Store) Find(ctx context.Context, sandbox, repo string) (*Branch, error) {
	if repo != "" {
		if b := s.Of(sandbox, repo); exists(ctx, b) {
			return b, nil
		}
	}
	all, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	var found []*Branch
	for _, i := range all {
		if i.Sandbox == sandbox {
			found = append(found, i.Branch)
		}
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("sandbox %s: %w", sandbox, ErrNotFound)
	case 1:
		return found[0], nil
	}
	var repos []string
	for _, b := range found {
		repos = append(repos, b.Repo)
	}
	return nil, fmt.Errorf("sandbox %s: %w: %s", sandbox, ErrSeveral, strings.Join(repos, ", "))
}

// Info is a row of List.
type Info struct {
	*Branch `json:"-"`
	Name    string    `json:"name"`
	Repo    string    `json:"repo"`
	Title   string    `json:"title"`
	Created time.Time `json:"created"`
	Updated time.Time `json:"updated"`
	Head    string    `json:"head"`
}

// List returns all branches, the last changed one first.
func (s *Store) List(ctx context.Context) ([]Info, error) {
	dirs, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list branches: %w", err)
	}
	var all []Info
	for _, d := range dirs {
		if !d.IsDir() {
			continue // a lock file
		}
		b := repo{dir: filepath.Join(s.dir, d.Name())}
		if b.Repo, err = b.line(ctx, "config", "sandbox-agent.repo"); err != nil {
			continue // not complete yet
		}
		out, err := b.git().Output(
			ctx, "for-each-ref", "--sort=-committerdate",
			"--format=%(refname:strip=2)%00%(objectname)%00%(committerdate:unix)", heads,
		)
		if err != nil {
			return nil, fmt.Errorf("list branches: %w", err)
		}
		for l := range strings.Lines(string(out)) {
			f := strings.Split(strings.TrimSpace(l), "\x00")
			var at int64
			if _, err := fmt.Sscan(f[2], &at); err != nil {
				return nil, fmt.Errorf("list branches: %w", err)
			}
			i := Info{Branch: &Branch{f[0], b}, Name: f[0], Repo: b.Repo, Head: f[1], Updated: time.Unix(at, 0)}
			i.Title = i.Branch.Title(ctx)
			if at, err := i.line(ctx, "config", i.key("created")); err == nil {
				i.Created, _ = time.Parse(time.RFC3339, at) // only this package writes it
			}
			all = append(all, i)
		}
	}
	slices.SortStableFunc(all, func(a, b Info) int { return b.Updated.Compare(a.Updated) })
	return all, nil
}

func (b *Branch) key(name string) string { return "sandbox-agent." + b.Sandbox + "." + name }

func (b *repo) git() git.Repo { return git.Repo{Dir: b.dir, Bare: true, Untrusted: true} }

func (b *repo) line(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, gitTime)
	defer cancel()
	out, err := b.git().Output(ctx, args...)
	return strings.TrimSpace(string(out)), err
}

func (b *repo) resolve(ctx context.Context, ref string) string {
	sha, _ := b.line(ctx, "rev-parse", "--verify", "--quiet", ref+"^{commit}") // empty if the ref does not exist
	return sha
}

func exists(ctx context.Context, b *Branch) bool {
	_, err := os.Stat(b.dir)
	return err == nil && b.resolve(ctx, heads+b.Sandbox) != ""
}

// Head returns the branch's last commit; "" without a branch.
func (b *Branch) Head(ctx context.Context) string { return b.resolve(ctx, heads+b.Sandbox) }

// Base returns the user's commit at which the branch began; "" without a branch.
func (b *Branch) Base(ctx context.Context) string { return b.resolve(ctx, bases+b.Sandbox) }

// Clone returns the name of the branch's clone and the commit at which it was made, in the format of the clone's own
// file; "" without a clone.
func (b *Branch) Clone(ctx context.Context) string {
	name, _ := b.line(ctx, "config", b.key("clone")) // empty if not set
	if base := b.Base(ctx); name != "" && base != "" {
		return name + " " + base
	}
	return ""
}

// lock locks the bare repository, which need not exist.
func (b *Branch) lock(ctx context.Context) (func(), error) {
	if err := os.MkdirAll(filepath.Dir(b.dir), 0o700); err != nil {
		return nil, fmt.Errorf("lock the branches of %s: %w", b.Repo, err)
	}
	l, err := lockfile.Take(ctx, b.dir+".lock")
	if err != nil {
		return nil, fmt.Errorf("lock the branches of %s: %w", b.Repo, err)
	}
	// A killed git leaves its locks; only this package writes here.
	for _, name := range []string{"config", "packed-refs", heads + b.Sandbox, bases + b.Sandbox, inside + b.Sandbox, "refs/notes/" + notes} {
		left := filepath.Join(b.dir, filepath.FromSlash(name)+".lock")
		if st, err := os.Stat(left); err == nil && time.Since(st.ModTime()) > gitTime {
			_ = os.Remove(left) // if it fails, git reports the lock
		}
	}
	b.sweep()
	return l.Release, nil
}

// sweep removes the temporary files of refused packs. The caller holds the lock, and only this package writes packs here.
func (b *repo) sweep() {
	const pack = "objects/pack"
	files, _ := os.ReadDir(filepath.Join(b.dir, pack)) // may not exist
	for _, f := range files {
		if strings.HasPrefix(f.Name(), "tmp_") {
			_ = os.Remove(filepath.Join(b.dir, pack, f.Name())) // the next sweep tries again
		}
	}
}

// turnTime bounds the wait for Lock: each holder may save.
const turnTime = 2 * saveTime

// Lock prevents other clients from changing files of the sandbox in several steps, until done. Saves continue.
func (b *Branch) Lock(ctx context.Context) (done func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, turnTime, fmt.Errorf("others changed files of sandbox %s for %s", b.Sandbox, turnTime))
	defer cancel()
	if err = os.MkdirAll(filepath.Dir(b.dir), 0o700); err != nil {
		return nil, fmt.Errorf("change files of sandbox %s: %w", b.Sandbox, err)
	}
	l, err := lockfile.Take(ctx, b.dir+"."+b.Sandbox+".lock")
	if err != nil {
		return nil, fmt.Errorf("change files of sandbox %s: %w", b.Sandbox, err)
	}
	return l.Remove, nil
}

// open creates the bare repository if it is missing, and returns the name of the branch's clone. The caller holds the lock.
func (b *Branch) open(ctx context.Context) (clone string, err error) {
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		return "", fmt.Errorf("make the repository of branches: %w", err)
	}
	whole := false
	set, _ := b.git().Output(ctx, "config", "--null", "--get-regexp", `^sandbox-agent\.`) // empty for a missing repository
	for entry := range strings.SplitSeq(string(set), "\x00") {
		switch key, value, _ := strings.Cut(entry, "\n"); key {
		case "sandbox-agent.repo":
			whole = true
		case b.key("clone"):
			clone = value
		}
	}
	if whole {
		return clone, nil
	}
	for _, args := range [][]string{
		{"init", "--quiet", "--bare", "--template="}, {"config", "gc.auto", "0"}, {"config", "sandbox-agent.repo", b.Repo},
	} {
		if err := b.git().Run(ctx, args...); err != nil {
			return "", fmt.Errorf("make the repository of branches: %w", err)
		}
	}
	return "", nil
}

// tip is the state of a branch: its last commit with the tree, its base, and the clone's HEAD at the last save with the
// commit that records it; "" for each one that is missing.
type tip struct{ head, tree, base, inside, record string }

func (b *Branch) at(ctx context.Context) (p tip) {
	// A missing ref is not listed.
	out, _ := b.line(
		ctx, "for-each-ref", "--format=%(refname) %(objectname) %(tree) %(subject)", heads+b.Sandbox, bases+b.Sandbox,
		inside+b.Sandbox,
	)
	for l := range strings.Lines(out) {
		f := strings.Fields(l)
		const all = 4
		switch {
		case len(f) < all-1:
		case f[0] == heads+b.Sandbox:
			p.head, p.tree = f[1], f[2]
		case f[0] == bases+b.Sandbox:
			p.base = f[1]
		case f[0] == inside+b.Sandbox && len(f) == all:
			p.record, p.inside = f[1], strings.TrimPrefix(f[3], "-")
		}
	}
	return p
}

// errNoBase means that this machine has no record of the commit that a clone was made at.
var errNoBase = errors.New("the commit that its clone was made at is not recorded: `sandbox-agent reset --force` recreates the clone")

// Cloned records the user's commit at which a clone for the sandbox is made. The branch begins there.
func (b *Branch) Cloned(ctx context.Context, commit string) error {
	unlock, err := b.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	b.forget()
	if _, err = b.open(ctx); err == nil {
		err = b.git().Run(ctx, "config", b.key("cloned"), commit)
	}
	if err != nil {
		return fmt.Errorf("record the base of sandbox %s: %w", b.Sandbox, err)
	}
	return nil
}

// ClonedAt returns the user's commit at which the sandbox's clone was made; "" if it is not recorded.
func (b *Branch) ClonedAt(ctx context.Context) string {
	at, _ := b.line(ctx, "config", b.key("cloned")) // empty if not set
	return cmp.Or(at, b.Base(ctx))                  // older versions recorded it with the first save
}

// begin creates the branch at the commit at which the clone was made, with one empty commit. It keeps an existing branch
// on a ref: see SaveResult.PreviousRef. The caller holds the lock.
func (b *Clone) begin(ctx context.Context, clone, title string) (s SaveResult, err error) {
	what := "begin the branch of sandbox " + b.Sandbox
	key := b.key("base-" + strings.ToLower(clone))
	base, _ := b.line(ctx, "config", key) // set if the clone had a branch before, as one restored from a snapshot
	if base = cmp.Or(base, b.ClonedAt(ctx)); !git.ValidSHA(base) {
		return s, fmt.Errorf("%s: %w", what, errNoBase)
	}
	if old := b.Head(ctx); old != "" {
		s.Recreated, s.PreviousRef = true, earlier+b.Sandbox+"/"+time.Now().UTC().Format("20060102-150405.000")
		if err := b.git().Run(ctx, "update-ref", s.PreviousRef, old, zero(old)); err != nil {
			return s, fmt.Errorf("%s: %w", what, err)
		}
	}
	// The objects come from the user's own repository, so no size limits apply.
	trusted := b.git()
	trusted.Untrusted = false
	if err := trusted.Run(
		ctx, "-c", "protocol.version=2", "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", b.Repo,
		"+"+base+":"+bases+b.Sandbox,
	); err != nil {
		return s, fmt.Errorf("%s: %w", what, err)
	}
	set := func(key, value string) error { return b.git().Run(ctx, "config", b.key(key), value) }
	if err := errors.Join(set("title", title), set("created", time.Now().UTC().Format(time.RFC3339))); err != nil {
		return s, fmt.Errorf("%s: %w", what, err)
	}
	subject := "Create sandbox " + b.Sandbox
	if title != "" {
		subject += ": " + title
	}
	at := b.at(ctx)
	s.Commit, err = b.commitTree(ctx, b.identity(ctx), base+"^{tree}", subject, base)
	if err == nil {
		err = b.move(ctx, at, s.Commit, &record{head: base, became: [][2]string{{base, s.Commit}}})
	}
	if err != nil {
		return s, fmt.Errorf("%s: %w", what, err)
	}
	// This comes last: a save after a killed process begins the branch again, and does not continue on the commits of another clone.
	if err := errors.Join(b.git().Run(ctx, "config", key, base), set("clone", clone)); err != nil {
		return s, fmt.Errorf("%s: %w", what, err)
	}
	return s, nil
}

// Unmerged reports whether the branch has commits that exist nowhere else: on no other branch, tag or remote of the user's repository,
// and under no other ref here, such as a checkpoint. For the base, the reflogs of the user's repository count, too.
func (b *Branch) Unmerged(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, gitTime)
	defer cancel()
	head, base := b.Head(ctx), b.Base(ctx)
	if head == "" {
		return false, nil
	}
	if base == "" {
		return b.only(ctx, false, head)
	}
	// The first save makes a commit although nothing has changed.
	was, werr := b.line(ctx, "rev-parse", base+"^{tree}")
	if trees, err := b.line(ctx, "log", "--format=%T", head, "^"+base); err == nil && werr == nil && trees == was {
		head = base
	}
	own, err := b.only(ctx, false, head, "^"+base)
	if own || err != nil {
		return own, err
	}
	return b.only(ctx, true, base)
}

// only reports whether only the branch's own refs reach the commits. With past, the reflogs of the user's repository count, too.
func (b *Branch) only(ctx context.Context, past bool, commits ...string) (bool, error) {
	args := append([]string{"rev-list", "--count"}, commits...)
	args = append(args, "--not")
	out, err := b.line(
		ctx,
		append(slices.Clone(args), "--exclude="+heads+b.Sandbox, "--exclude="+bases+b.Sandbox, "--exclude="+inside+b.Sandbox,
			"--glob=refs/*")...) // --all includes HEAD, which may be this branch
	if err != nil {
		return true, fmt.Errorf("look for the commits of sandbox %s: %w", b.Sandbox, err)
	}
	if out == "0" {
		return false, nil
	}
	args = append(args, "--exclude=refs/remotes/"+Remote+"/"+b.Sandbox, "--all")
	if past {
		args = append(args, "--reflog")
	}
	// A missing repository has none of the commits.
	list, err := localrepo.Git(b.Repo).Output(ctx, args...)
	return err != nil || strings.TrimSpace(string(list)) != "0", nil
}

// Delete removes the branch here and in the user's repository. Merged commits stay there.
func (b *Branch) Delete(ctx context.Context) error {
	unlock, err := b.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	what := "delete the branch of sandbox " + b.Sandbox
	for _, ref := range []string{heads + b.Sandbox, bases + b.Sandbox, inside + b.Sandbox} {
		if err := b.git().Run(ctx, "update-ref", "-d", ref); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	_ = b.git().Run(ctx, "config", "--remove-section", "sandbox-agent."+b.Sandbox) // fails if there is no such section
	if _, err := os.Stat(b.Repo); err != nil {
		return nil
	}
	if _, other := b.otherRemote(ctx); other { // the user's own remote
		return nil
	}
	if err := localrepo.Git(b.Repo).Run(ctx, "update-ref", "-d", "refs/remotes/"+Remote+"/"+b.Sandbox); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// DescendsFrom reports whether the branch's head is the commit or descends from it.
func (b *Branch) DescendsFrom(ctx context.Context, commit string) bool {
	return git.ValidSHA(commit) && b.git().Run(ctx, "merge-base", "--is-ancestor", commit, heads+b.Sandbox) == nil
}
