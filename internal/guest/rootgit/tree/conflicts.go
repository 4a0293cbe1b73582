package tree

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// Conflicts describes unresolved conflicts in the agent's leftovers.
type Conflicts struct {
	// During is the operation that the agent did not finish; empty for `git stash pop`, which git does not record.
	During string
	Paths  []string // unmerged paths of the agent's index
	// at is the commit that contains them unchanged.
	at string
}

// operations are those that git records in the repository until they are done.
var operations = []struct{ name, file string }{
	{"git am", "rebase-apply/applying"}, // before the rebase, whose directory it shares
	{"rebase", "rebase-merge"},
	{"rebase", "rebase-apply"},
	{"merge", "MERGE_HEAD"},
	{"cherry-pick", "CHERRY_PICK_HEAD"},
	{"revert", "REVERT_HEAD"},
	{"cherry-pick", remaining}, // with several commits, some of which are done
}

// remaining lists the commits that a cherry-pick or revert still has to create.
const remaining = "sequencer/todo"

// during returns the operation in progress. unfinished: its remaining commits are not on the branch yet.
func (c *Committer) during() (name string, unfinished bool) {
	there := func(file string) bool {
		_, err := os.Lstat(filepath.Join(c.Repos.Workspace, ".git", file))
		return err == nil
	}
	for _, o := range operations {
		if there(o.file) {
			return o.name, strings.HasPrefix(o.file, "rebase-") || there(remaining)
		}
	}
	return "", false
}

// unmerged finds conflicts in the agent's index before staging resolves them.
func (c *Committer) unmerged(ctx context.Context) *Conflicts {
	var found Conflicts
	// An unreadable index has no conflicts: staging reports the error.
	_ = c.Repos.Tree().Each(ctx, func(rec string) {
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

// popped lists files with the markers of a stash that did not apply, even if the agent staged or reset them.
func (c *Committer) popped(ctx context.Context) (paths []string) {
	if at, err := c.Repos.Tree().Resolve(ctx, "refs/stash"); err != nil || at == "" {
		return nil
	}
	marked := c.marked(ctx)
	if len(marked) == 0 {
		return nil
	}
	// It fails if no file has the marker.
	_ = c.Repos.Tree().Each(ctx, func(path string) { paths = append(paths, path) },
		append([]string{"grep", "--no-index", "-l", "-z", "--full-name", "-F", "-e", ">>>>>>> Stashed changes", "--"}, marked...)...)
	return paths
}

// marked lists files with conflict markers that HEAD does not have, in the work tree or with --cached in the index.
func (c *Committer) marked(ctx context.Context, options ...string) (paths []string) {
	const marker, most = ": leftover conflict marker", 1 << 20
	out := text.NewHeadTail(most)
	// It fails if it finds any; only its output counts.
	_, _ = c.Repos.Tree().Stream(
		ctx,
		nil,
		out,
		0,
		slices.Concat([]string{"-c", "core.quotePath=false", "diff"}, options, []string{"--check", "--no-ext-diff", "--no-textconv", "HEAD"})...)
	for line := range strings.Lines(string(out.Bytes())) {
		at, ok := strings.CutSuffix(strings.TrimSuffix(line, "\n"), marker)
		path := at[:max(0, strings.LastIndexByte(at, ':'))]
		if ok && path != "" && !slices.Contains(paths, path) && len(paths) < maxConflicts {
			paths = append(paths, path)
		}
	}
	return paths
}

// maxConflicts bounds the examined paths; all of them are in the commit.
const maxConflicts = 1000

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

// Unresolved returns the conflicts that the agent left and has not resolved since; nil if none.
func (c *Committer) Unresolved(ctx context.Context) *Conflicts {
	if c.conflicts == nil {
		return nil
	}
	still := *c.conflicts
	still.Paths = slices.Clone(still.Paths)
	if still.at != "" {
		changed := map[string]bool{}
		if err := c.Repos.Tree().Each(
			ctx, func(path string) { changed[path] = true }, "diff-tree", "-r", "-z", "--name-only", "--no-renames", still.at, "HEAD",
		); err == nil {
			still.Paths = slices.DeleteFunc(still.Paths, func(path string) bool { return changed[path] })
		}
	}
	if _, unfinished := c.during(); len(still.Paths) == 0 && !unfinished {
		return nil
	}
	return &still
}
