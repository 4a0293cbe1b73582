package publish

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A branch that an agent wrote may hold settings, hooks and MCP servers that the next agent would
// obey before it reads its task. While an agent works on a continued task these files are
// those of the base branch. Nothing of that may become a commit: what the branch has is noted in the ledger,
// and whatever is made of the work tree has the branch's version for as long as the agent has not changed the file itself.

// setting is a file that the branch has otherwise than the base. Entries are "mode id" as git
// has them; "": there is none.
type setting struct {
	Path   string `json:"path"`
	Base   string `json:"base,omitempty"`   // what we put into the work tree
	Branch string `json:"branch,omitempty"` // what was there
	Start  string `json:"start,omitempty"`  // what the commit has on which the attempt began
}

// Neutralize gives the agents' settings that the branch or its checkpoint changed the content that
// they have in the base branch, and returns their paths. It is called after Checkout and
// Unarchive and before anything of the repository runs. Where it fails no agent may start. In a new task, and
// where the order trusts the branch, it does nothing. Commit gives the branch's version back.
func (p *Publisher) Neutralize(ctx context.Context, c *Claimed) ([]string, error) {
	if !c.Continues || p.Order.TrustBranchConfig {
		return nil, nil
	}
	if err := p.op.take(ctx); err != nil {
		return nil, err
	}
	defer p.op.give()
	if err := p.neutralize(ctx, c); err != nil {
		return nil, fmt.Errorf("make the agents' settings those of the base branch: %w; to go on with the branch's own, trust its configuration", err)
	}
	var paths []string
	for _, s := range p.led.Settings {
		paths = append(paths, s.Path)
	}
	return paths, nil
}

func (p *Publisher) neutralize(ctx context.Context, c *Claimed) error {
	if err := p.load(); err != nil {
		return err
	}
	p.enter()
	p.open(ctx) // an archive has modes that shut its own user out
	there, err := p.everything(ctx)
	if err != nil {
		return err
	}
	list, err := p.altered(ctx, c, there)
	if err != nil || len(list) == 0 {
		return err
	}
	if err := p.pin(ctx, list); err != nil {
		return err
	}
	// Noted before it is done: whoever finds the note and the branch's own file has lost nothing.
	p.led.Settings = list
	if err := p.store(); err != nil {
		return err
	}
	if err := p.put(ctx, list, func(s setting) (string, bool) { return s.Base, there[s.Path] != "" }); err != nil {
		return err
	}
	now, err := p.settingsNow(ctx)
	if err != nil {
		return err
	}
	for _, s := range list {
		if now[s.Path] != s.Base {
			return fmt.Errorf("%s is %q and not %q", s.Path, now[s.Path], s.Base)
		}
	}
	return p.hide(ctx, list)
}

// unheld is the entry of a file that no snapshot can hold, because it is ignored or cannot be read.
const unheld = "unheld"

// everything is the work tree by path: what a snapshot of it would have, and what else lies there.
func (p *Publisher) everything(ctx context.Context) (map[string]string, error) {
	if err := p.prepareSide(); err != nil {
		return nil, err
	}
	added, err := p.stage(ctx, 0)
	if err != nil {
		return nil, err
	}
	there, err := indexed(ctx, p.side())
	if err != nil {
		return nil, err
	}
	if added.left != nil {
		for _, path := range added.left.Paths {
			there[path] = unheld
		}
	}
	return there, p.side().Each(ctx, func(path string) {
		if path = strings.TrimSuffix(path, "/"); there[path] == "" {
			there[path] = unheld
		}
	}, "ls-files", "-z", "--others", "--ignored", "--exclude-standard")
}

// indexed are the entries of an index.
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

