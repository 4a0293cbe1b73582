package tree

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/claim"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// AgentConfig are the files that can make an agent run programs.
type AgentConfig struct {
	*Tree
}

// Neutralize gives the agents' settings that the branch or its checkpoint changed the base branch's content, and
// returns their paths. Call it after Checkout and Unarchive and before any code of the repository runs. If it fails, no
// agent may start. It does nothing in a new task, or if the order trusts the branch. Commit restores the branch's
// version.
func (st *AgentConfig) Neutralize(ctx context.Context, c *claim.Result) ([]string, error) {
	if !c.Continues || st.Repos.Order.TrustBranchConfig {
		return nil, nil
	}
	if err := st.Ledger.Lock(ctx); err != nil {
		return nil, err
	}
	defer st.Ledger.Unlock()
	if err := st.neutralize(ctx, c); err != nil {
		return nil, fmt.Errorf("apply the base branch's settings of agents: %w; to continue with the branch's own, trust its configuration", err)
	}
	var paths []string
	for _, s := range st.Ledger.Settings {
		paths = append(paths, s.Path)
	}
	return paths, nil
}

func (st *AgentConfig) neutralize(ctx context.Context, c *claim.Result) error {
	if err := st.Ledger.Load(); err != nil {
		return err
	}
	st.Work.restoreDirAccess()
	st.Work.restoreFileAccess(ctx) // an archive may contain modes that lock out its own user
	there, err := st.everything(ctx)
	if err != nil {
		return err
	}
	list, err := st.altered(ctx, c, there)
	if err != nil || len(list) == 0 {
		return err
	}
	if err := st.pin(ctx, list); err != nil {
		return err
	}
	// Recorded first: a reader that finds the record and the branch's own file has lost nothing.
	st.Ledger.Settings = list
	if err := st.Ledger.Store(); err != nil {
		return err
	}
	if err := st.put(ctx, list, func(s remote.ConfigFile) (string, bool) { return s.Base, there[s.Path] != "" }); err != nil {
		return err
	}
	now, err := st.now(ctx)
	if err != nil {
		return err
	}
	for _, s := range list {
		if now[s.Path] != s.Base {
			return fmt.Errorf("%s is %q instead of %q", s.Path, now[s.Path], s.Base)
		}
	}
	return st.hide(ctx, list)
}

// unheld is the entry of a file that no snapshot can contain, because it is ignored or unreadable.
const unheld = "unheld"

// everything returns the work tree by path: the entries of its snapshot, and all other files.
func (st *AgentConfig) everything(ctx context.Context) (map[string]string, error) {
	if err := st.Index.prepareSide(); err != nil {
		return nil, err
	}
	added, err := st.Index.stage(ctx, 0)
	if err != nil {
		return nil, err
	}
	there, err := indexed(ctx, st.Index.repo())
	if err != nil {
		return nil, err
	}
	if added.left != nil {
		for _, path := range added.left.Paths {
			there[path] = unheld
		}
	}
	return there, st.Index.repo().Each(ctx, func(path string) {
		if path = strings.TrimSuffix(path, "/"); there[path] == "" {
			there[path] = unheld
		}
	}, "ls-files", "-z", "--others", "--ignored", "--exclude-standard")
}

func indexed(ctx context.Context, t git.Repo) (map[string]string, error) {
	entries := map[string]string{}
	err := t.Each(ctx, func(rec string) {
		entry, path, _ := strings.Cut(rec, "\t")
		if f := strings.Fields(entry); len(f) == 3 {
			entries[path] = f[0] + " " + f[1]
		}
	}, "ls-files", "-z", "--stage", "--cached")
	return entries, err
}

// Entries returns the entries of a commit's files.
func Entries(ctx context.Context, r git.Repo, commit string) (map[string]string, error) {
	entries := map[string]string{}
	if commit == "" {
		return entries, nil
	}
	err := r.Each(ctx, func(rec string) {
		entry, path, _ := strings.Cut(rec, "\t")
		if f := strings.Fields(entry); len(f) == 3 {
			entries[path] = f[0] + " " + f[2]
		}
	}, "ls-tree", "-r", "-z", "--full-tree", commit)
	return entries, err
}

