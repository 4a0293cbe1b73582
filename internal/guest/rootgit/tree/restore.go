package tree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/claim"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const workRef = "refs/restore/work"

// fit tells how a checkpoint relates to the branch on the remote.
type fit struct {
	start string // first commit for the branch
	tree  string // tree for the work tree; empty without uncommitted changes
	keep  bool   // it does not fit and is kept on a ref
	err   error  // the reason why it cannot be used at all
}

// Checkout clones the mirror into the empty work tree as the agent's user, on the task's branch, with copies of the
// objects. In a continued task it extracts the last checkpoint; index and HEAD stay as after a checkout. Restored is
// nil in a new task.
func (s *Checkpointer) Checkout(ctx context.Context, c *claim.Result) (*workorder.Restored, error) {
	f := fit{start: c.Head}
	if c.Checkpoint != "" {
		var err error
		if f, err = s.fits(ctx, c); err != nil {
			if ctx.Err() != nil {
				return nil, err
			}
			f = fit{start: c.Head, keep: true, err: err}
		}
	}
	early := s.early
	if early == nil {
		early = func() (git.Repo, error) { return s.clone(ctx, c.Base) }
	}
	t, err := early()
	if err != nil {
		return nil, err
	}
	// These commits are on no branch of the mirror.
	var more []string
	if f.start != c.Head || f.tree != "" {
		more = append(more, workRef)
	}
	if c.Bundled {
		more = append(more, claim.BundleHeads+s.Ledger.Branch())
	}
	if len(more) > 0 {
		if err := t.Run(
			ctx,
			append([]string{"fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--", s.Repos.Mirror().Dir}, more...)...); err != nil {
			return nil, err
		}
	}
	if s.Lay != nil {
		if err := s.below(ctx, c.Base, s.prepared(ctx, c.Base, f.start)); err != nil {
			return nil, err
		}
	}
	s.restored = f
	if err := s.begin(ctx, t, s.Ledger.Branch(), f.start); err != nil {
		return nil, err
	}
	if err := s.Repos.Connect(filepath.Join(s.Repos.Workspace, ".git/objects")); err != nil {
		return nil, err
	}
	s.Ledger.Start, s.Ledger.RestoredTree, s.Ledger.Keep = f.start, f.tree, c.Kept
	if !c.Continues {
		return nil, s.Ledger.Store()
	}
	r := &workorder.Restored{Head: f.start, Checkpoint: c.Checkpoint, Verified: true}
	if err := s.restore(ctx, c, f, r); err != nil {
		return r, err
	}
	return r, s.Ledger.Store()
}

// CloneEarly begins Checkout's clone while the task's lease is taken. The base branch must be that of the claim. The returned function
// waits until the clone has ended.
func CloneEarly(ctx context.Context, s *Checkpointer, base string) (wait func()) {
	var t git.Repo
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		t, err = s.clone(ctx, base)
	}()
	s.early = func() (git.Repo, error) {
		<-done
		return t, err
	}
	return func() { <-done }
}

// CheckoutStandalone is Checkout for a box that holds no lease: the commit of the base on a branch of that name.
func (s *Checkpointer) CheckoutStandalone(ctx context.Context, base, commit, branch string) error {
	t, err := s.clone(ctx, base)
	if err != nil {
		return err
	}
	return s.begin(ctx, t, branch, commit)
}

func (s *Checkpointer) clone(ctx context.Context, base string) (git.Repo, error) {
	t := s.Repos.Tree()
	t.Tree = false // not a work tree yet
	clone := []string{"clone", "--quiet", "--no-hardlinks", "--no-checkout", "--template="}
	if at, err := s.Repos.Mirror().Resolve(ctx, workorder.BranchRef(base)); err != nil {
		return t, err
	} else if at != "" { // a continued task's may be missing
		clone = append(clone, "--branch", base)
	}
	if err := t.Run(ctx, append(clone, "--", s.Repos.Mirror().Dir, s.Repos.Workspace)...); err != nil {
		return t, err
	}
	if _, err := s.Work.shell(ctx, "mkdir -p .git/info", ""); err != nil { // a clone with git's template has it
		return t, err
	}
	if git.ValidSHA(base) { // it may be on no branch
		if at, err := s.Repos.Mirror().Resolve(ctx, remote.BaseRef); err != nil {
			return t, err
		} else if at != "" {
			if err := t.Run(ctx, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--", s.Repos.Mirror().Dir, remote.BaseRef); err != nil {
				return t, err
			}
		}
	}
	// The mirror is internal; the agent sees the real remote.
	return t, t.Run(ctx, "remote", "set-url", "origin", s.Repos.Order.CloneURL)
}