// treeEntries are the entries of a commit's files.
func treeEntries(ctx context.Context, r git.Repo, commit string) (map[string]string, error) {
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

// altered compares the settings that are there with the base's.
func (p *Publisher) altered(ctx context.Context, c *Claimed, there map[string]string) ([]setting, error) {
	base, tip := c.BaseSHA, ""
	var err error
	if c.Base != "" {
		if tip, err = p.Mirror().Resolve(ctx, workorder.BranchRef(c.Base)); err != nil {
			return nil, err
		}
	}
	if tip != "" {
		if in, err := p.Mirror().IsAncestor(ctx, base, tip); err != nil {
			return nil, err
		} else if !in {
			base = tip // it was rewritten, or somebody forged where the task began
		}
	}
	was, err := treeEntries(ctx, p.Mirror(), base)
	if err != nil {
		return nil, err
	}
	// What the base branch has by now came into the branch by a merge.
	later, err := treeEntries(ctx, p.Mirror(), tip)
	if err != nil {
		return nil, err
	}
	start, err := treeEntries(ctx, p.Mirror(), p.led.Start)
	if err != nil {
		return nil, err
	}
	guard, err := p.guard(ctx, was)
	if err != nil {
		return nil, err
	}
	paths := map[string]bool{}
	for _, entries := range []map[string]string{was, there} {
		for path := range entries {
			if guard.has(path) {
				paths[path] = true
			}
		}
	}
	var list []setting
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		now := there[path]
		if now == was[path] || tip != "" && now == later[path] {
			continue
		}
		s := setting{Path: path, Base: was[path], Branch: now, Start: start[path]}
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

// obstructed reports whether something that is no setting would have to go for path's sake: then it stays absent.
func obstructed(name string, there map[string]string, guard guard) bool {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if there[dir] != "" && !guard.has(dir) {
			return true
		}
	}
	for other := range there {
		if strings.HasPrefix(other, name+"/") && !guard.has(other) {
			return true
		}
	}
	return false
}

// pin keeps what only the agent's store has where the agent cannot lose it.
func (p *Publisher) pin(ctx context.Context, list []setting) error {
	missing, err := absent(ctx, p.Mirror(), list)
	if err != nil {
		return err
	}
	return copyBlobs(ctx, p.tree(), p.Mirror(), missing)
}

// absent are the files of the branch that a repository does not have.
func absent(ctx context.Context, r git.Repo, list []setting) (ids []string, err error) {
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

// put makes files of the work tree what entry says, as the agent's user and without filters. old: something is there.
func (p *Publisher) put(ctx context.Context, list []setting, entry func(setting) (now string, old bool)) error {
	var gone, info strings.Builder
	dirs := map[string]bool{}
	for _, s := range list { // sorted: a link goes before what only seems to lie behind it
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
		if err := p.feed(ctx, "xargs -0 rm -rf --", gone.String()); err != nil {
			return err
		}
	}
	if len(dirs) > 0 { // as git does
		deepest := slices.Sorted(maps.Keys(dirs))
		slices.Reverse(deepest)
		if err := p.feed(ctx, "xargs -0 rmdir --ignore-fail-on-non-empty -- 2>/dev/null || true", strings.Join(deepest, "\x00")+"\x00"); err != nil {
			return err
		}
	}
	if info.Len() == 0 {
		return nil
	}
	t, err := p.scratch(ctx)
	if err != nil {
		return err
	}
	t.Stdin = info.String()
	if err := t.Run(ctx, "update-index", "--add", "-z", "--index-info"); err != nil {
		return err
	}
	return t.Run(ctx, "checkout-index", "--force", "--all")
}

func (p *Publisher) feed(ctx context.Context, script, input string) error {
	_, err := proc.Output(ctx, proc.Spec{Argv: []string{"/bin/sh", "-c", script}, Dir: p.Workspace, User: p.User, Stdin: strings.NewReader(input)})
	return err
}

// hide makes the agent's own git believe that the work tree has what the branch has.
func (p *Publisher) hide(ctx context.Context, list []setting) error {
	theirs, err := indexed(ctx, p.tree())
	if err != nil {
		return err
	}
	var skip, exclude strings.Builder
	for _, s := range list {
		switch has := theirs[s.Path]; {
		case has == s.Base:
		case has != "":
			skip.WriteString(s.Path + "\x00")
		default:
			exclude.WriteString("/" + excludable.Replace(s.Path) + "\n")
		}
	}
	if skip.Len() > 0 {
		t := p.tree()
		t.Stdin = skip.String()
		if err := t.Run(ctx, "update-index", "--skip-worktree", "-z", "--stdin"); err != nil {
			return err
		}
	}
	if exclude.Len() == 0 {
		return nil
	}
	return p.feed(ctx, "mkdir -p .git/info && cat >>.git/info/exclude", exclude.String())
}

// excludable writes a path as a pattern that fits it alone; a line's end cannot be written.
var excludable = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, " ", `\ `, "\n", "?", "\r", "?")

// settingsIndex is an index of our own for the settings alone.
const settingsIndex = "settings"

// scratch is the work tree, unfiltered, with an index that has nothing.
func (p *Publisher) scratch(ctx context.Context) (git.Repo, error) {
	if err := p.prepareSide(); err != nil {
		return git.Repo{}, err
	}
	if err := p.copyIndex(ctx, p.sidePath("none"), p.sidePath(settingsIndex)); err != nil {
		return git.Repo{}, err
	}
	t, err := p.unfiltered(ctx, p.tree())
	t.Env = append(t.Env, "GIT_INDEX_FILE="+p.sidePath(settingsIndex))
	return t, err
}

// settingsNow hashes what the work tree has of the settings in the ledger. One that cannot be hashed counts as untouched.
func (p *Publisher) settingsNow(ctx context.Context) (map[string]string, error) {
	t, err := p.scratch(ctx)
	if err != nil {
		return nil, err
	}
	l := looker{root: p.Workspace, dirs: map[string]bool{}}
	var files []file
	for _, s := range p.led.Settings {
		if size, is := l.look(s.Path, false); is {
			files = append(files, file{s.Path, size})
		}
	}
	a := &adder{t: t, raw: t, unlock: func() { _ = p.prepareSide() }}
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
	for _, s := range p.led.Settings {
		if slices.Contains(left.Paths, s.Path) {
			now[s.Path] = s.Base
		}
	}
	return now, nil
}
