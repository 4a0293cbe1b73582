// Package branch saves the changes that commands make in a sandbox's clone as commits of a branch. The branch is in a bare
// repository in the state directory, which is the remote `sandbox` of the user's repository.
//
// A sandbox only provides files, and the messages and authors of commits made there. This package creates the commits.
//
// The script of a save is sent with each save instead of being part of the guest, so that it works in older sandboxes.
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
)

// Folder has the bare repositories, in a state folder.
const Folder = "repos"

const (
	// Remote is the name of our repository in the user's.
	Remote = "sandbox"
	// notes has what ran, beside the commits.
	notes = "sandbox-agent"

	heads   = "refs/heads/"
	bases   = "refs/sandbox-agent/base/"
	earlier = "refs/sandbox-agent/earlier/"
	// inside has a commit that says what the commits of the clone became: see record.
	inside = "refs/sandbox-agent/inside/"

	gitTime = time.Minute
)

var (
	// ErrNotFound means that a sandbox has no branch.
	ErrNotFound = errors.New("no branch")
	// ErrNotPublished means that the user's repository does not show a branch: it has moved, or has another remote of that
	// name. What is saved is in ours.
	ErrNotPublished = errors.New("it is not shown in the repository")
)

// Store is the part of a state folder that has branches.
type Store struct{ dir string }

// New returns that of a state folder. It makes nothing.
func New(state string) *Store { return &Store{filepath.Join(state, Folder)} }

// Branch is that of one sandbox.
type Branch struct {
	// Sandbox is the sandbox's name, and the branch's in the bare repository.
	Sandbox string
	repo
}

// repo is a bare repository of branches.
type repo struct {
	// Repo is the user's repository.
	Repo string
	dir  string
}

// Clone is a sandbox's clone of the user's repository, whose changes are saved.
type Clone struct {
	*Branch
	in       ExecFunc
	cloneDir string // of the clone, in the sandbox
}

// In returns the clone at a directory of the sandbox. in runs commands there.
func (b *Branch) In(in ExecFunc, dir string) *Clone { return &Clone{b, in, dir} }

// Of is the branch of a sandbox in a repository of this machine, whether it is there or not.
func (s *Store) Of(sandbox, userRepo string) *Branch {
	h := sha256.Sum256([]byte(userRepo))
	// A setting's name has no "=" and no line break, and a file's name at most 255 bytes.
	const most = 200
	base := strings.NewReplacer("=", "_", "\n", "_").Replace(filepath.Base(userRepo))
	return &Branch{
		Sandbox: sandbox,
		repo:    repo{Repo: userRepo, dir: filepath.Join(s.dir, fmt.Sprintf("%s-%x.git", base[:min(len(base), most)], h[:6]))},
	}
}

