package commit

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// Conflicts is what the agent left unresolved when its leftovers were committed.
type Conflicts struct {
	// During is the operation that it left in the middle; empty for one that git does not remember, such as `git stash pop`.
	During string
	Paths  []string // that were unmerged in the agent's index
	// at is the commit that has them as they were.
	at string
}

// operations are those that git remembers in the repository until they are done.
var operations = []struct{ name, file string }{
	{"git am", "rebase-apply/applying"}, // before the rebase, whose directory it shares
	{"rebase", "rebase-merge"},
	{"rebase", "rebase-apply"},
	{"merge", "MERGE_HEAD"},
	{"cherry-pick", "CHERRY_PICK_HEAD"},
	{"revert", "REVERT_HEAD"},
	{"cherry-pick", remaining}, // of several, some of which are done
}

// remaining lists the commits that a cherry-pick or revert has still to make.
const remaining = "sequencer/todo"

// during is the operation that the work tree is in the middle of. unfinished reports one whose remaining commits are in no commit of the
// branch yet, so that it matters without a conflict, too.
func (c *Committer) during() (name string, unfinished bool) {
	there := func(file string) bool {
		_, err := os.Lstat(filepath.Join(c.repos.Workspace, ".git", file))
		return err == nil
	}
	for _, o := range operations {
		if there(o.file) {
			return o.name, strings.HasPrefix(o.file, "rebase-") || there(remaining)
		}
	}
	return "", false
}

// unmerged looks for conflicts in the agent's index, before anything is staged in it: that resolves them.
func (c *Committer) unmerged(ctx context.Context) *Conflicts {
	var found Conflicts
	// An index that cannot be read has no conflicts: staging reports the error.
	_ = c.repos.Tree().Each(ctx, func(rec string) {
		if _, path, ok := strings.Cut(rec, "\t"); ok && !slices.Contains(found.Paths, path) && len(found.Paths) < maxConflicts {
			found.Paths = append(found.Paths, path)
		}
	}, "ls-files", "-z", "--unmerged")
	unfinished := false
	if found.During, unfinished = c.during(); len(found.Paths) == 0 && found.During != "" {
		found.Paths = c.marked(ctx, "--cached")
	}
	if len(found.Paths) == 0 && found.During == "" {
		found.Paths = c.popped(ctx)
	}
	if len(found.Paths) == 0 && !unfinished {
		return nil
	}
	return &found
}

// popped lists files with the markers of a stash that did not fit, which git keeps then: the agent staged or reset them, and the index has no conflict any more.
func (c *Committer) popped(ctx context.Context) (paths []string) {
	if at, err := c.repos.Tree().Resolve(ctx, "refs/stash"); err != nil || at == "" {
		return nil
	}
	marked := c.marked(ctx)
	if len(marked) == 0 {
		return nil
	}
	// It fails where no file has the marker.
	_ = c.repos.Tree().Each(ctx, func(path string) { paths = append(paths, path) },
		append([]string{"grep", "--no-index", "-l", "-z", "--full-name", "-F", "-e", ">>>>>>> Stashed changes", "--"}, marked...)...)
	return paths
}

// marked lists files that have the markers of conflicts and HEAD does not, in the work tree, or with --cached in the index: the agent said by staging them that they are resolved.
func (c *Committer) marked(ctx context.Context, options ...string) (paths []string) {
	const marker, most = ": leftover conflict marker", 1 << 20
	out := text.NewEnds(most)
	// It fails where it finds some, and what it prints counts.
	_, _ = c.repos.Tree().Stream(ctx, nil, out, 0, slices.Concat([]string{"-c", "core.quotePath=false", "diff"}, options, []string{"--check", "--no-ext-diff", "--no-textconv", "HEAD"})...)
	for line := range strings.Lines(string(out.Bytes())) {
		at, ok := strings.CutSuffix(strings.TrimSuffix(line, "\n"), marker)
		path := at[:max(0, strings.LastIndexByte(at, ':'))]
		if ok && path != "" && !slices.Contains(paths, path) && len(paths) < maxConflicts {
			paths = append(paths, path)
		}
	}
	return paths
}

// maxConflicts bounds the paths that are looked at, which all are in the commit.
const maxConflicts = 1000

// noteConflicts remembers conflicts, if there are some, for Unresolved.
func (c *Committer) noteConflicts(ctx context.Context, t git.Repo, found *Conflicts) {
	if found == nil {
		return
	}
	out, err := t.Output(ctx, "rev-parse", "--verify", "HEAD")
	if err == nil {
		found.at = strings.TrimSpace(string(out))
	}
	c.conflicts = found
}

// Unresolved is what the agent left unresolved and has not resolved since, in a repair; nil if there is nothing.
func (c *Committer) Unresolved(ctx context.Context) *Conflicts {
	if c.conflicts == nil {
		return nil
	}
	still := *c.conflicts
	still.Paths = slices.Clone(still.Paths)
	if still.at != "" {
		changed := map[string]bool{}
		if err := c.repos.Tree().Each(ctx, func(path string) { changed[path] = true }, "diff-tree", "-r", "-z", "--name-only", "--no-renames", still.at, "HEAD"); err == nil {
			still.Paths = slices.DeleteFunc(still.Paths, func(path string) bool { return changed[path] })
		}
	}
	if _, unfinished := c.during(); len(still.Paths) == 0 && !unfinished {
		return nil
	}
	return &still
}
