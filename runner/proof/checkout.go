package proof

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

const (
	// checkoutTime bounds the creation of one checkout. A tree of 100,000 files takes some 20 s.
	checkoutTime = 5 * time.Minute
	// maxFiles and maxBytes bound a tree that is written out: a few objects can reference each other to any size.
	maxFiles = 1_000_000
	maxBytes = 32 << 30
	// maxRefs bounds the branches and tags in a checkout.
	maxRefs = 5000
)

func (r *stores) newStores() (string, error) {
	if err := os.MkdirAll(r.Dir, 0o755); err != nil {
		return "", fmt.Errorf("create a directory for objects: %w", err)
	}
	dir, err := os.MkdirTemp(r.Dir, "proof-")
	if err != nil {
		return "", fmt.Errorf("create a directory for objects: %w", err)
	}
	err = os.Chmod(dir, 0o755) // MkdirTemp makes it private
	for _, s := range []*side{r.base, r.head} {
		s.store = git.Repo{Dir: filepath.Join(dir, s.name+".git"), Bare: true, Env: []string{"GIT_NO_REPLACE_OBJECTS=1"}}
		err = errors.Join(err, os.Mkdir(s.store.Dir, 0o755))
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("create a directory for objects: %w", err), os.RemoveAll(dir))
	}
	return dir, nil
}

func (r *stores) removeStores(dir string) {
	if err := os.RemoveAll(dir); err != nil {
		r.warn("could not remove %s: %v", dir, err)
	}
}

// show lets the user read the store of a side. Base's commands must not find head's commits.
func (r *stores) show(s *side) error {
	mode := os.FileMode(0o700)
	if s == r.head {
		mode = 0o755
	}
	return os.Chmod(r.head.store.Dir, mode)
}

// fill brings both commits into the stores. index-pack recomputes the ids of the agent's objects, so that a damaged one
// is missing.
func (r *stores) fill(ctx context.Context) error {
	var below, base string // base's store: its alternate, and the revisions that it adds
	head := r.head.commit + "\n"
	switch c := r.base.commit; {
	case c == "":
	case has(ctx, r.Mirror, c):
		r.mirrored = true
		head += "^" + c + "\n"
	case has(ctx, r.Objects, c): // the remote has received it since, or has it only on the task's own branch
		tips, err := r.Mirror.Output(ctx, "for-each-ref", "--count="+strconv.Itoa(maxRefs), "--format=^%(objectname)")
		if err != nil {
			return fmt.Errorf("nothing was run: list the refs of the remote: %w", err)
		}
		r.mirrored = len(tips) > 0
		base = c + "\n" + string(tips)
		head += "^" + c + "\n"
	default:
		r.base.missing = true
	}
	if r.mirrored {
		below = r.Mirror.Dir
	}
	if err := r.pack(ctx, r.base.store, below, base); err != nil {
		return err
	}
	if err := r.pack(ctx, r.head.store, r.base.store.Dir, head); err != nil {
		return err
	}
	if !has(ctx, r.head.store, r.head.commit) {
		return fmt.Errorf("nothing was run: no valid commit %.12s", r.head.commit)
	}
	for _, s := range []*side{r.head, r.base} {
		if s.commit == "" || s.missing {
			continue
		}
		if err := s.measure(ctx); err != nil {
			return fmt.Errorf("nothing was run: read the files of %s: %w", s.name, err)
		}
	}
	return nil
}