func (s *Checkpointer) begin(ctx context.Context, t git.Repo, branch, commit string) error {
	checkout := []string{"checkout", "--quiet", "--no-track", "--force", "-B", branch, commit}
	return s.filtered(ctx, t, checkout, checkout)
}

// prepared returns the commit whose dependencies the work tree is about to have; in a rebase that of the new base.
func (s *Checkpointer) prepared(ctx context.Context, base, start string) string {
	if s.Repos.Order.Mode == workorder.ModeRebase {
		if at, err := s.Repos.Mirror().Resolve(ctx, workorder.BranchRef(base)); err == nil && at != "" {
			return at
		}
	}
	return start
}

// Recheckout checks the branch out once more, with what Checkout restored on it, into a work tree that has lost its files.
func (s *Checkpointer) Recheckout(ctx context.Context) error {
	if err := s.Ledger.Load(); err != nil {
		return err
	}
	_, err := s.Work.shell(ctx, "rm -rf -- .git/index .git/index.lock", "")
	if err != nil {
		return fmt.Errorf("check %s out once more: %w", s.Ledger.Branch(), err)
	}
	if err := s.begin(ctx, s.Repos.Tree(), s.Ledger.Branch(), "HEAD"); err != nil || s.Ledger.RestoredTree == "" {
		return err
	}
	s.Index.Reset()
	return s.lay(ctx, s.restored)
}

// below lets Lay put files below the work tree, and uses its index: files that the commit also has stay unchanged.
func (s *Checkpointer) below(ctx context.Context, base, commit string) error {
	index, err := s.Lay(ctx, s.Repos.Mirror(), base, commit)
	if err != nil || len(index) == 0 {
		return err
	}
	_, err = s.Work.shell(ctx, "umask 022; cat >.git/index", string(index))
	return err
}

// fits decides how to use the checkpoint, whose parent P was the agent's HEAD; the remote's branch is now at H.
func (s *Checkpointer) fits(ctx context.Context, c *claim.Result) (f fit, err error) {
	m := s.Repos.Outbox()
	m.Dir = s.Repos.Mirror().Dir
	parent, err := m.Resolve(ctx, c.Checkpoint+"^1")
	if err != nil {
		return fit{}, err
	}
	f = fit{start: c.Head, keep: true}
	if parent == "" {
		return f, nil
	}
	behind, err := m.IsAncestor(ctx, c.Head, parent)
	if err != nil {
		return fit{}, err
	}
	ahead, err := m.IsAncestor(ctx, parent, c.Head)
	if err != nil {
		return fit{}, err
	}
	tree, err := Hash(ctx, m, c.Checkpoint)
	if err != nil {
		return fit{}, err
	}
	switch {
	case behind:
		f.start, f.keep = parent, false
	case ahead && c.Bundled && s.maker(ctx, c.Checkpoint) <= c.BundleAll:
		return fit{start: c.Head}, nil // the landing that made the bundle had all of its work
	case ahead:
		// Someone pushed on top of it. The merge base is P: a checkpoint has no other parent. Here
		// large files may be merged, too, up to git's own limit.
		out, err := m.Output(ctx, "-c", "core.bigFileThreshold=512m", "merge-tree", "--write-tree", c.Head, c.Checkpoint)
		if proc.ExitCode(err) == 1 {
			return f, nil // conflicts
		}
		if err != nil {
			return fit{}, err
		}
		tree, f.keep = strings.TrimSpace(string(out)), false
	default:
		return f, nil
	}
	at, err := Hash(ctx, m, f.start)
	if err != nil {
		return fit{}, err
	}
	if tree != at {
		f.tree = tree
	}
	work, err := m.Output(ctx, "commit-tree", "-p", f.start, "-m", "Work of task "+s.Repos.Order.TaskID, tree)
	if err != nil {
		return fit{}, err
	}
	return f, m.Run(ctx, "update-ref", workRef, strings.TrimSpace(string(work)))
}

func (s *Checkpointer) maker(ctx context.Context, checkpoint string) int {
	out, err := s.Repos.Mirror().Output(ctx, "show", "--no-patch", "--format=%(trailers:key="+madeBy+",valueonly)", checkpoint, "--")
	number, nerr := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil || nerr != nil {
		return math.MaxInt // unknown: no bundle has all of its work
	}
	return number
}