// Find finds the branch of a sandbox that may be gone: in the repository repo, "" meaning any, where one of that name is once only.
func (s *Store) Find(ctx context.Context, sandbox, repo string) (*Branch, error) {
	if repo != "" {
		if b := s.Of(sandbox, repo); b.there(ctx) {
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
	return nil, fmt.Errorf(
		"sandbox %s: %w in this folder's repository, and %d others have one: go to the one that you mean", sandbox, ErrNotFound,
		len(found),
	)
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

// List is all branches, the last that was changed first.
func (s *Store) List(ctx context.Context) ([]Info, error) {
	dirs, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list branches: %w", err)
	}
	var all []Info
	for _, d := range dirs {
		if !d.IsDir() {
			continue // a lock
		}
		b := repo{dir: filepath.Join(s.dir, d.Name())}
		if b.Repo, err = b.line(ctx, "config", "sandbox-agent.repo"); err != nil {
			continue // it is not whole yet
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

// key is the name of a setting about the branch.
func (b *Branch) key(name string) string { return "sandbox-agent." + b.Sandbox + "." + name }

func (b *repo) git() git.Repo { return git.Repo{Dir: b.dir, Bare: true, Untrusted: true} }

func (b *repo) line(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, gitTime)
	defer cancel()
	out, err := b.git().Output(ctx, args...)
	return strings.TrimSpace(string(out)), err
}

func (b *repo) resolve(ctx context.Context, ref string) string {
	sha, _ := b.line(ctx, "rev-parse", "--verify", "--quiet", ref+"^{commit}") // of none there is none
	return sha
}

func (b *Branch) there(ctx context.Context) bool {
	_, err := os.Stat(b.dir)
	return err == nil && b.resolve(ctx, heads+b.Sandbox) != ""
}

// Head and Base are the branch's last commit and the user's one that it began at.
func (b *Branch) Head(ctx context.Context) string { return b.resolve(ctx, heads+b.Sandbox) }

// Base is the user's commit that the branch began at.
func (b *Branch) Base(ctx context.Context) string { return b.resolve(ctx, bases+b.Sandbox) }

// Clone is the name of the clone that the branch is of and the commit that it was made at, as the clone's file has
// them; "" where there is none.
func (b *Branch) Clone(ctx context.Context) string {
	name, _ := b.line(ctx, "config", b.key("clone")) // of none there is none
	if base := b.Base(ctx); name != "" && base != "" {
		return name + " " + base
	}
	return ""
}

// lock keeps others from changing the repository, which need not be there.
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
			_ = os.Remove(left) // git says it otherwise
		}
	}
	b.sweep()
	return l.Release, nil
}

// sweep removes the temporary files of packs that were refused or killed. Nothing else writes packs here, and the caller holds the lock.
func (b *repo) sweep() {
	const pack = "objects/pack"
	files, _ := os.ReadDir(filepath.Join(b.dir, pack)) // there may be none
	for _, f := range files {
		if strings.HasPrefix(f.Name(), "tmp_") {
			_ = os.Remove(filepath.Join(b.dir, pack, f.Name())) // the next one does
		}
	}
}

// turnTime bounds the wait for others' turns, which have a save each.
const turnTime = 2 * saveTime

// Lock keeps others from changing files of the sandbox by several steps, until done. Saves go on meanwhile.
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

// open makes our repository if it is not there, and returns the name of the clone that the branch is of. The lock is the caller's.
func (b *Branch) open(ctx context.Context) (clone string, err error) {
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		return "", fmt.Errorf("make the repository of branches: %w", err)
	}
	whole := false
	set, _ := b.git().Output(ctx, "config", "--null", "--get-regexp", `^sandbox-agent\.`) // one that is not there has none
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

// tip is where a branch is: its last commit with its tree, its base, and the clone's HEAD at the last save with the
// record of it; each "" where there is none.
type tip struct{ head, tree, base, inside, record string }

func (b *Branch) at(ctx context.Context) (p tip) {
	// Of none there is none.
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

// Cloned records the user's commit at which a clone for the sandbox is made. Branches begin there, whatever the sandbox says.
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

// ClonedAt is the user's commit at which the sandbox's clone was made; "" if there is no record of it.
func (b *Branch) ClonedAt(ctx context.Context) string {
	at, _ := b.line(ctx, "config", b.key("cloned")) // one without has none
	return cmp.Or(at, b.Base(ctx))                  // older versions recorded it with the first save
}

// begin makes the branch of a sandbox at the commit that its clone was made at, with one empty commit. One that is
// there stays as Earlier. The lock is the caller's.
func (b *Clone) begin(ctx context.Context, clone, title string) (s SaveResult, err error) {
	what := "begin the branch of sandbox " + b.Sandbox
	key := b.key("base-" + strings.ToLower(clone))
	base, _ := b.line(ctx, "config", key) // of a clone that is back, as from a snapshot
	if base = cmp.Or(base, b.ClonedAt(ctx)); !git.ValidSHA(base) {
		return s, fmt.Errorf("%s: %w", what, errNoBase)
	}
	if old := b.Head(ctx); old != "" {
		s.Recreated, s.PreviousRef = true, earlier+b.Sandbox+"/"+time.Now().UTC().Format("20060102-150405.000")
		if err := b.git().Run(ctx, "update-ref", s.PreviousRef, old, zero(old)); err != nil {
			return s, fmt.Errorf("%s: %w", what, err)
		}
	}
	// The user's repository serves any commit that it has: those are as large as the user made them.
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
	// This comes last: a process killed before it starts again, and does not continue on the commits of another clone.
	if err := errors.Join(b.git().Run(ctx, "config", key, base), set("clone", clone)); err != nil {
		return s, fmt.Errorf("%s: %w", what, err)
	}
	return s, nil
}

// Unmerged reports whether the branch has commits that exist nowhere else: on no other branch, tag or remote of the
// user's repository, and under no other name in ours, such as a checkpoint. Those that it began at, the user's
// repository may also have under a name that has moved on.
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

// only reports whether commits are under the branch's own names alone. With past set, what the user's names were at counts as well.
func (b *Branch) only(ctx context.Context, past bool, commits ...string) (bool, error) {
	args := append([]string{"rev-list", "--count"}, commits...)
	args = append(args, "--not")
	out, err := b.line(
		ctx,
		append(slices.Clone(args), "--exclude="+heads+b.Sandbox, "--exclude="+bases+b.Sandbox, "--exclude="+inside+b.Sandbox,
			"--glob=refs/*")...) // --all has HEAD as well, which may be this branch
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
	// A repository that is not there or does not show the branch has none of its commits.
	list, err := localrepo.Git(b.Repo).Output(ctx, args...)
	return err != nil || strings.TrimSpace(string(list)) != "0", nil
}

// Delete removes the branch here and in the user's repository. Commits that are merged there stay there.
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
	_ = b.git().Run(ctx, "config", "--remove-section", "sandbox-agent."+b.Sandbox) // one without has none
	if _, err := os.Stat(b.Repo); err != nil {                                     // it is gone, or not there now
		return nil
	}
	if _, other := b.otherRemote(ctx); other { // what it shows is the user's
		return nil
	}
	if err := localrepo.Git(b.Repo).Run(ctx, "update-ref", "-d", "refs/remotes/"+Remote+"/"+b.Sandbox); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// DescendsFrom reports whether the branch has a commit of the user's in its history, or is at it.
func (b *Branch) DescendsFrom(ctx context.Context, commit string) bool {
	return git.ValidSHA(commit) && b.git().Run(ctx, "merge-base", "--is-ancestor", commit, heads+b.Sandbox) == nil
}