func (r *stores) pack(ctx context.Context, store git.Repo, below, revisions string) error {
	if err := store.Run(ctx, "init", "--quiet", "--bare", "--template=", objectFormat(r.head.commit), "--", store.Dir); err != nil {
		return fmt.Errorf("nothing was run: create a repository: %w", err)
	}
	if below != "" {
		alternates := filepath.Join(below, "objects") + "\n"
		if err := os.WriteFile(filepath.Join(store.Dir, "objects/info/alternates"), []byte(alternates), 0o644); err != nil {
			return fmt.Errorf("nothing was run: prepare a repository: %w", err)
		}
	}
	if revisions == "" {
		return nil
	}
	from := store
	from.Env = append(slices.Clone(from.Env), "GIT_ALTERNATE_OBJECT_DIRECTORIES="+filepath.Join(r.Objects.Dir, "objects"))
	from.Stdin = revisions
	packs := filepath.Join(store.Dir, "objects/pack")
	if err := from.Run(ctx, "pack-objects", "--quiet", "--revs", "--delta-base-offset", filepath.Join(packs, "pack")); err != nil {
		return fmt.Errorf("nothing was run: read the commits: %w", err)
	}
	files, err := filepath.Glob(packs + "/pack-*")
	if err != nil {
		return fmt.Errorf("nothing was run: %w", err)
	}
	for _, f := range files {
		if strings.HasSuffix(f, ".pack") {
			continue
		}
		if err := os.Remove(f); err != nil { // an index of unverified ids
			return fmt.Errorf("nothing was run: %w", err)
		}
	}
	for _, f := range files {
		if !strings.HasSuffix(f, ".pack") {
			continue
		}
		if err := store.Run(ctx, "index-pack", f); err != nil {
			return fmt.Errorf("nothing was run: verify the commits: %w", err)
		}
	}
	return nil
}

func has(ctx context.Context, repo git.Repo, commit string) bool {
	return repo.Run(ctx, "cat-file", "-e", commit+"^{commit}") == nil
}

func objectFormat(commit string) string {
	if len(commit) == 64 {
		return "--object-format=sha256"
	}
	return "--object-format=sha1"
}

func (r *stores) checkout(ctx context.Context, s *side) error {
	ctx, cancel := context.WithTimeoutCause(ctx, checkoutTime, fmt.Errorf("it took longer than %s", checkoutTime))
	defer cancel()
	if err := r.settle(ctx, s); err != nil {
		return err
	}
	t := r.checkoutOf(s)
	t.Tree = false // it is made here
	if err := t.Run(ctx, "init", "--quiet", "--template=", "--initial-branch=main", objectFormat(s.commit), "--", s.tree); err != nil {
		return err
	}
	t.Tree = true
	if err := r.begin(ctx, s); err != nil {
		return err
	}
	if err := r.asUser(
		ctx, s, s.tree, nil, `mkdir -p .git/objects/info && printf '%s\n' "$1" >.git/objects/info/alternates`,
		filepath.Join(s.store.Dir, "objects"),
	); err != nil {
		return err
	}
	if err := r.remote(ctx, t); err != nil {
		return err
	}
	files := []string{"checkout", "--quiet", "--force", "--detach", s.commit}
	err := t.Run(ctx, files...)
	if err == nil || ctx.Err() != nil {
		return err
	}
	// A filter or an encoding failed, which is legitimate: check out the files exactly as in the commit.
	if rerr := r.asUser(
		ctx, s, s.tree, nil, `mkdir -p .git/info && echo '* -text -ident -filter -working-tree-encoding' >.git/info/attributes`,
	); rerr != nil {
		return errors.Join(err, rerr)
	}
	if rerr := t.Run(ctx, files...); rerr != nil {
		return errors.Join(err, rerr)
	}
	r.warn("%s was checked out without filters, because with filters it failed: %v", s.name, err)
	return nil
}

func (r *stores) checkoutOf(s *side) git.Repo {
	return git.Repo{Dir: s.tree, Tree: true, User: s.user, Env: slices.Concat([]string{"HOME=" + s.home}, git.NoUser(), r.gitEnv)}
}