// altered compares the current settings with the base's.
func (st *AgentConfig) altered(ctx context.Context, c *claim.Result, there map[string]string) ([]remote.ConfigFile, error) {
	base, tip := c.BaseSHA, ""
	var err error
	if c.Base != "" {
		if tip, err = st.Repos.Mirror().Resolve(ctx, workorder.BranchRef(c.Base)); err != nil {
			return nil, err
		}
	}
	if tip != "" {
		if in, err := st.Repos.Mirror().IsAncestor(ctx, base, tip); err != nil {
			return nil, err
		} else if !in {
			base = tip // it was rewritten, or the recorded start of the task was forged
		}
	}
	was, err := Entries(ctx, st.Repos.Mirror(), base)
	if err != nil {
		return nil, err
	}
	// A file in the base branch's current version came into the branch by a merge.
	later, err := Entries(ctx, st.Repos.Mirror(), tip)
	if err != nil {
		return nil, err
	}
	start, err := Entries(ctx, st.Repos.Mirror(), st.Ledger.Start)
	if err != nil {
		return nil, err
	}
	guard, err := st.NewConfigMatcher(ctx, was)
	if err != nil {
		return nil, err
	}
	paths := map[string]bool{}
	for _, entries := range []map[string]string{was, there} {
		for path := range entries {
			if guard.Has(path) {
				paths[path] = true
			}
		}
	}
	var list []remote.ConfigFile
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		now := there[path]
		if now == was[path] || tip != "" && now == later[path] {
			continue
		}
		s := remote.ConfigFile{Path: path, Base: was[path], Branch: now, Start: start[path]}
		if now == unheld {
			s.Branch = start[path]
		}
		if strings.HasPrefix(s.Base, gitlink) || obstructed(path, there, guard) {
			s.Base = ""
		}
		if now != "" || s.Base != "" {
			list = append(list, s)
		}
	}
	return list, nil
}

// obstructed reports whether path would replace a file that is not a setting: then it stays absent.
func obstructed(name string, there map[string]string, guard ConfigMatcher) bool {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if there[dir] != "" && !guard.Has(dir) {
			return true
		}
	}
	for other := range there {
		if strings.HasPrefix(other, name+"/") && !guard.Has(other) {
			return true
		}
	}
	return false
}

// pin copies objects that only the agent's store has to where the agent cannot delete them.
func (st *AgentConfig) pin(ctx context.Context, list []remote.ConfigFile) error {
	missing, err := absent(ctx, st.Repos.Mirror(), list)
	if err != nil {
		return err
	}
	return copyBlobs(ctx, st.Repos.Tree(), st.Repos.Mirror(), missing)
}

// absent returns the branch's objects that a repository lacks.
func absent(ctx context.Context, r git.Repo, list []remote.ConfigFile) (ids []string, err error) {
	for _, s := range list {
		if mode, id, ok := strings.Cut(s.Branch, " "); ok && mode != gitlink {
			r.Stdin += id + "\n"
		}
	}
	if r.Stdin == "" {
		return nil, nil
	}
	out, err := r.Output(ctx, "cat-file", "--batch-check")
	for line := range strings.Lines(string(out)) {
		if id, ok := strings.CutSuffix(strings.TrimSpace(line), " missing"); ok {
			ids = append(ids, id)
		}
	}
	return ids, err
}

func copyBlobs(ctx context.Context, from, to git.Repo, ids []string) error {
	for _, id := range ids {
		content, err := from.Output(ctx, "cat-file", "blob", id)
		if err != nil {
			return err
		}
		to.Stdin = string(content)
		if err := to.Run(ctx, "hash-object", "-w", "--stdin"); err != nil {
			return err
		}
	}
	return nil
}