// Hash returns the id of a commit's tree.
func Hash(ctx context.Context, r git.Repo, commit string) (string, error) {
	out, err := r.Output(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", commit+"^{tree}")
	return strings.TrimSpace(string(out)), err
}

func (s *Checkpointer) restore(ctx context.Context, c *claim.Result, f fit, r *workorder.Restored) error {
	if f.tree != "" {
		if err := s.lay(ctx, f); err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("restore the checkpoint %s: %w", c.Checkpoint, err)
			}
			if err := s.bare(ctx); err != nil {
				return err
			}
			f.tree, f.keep, f.err, s.Ledger.RestoredTree = "", true, err, ""
		}
	}
	if f.keep {
		s.keepCheckpoint(c, r)
		why := fmt.Sprintf("does not fit the branch %s, which has changed since", s.Ledger.Branch())
		if f.err != nil {
			why = fmt.Sprintf("cannot be restored (%v)", f.err)
		}
		s.Repos.Warn("the uncommitted work of the last attempt %s: it is kept as %s", why, r.Kept)
	}
	var err error
	if f.tree == "" {
		if r.Tree, err = Hash(ctx, s.Repos.Mirror(), f.start); err != nil {
			return err
		}
	} else {
		if r.Tree, err = s.rehash(ctx, f); err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("verify the checkpoint %s: %w", c.Checkpoint, err)
			}
			s.Repos.Warn("the restored work tree cannot be compared with its checkpoint: %v", err)
		}
		r.Verified = err == nil && r.Tree == f.tree
	}
	e := workorder.Event{Type: workorder.EventRestored, Text: f.start, Status: "ok"}
	if f.tree != "" {
		e.Text = c.Checkpoint
	}
	if !r.Verified {
		// A filter of the repository may cause it. The snapshot is kept beyond the next one.
		s.keepCheckpoint(c, r)
		e.Status, e.Text = "error", fmt.Sprintf(
			"the work tree is %s after restoring %s, not %s; the checkpoint is kept as %s", cmp.Or(r.Tree, "unknown"), e.Text, f.tree, r.Kept,
		)
	}
	s.Repos.Emit(e)
	return nil
}

// keepCheckpoint gives the checkpoint a separate ref with the first save.
func (s *Checkpointer) keepCheckpoint(c *claim.Result, r *workorder.Restored) {
	r.Kept = workorder.KeptRef(s.Repos.Order.TaskID, "checkpoint-"+c.Checkpoint[:12])
	s.Ledger.KeepRef(r.Kept, c.Checkpoint)
}

// lay makes the work tree equal to the checkpoint, with a separate index.
func (s *Checkpointer) lay(ctx context.Context, f fit) error {
	if err := s.Index.prepareSide(); err != nil {
		return err
	}
	if err := s.Index.seed(ctx); err != nil {
		return err
	}
	return s.filtered(ctx, s.Index.repo(), []string{"read-tree", "-m", "-u", f.start, f.tree}, []string{"read-tree", "--reset", "-u", f.tree})
}

// filtered writes files to the work tree. If that fails, for any reason, it tries once more without filters.
func (s *Checkpointer) filtered(ctx context.Context, t git.Repo, first, again []string) error {
	err := t.Run(ctx, first...)
	if err == nil || ctx.Err() != nil {
		return err
	}
	raw, rerr := s.Index.unfiltered(ctx, t)
	if rerr == nil {
		rerr = raw.Run(ctx, again...)
	}
	if rerr != nil {
		return errors.Join(err, rerr)
	}
	s.Repos.Warn("a filter of the repository failed: its files are in the work tree as git stores them (of Git LFS, pointers): %v", err)
	return nil
}

func (s *Checkpointer) bare(ctx context.Context) error {
	s.Index.Reset()
	t, err := s.Index.unfiltered(ctx, s.Repos.Tree())
	if err != nil {
		return err
	}
	return errors.Join(t.Run(ctx, "reset", "--quiet", "--hard"), t.Run(ctx, "clean", "--quiet", "-ffdx"))
}