// measure rejects a tree that is too large to write.
func (s *side) measure(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var files int
	var size int64
	err := s.store.Each(ctx, func(rec string) {
		meta, _, _ := strings.Cut(rec, "\t")
		if f := strings.Fields(meta); len(f) == 4 {
			n, err := strconv.ParseInt(f[3], 10, 64)
			if err != nil {
				n = 0 // a submodule has none
			}
			files, size = files+1, size+n
		}
		if files > maxFiles || size > maxBytes {
			cancel(fmt.Errorf("its tree has more than %d files or %d GiB", maxFiles, maxBytes>>30))
		}
	}, "ls-tree", "-r", "-l", "-z", s.commit)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// begin gives git the index of the files that the work tree already has.
func (r *stores) begin(ctx context.Context, s *side) error {
	s.done = 0
	if s.room == nil {
		return nil
	}
	b := s.room.StartState()
	s.done = b.Done
	if len(b.Index) == 0 {
		return nil
	}
	_, err := proc.Output(ctx, proc.Spec{
		Argv: []string{"/bin/sh", "-c", "umask 022; cat >.git/index"}, Dir: s.tree, User: s.user, Env: []string{"LC_ALL=C.UTF-8"},
		Stdin: bytes.NewReader(b.Index),
	})
	return err
}

// settle finds or creates the side's directory as the user: root cannot create a directory in a home without trusting
// the home. It opens the handle on the checkout before code of the commit runs, and checks its owner.
func (r *stores) settle(ctx context.Context, s *side) error {
	if s.room != nil {
		b := s.room.StartState()
		s.tree, s.home = b.Tree, b.Home
		return r.open(s)
	}
	name := filepath.Base(r.Workspace) // some tools name a project after its directory
	if r.Workspace == "" || name == "home" {
		name = "tree"
	}
	var out string
	err := r.asUser(
		ctx, s, "/", &out, `umask 022; p=$(mktemp -d -- "$1/proof.XXXXXXXX") && chmod 755 "$p" && mkdir "$p/home" "$p/$2" && printf %s "$p"`,
		r.Home, name,
	)
	if err != nil {
		return fmt.Errorf("create a directory for the checkout in %s: %w", r.Home, err)
	}
	if !strings.HasPrefix(out, r.Home+"/proof.") || filepath.Dir(out) != r.Home {
		return fmt.Errorf("create a directory for the checkout in %s: mktemp answered %q", r.Home, out)
	}
	s.place, s.tree, s.home = out, filepath.Join(out, name), filepath.Join(out, "home")
	return r.open(s)
}

func (r *stores) open(s *side) error {
	root, err := os.OpenRoot(s.outside(s.tree))
	if err != nil {
		return fmt.Errorf("open the checkout: %w", err)
	}
	s.root = root
	fi, err := root.Stat(".")
	if err != nil {
		return fmt.Errorf("open the checkout: %w", err)
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); !ok || st.Uid != r.uid() {
		return fmt.Errorf("open the checkout: the user does not own %s", s.tree)
	}
	return nil
}

func (r *notes) uid() uint32 {
	if r.User != nil {
		return r.User.UID
	}
	return uint32(os.Geteuid())
}

// remote configures the remote's name and refs, for commands that compare with a branch or read a version from a tag.
func (r *stores) remote(ctx context.Context, t git.Repo) error {
	if r.Order.CloneURL != "" {
		if err := t.Run(ctx, "config", "remote.origin.url", r.Order.CloneURL); err != nil {
			return err
		}
		if err := t.Run(ctx, "config", "remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*"); err != nil {
			return err
		}
	}
	if !r.mirrored {
		return nil
	}
	out, err := r.Mirror.Output(
		ctx, "for-each-ref", "--count="+strconv.Itoa(maxRefs), "--format=%(objectname) %(refname)", "refs/heads", "refs/tags",
	)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) != 2 {
			continue
		}
		name := f[1]
		if branch, ok := strings.CutPrefix(name, "refs/heads/"); ok {
			name = "refs/remotes/origin/" + branch
		}
		t.Stdin += "create " + name + " " + f[0] + "\n"
	}
	if t.Stdin == "" {
		return nil
	}
	return t.Run(ctx, "update-ref", "--stdin")
}