// put writes the entries' files to the work tree, as the agent's user and without filters. old means that a file exists.
func (st *AgentConfig) put(ctx context.Context, list []remote.ConfigFile, entry func(remote.ConfigFile) (now string, old bool)) error {
	var gone, info strings.Builder
	dirs := map[string]bool{}
	for _, s := range list { // sorted: a link precedes paths that seem to be behind it
		now, old := entry(s)
		if old {
			gone.WriteString("./" + s.Path + "\x00")
			for dir := path.Dir(s.Path); dir != "."; dir = path.Dir(dir) {
				dirs["./"+dir] = true
			}
		}
		if now != "" && !strings.HasPrefix(now, gitlink) {
			info.WriteString(now + "\t" + s.Path + "\x00")
		}
	}
	if gone.Len() > 0 {
		if _, err := st.Work.shell(ctx, "xargs -0 rm -rf --", gone.String()); err != nil {
			return err
		}
	}
	if len(dirs) > 0 { // as git does
		deepest := slices.Sorted(maps.Keys(dirs))
		slices.Reverse(deepest)
		if _, err := st.Work.shell(
			ctx, "xargs -0 rmdir --ignore-fail-on-non-empty -- 2>/dev/null || true", strings.Join(deepest, "\x00")+"\x00",
		); err != nil {
			return err
		}
	}
	if info.Len() == 0 {
		return nil
	}
	t, err := st.scratch(ctx)
	if err != nil {
		return err
	}
	t.Stdin = info.String()
	if err := t.Run(ctx, "update-index", "--add", "-z", "--index-info"); err != nil {
		return err
	}
	return t.Run(ctx, "checkout-index", "--force", "--all")
}

// hide makes the agent's git report no change for these files.
func (st *AgentConfig) hide(ctx context.Context, list []remote.ConfigFile) error {
	theirs, err := indexed(ctx, st.Repos.Tree())
	if err != nil {
		return err
	}
	var skip strings.Builder
	var exclude []string
	for _, s := range list {
		switch has := theirs[s.Path]; {
		case has == s.Base:
		case has != "":
			skip.WriteString(s.Path + "\x00")
		default:
			exclude = append(exclude, s.Path)
		}
	}
	if skip.Len() > 0 {
		t := st.Repos.Tree()
		t.Stdin = skip.String()
		if err := t.Run(ctx, "update-index", "--skip-worktree", "-z", "--stdin"); err != nil {
			return err
		}
	}
	return st.Work.exclude(ctx, exclude)
}

// excludable writes a path as a pattern that matches it alone; it cannot express a line end.
var excludable = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, " ", `\ `, "\n", "?", "\r", "?")

// scratch returns the work tree, unfiltered, with an empty index.
func (st *AgentConfig) scratch(ctx context.Context) (git.Repo, error) {
	if err := st.Index.prepareSide(); err != nil {
		return git.Repo{}, err
	}
	if err := st.Index.copyIndex(ctx, st.Repos.SidePath("none"), st.Repos.SidePath(settingsIndex)); err != nil {
		return git.Repo{}, err
	}
	t, err := st.Index.unfiltered(ctx, st.Repos.Tree())
	t.Env = append(t.Env, "GIT_INDEX_FILE="+st.Repos.SidePath(settingsIndex))
	return t, err
}

// now hashes the work tree's versions of the settings in the ledger. One that cannot be hashed counts as unchanged.
func (st *AgentConfig) now(ctx context.Context) (map[string]string, error) {
	t, err := st.scratch(ctx)
	if err != nil {
		return nil, err
	}
	l := st.Work.newPathReader()
	var files []File
	for _, s := range st.Ledger.Settings {
		if size, is := l.look(s.Path, false); is {
			files = append(files, File{Path: s.Path, Size: size})
		}
	}
	a := &adder{t: t, raw: t, unlock: func() { _ = st.Index.prepareSide() }}
	left := a.all(ctx, files)
	now, err := indexed(ctx, t)
	if err != nil {
		return nil, err
	}
	if left == nil {
		return now, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, s := range st.Ledger.Settings {
		if slices.Contains(left.Paths, s.Path) {
			now[s.Path] = s.Base
		}
	}
	return now, nil
}