// rehash hashes the work tree's current files, without trusting lay.
func (s *Checkpointer) rehash(ctx context.Context, f fit) (string, error) {
	s.Index.Reset()
	if err := s.Index.prepareSide(); err != nil {
		return "", err
	}
	if _, err := s.Index.stage(ctx, 0); err != nil {
		return "", err
	}
	t := s.Index.repo()
	var files, links strings.Builder
	laid := map[string]bool{}
	err := changes(ctx, t, func(path, entry string) {
		switch e := strings.Fields(strings.TrimPrefix(entry, ":")); {
		case len(e) != 5 || e[1] == "000000": // `git add` handles deleted files
		case e[1] == "160000": // a nested repository is its commit's id; its files do not belong to the task
			fmt.Fprintf(&links, "%s %s\t%s\x00", e[1], e[3], path)
		default:
			laid[path] = true
			files.WriteString(path + "\x00") // also ignored files that were added by force
		}
	}, "diff-tree", "-r", "-z", "--no-renames", f.start, f.tree, "--")
	if err != nil {
		return "", err
	}
	t.Stdin = files.String()
	err = t.Run(ctx, "update-index", "--add", "--remove", "-z", "--stdin")
	t.Stdin = links.String()
	err = errors.Join(err, t.Run(ctx, "update-index", "-z", "--index-info"))
	if err != nil {
		return "", err
	}
	t.Stdin = ""
	s.Ledger.Forced = nil
	if err := t.Each(ctx, func(path string) {
		if laid[path] {
			s.Ledger.Forced = append(s.Ledger.Forced, path)
		}
	}, "ls-files", "-z", "--cached", "--ignored", "--exclude-standard"); err != nil {
		return "", err
	}
	out, err := t.Output(ctx, "write-tree")
	return strings.TrimSpace(string(out)), err
}

// RestoredPaths returns the paths in which the restored work tree differs from its commit. Call it after Checkout.
func (s *Checkpointer) RestoredPaths(ctx context.Context) ([]string, error) {
	if err := s.Ledger.Load(); err != nil || s.Ledger.RestoredTree == "" {
		return nil, err
	}
	var list []string
	err := s.Repos.Mirror().Each(ctx, func(path string) { list = append(list, path) },
		"diff-tree", "-r", "-z", "--no-renames", "--name-only", s.Ledger.Start, s.Ledger.RestoredTree, "--")
	slices.Sort(list)
	return list, err
}

// History returns the branch's commits beyond the base, newest first. Call it after Checkout.
func (s *Checkpointer) History(ctx context.Context) ([]workorder.Commit, error) {
	if err := s.Ledger.Load(); err != nil {
		return nil, err
	}
	return remote.Log(ctx, s.Repos.Mirror(), s.Ledger.State.BaseSHA, s.Ledger.Start)
}

// Names of KeptRef without work to adopt (ownRefs), and with commits that another commit replaced (rewrittenRefs).
var (
	ownRefs       = lazyregexp.New(`^(state-[0-9a-f]{12}|(before-rebase|rebased)-[0-9]+)$`)
	rewrittenRefs = lazyregexp.New(`^replaced-[0-9a-f]{12}$`)
)

// SideRefs returns the remote's refs with work of earlier attempts that is not on the branch, rewritten commits last,
// without those in Restored. Call it after Checkout.
func (s *Checkpointer) SideRefs(ctx context.Context) ([]string, error) {
	if err := s.Ledger.Load(); err != nil {
		return nil, err
	}
	prefix := workorder.KeptRef(s.Repos.Order.TaskID, "")
	out, err := s.Repos.Mirror().Output(ctx, "for-each-ref", "--format=%(refname)", "--no-merged="+s.Ledger.Start, prefix)
	if err != nil {
		return nil, err
	}
	refs := strings.Fields(string(out))
	for ref := range s.Ledger.Keep { // refs of a bundle, pushed with the first save
		refs = append(refs, ref)
	}
	last := func(ref string) int {
		if rewrittenRefs.MatchString(strings.TrimPrefix(ref, prefix)) {
			return 1
		}
		return 0
	}
	slices.SortFunc(refs, func(a, b string) int { return cmp.Or(last(a)-last(b), strings.Compare(a, b)) })
	checkpoint := workorder.KeptRef(s.Repos.Order.TaskID, "checkpoint-")
	return slices.DeleteFunc(slices.Compact(refs), func(ref string) bool {
		return ownRefs.MatchString(strings.TrimPrefix(ref, prefix)) || strings.HasPrefix(ref, checkpoint) && s.Ledger.Keep[ref] != ""
	}), nil
}
