package land

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// maxRangeCommits bounds either side: git's range-diff compares each commit with each.
	maxRangeCommits = 300
	// maxText bounds Comparison.Text in bytes: the space in a forge's comment, minus the text around it.
	maxText = 30 << 10
	// textTime bounds git's range-diff; the pairs do not need it.
	textTime        = 30 * time.Second
	maxRangeSubject = 120
	maxFiles        = 5
	maxProblems     = 10
)

// Reasons of a pair that names no file.
const (
	inBase   = "the new base has its change already"
	leftOut  = "left out, though it did not conflict"
	around   = "the code around it changed"
	altered  = "changed by the rebase, though it did not conflict"
	byRebase = "made by the rebase"
)

// Range describes the commits of a rebase.
type Range struct {
	Upstream, OldHead string // the commits before
	NewBase, NewHead  string // the commits after
	// Resolver is the name of the actor who resolved conflicts, for the reasons; empty if there were none.
	Resolver string
}

// Comparison is the result of CompareCommits.
type Comparison struct {
	Moved []workorder.RangePair
	// Conflicts lists the files that conflict when git rebases the commits.
	Conflicts []string
	// Text is git's range-diff, shortened and without control characters.
	Text string
	// Problems has one sentence for each forbidden difference: a lost commit, a changed author, conflict markers.
	Problems []string
}

type rangeCommit struct {
	sha, parent, tree, author, subject string
	merge                              bool
}

type comparison struct {
	Range
	git      git.Repo
	old, new []rangeCommit
	ids      map[string]string
	pairs    map[string]*rangeCommit // the new commit, by the old one's id
	taken    map[string]bool         // new commits that have an old counterpart
	out      Comparison
}

// CompareCommits compares the commits before and after. Forbidden differences are in Problems; an error means that the comparison failed.
func CompareCommits(ctx context.Context, repo git.Repo, r Range) (*Comparison, error) {
	c := &comparison{Range: r, git: repo, pairs: map[string]*rangeCommit{}, taken: map[string]bool{}}
	c.out.Moved = []workorder.RangePair{}
	var err error
	if c.old, err = c.list(ctx, r.Upstream, r.OldHead); err != nil {
		return nil, err
	}
	if c.new, err = c.list(ctx, r.NewBase, r.NewHead); err != nil {
		return nil, err
	}
	if len(c.old) > maxRangeCommits || len(c.new) > maxRangeCommits {
		return nil, fmt.Errorf("compare commits: there are more than %d", maxRangeCommits)
	}
	if c.ids, err = repo.PatchIDs(ctx, r.OldHead, r.NewHead, "^"+r.Upstream, "^"+r.NewBase); err != nil {
		return nil, err
	}
	text := c.text(ctx)
	c.pair(text)
	if err := c.explain(ctx); err != nil {
		return nil, err
	}
	c.out.Text = bounded(text)
	slices.Sort(c.out.Conflicts)
	c.out.Conflicts = slices.Compact(c.out.Conflicts)
	return &c.out, nil
}

// list returns the commits of a range, oldest first.
func (c *comparison) list(ctx context.Context, from, to string) (list []rangeCommit, err error) {
	err = c.git.Each(ctx, func(rec string) {
		f := strings.SplitN(strings.TrimPrefix(rec, "\n"), "\x01", 5)
		if len(f) != 5 || len(list) > maxRangeCommits {
			return
		}
		parent, _, merge := strings.Cut(f[1], " ")
		list = append(list, rangeCommit{
			sha: f[0], parent: parent, tree: f[2], author: f[3], subject: text.Name(f[4], maxRangeSubject),
			merge: merge,
		})
	}, "log", "-z", "--topo-order", "--reverse", "--format=%H%x01%P%x01%T%x01%an <%ae>%x01%s", to, "^"+from, "--")
	return list, err
}

// text returns the output of git range-diff; empty if it takes too long.
func (c *comparison) text(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, textTime)
	defer cancel()
	// A heavily changed commit still counts as the same one, where git's default would see two.
	out, err := c.git.Output(ctx, "range-diff", "--no-color", "--no-ext-diff", "--no-textconv", "--no-notes", "--creation-factor=90",
		c.Upstream+".."+c.OldHead, c.NewBase+".."+c.NewHead)
	if err != nil {
		return ""
	}
	return string(out)
}

// bounded returns a text without control characters, of at most maxText bytes.
func bounded(s string) string {
	const window = 2
	cut := len(s) > maxText
	s = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return '\uFFFD'
	}, strings.ToValidUTF8(s[:min(len(s), window*maxText)], "\uFFFD"))
	if cut || len(s) > maxText {
		s = strings.ToValidUTF8(s[:min(len(s), maxText)], "")
		s = s[:strings.LastIndexByte(s, '\n')+1] + "[…]\n"
	}
	return s
}

// pair finds each commit's successor: by the same change, else by message and author, else by git's range-diff.
func (c *comparison) pair(text string) {
	match := func(key func(*rangeCommit) string) {
		free := map[string][]*rangeCommit{}
		for i := range c.new {
			if n := &c.new[i]; !c.taken[n.sha] && !n.merge && key(n) != "" {
				free[key(n)] = append(free[key(n)], n)
			}
		}
		for i := range c.old {
			o := &c.old[i]
			if c.pairs[o.sha] != nil || o.merge {
				continue
			}
			if list := free[key(o)]; len(list) > 0 {
				c.pairs[o.sha], c.taken[list[0].sha] = list[0], true
				free[key(o)] = list[1:]
			}
		}
	}
	match(func(x *rangeCommit) string { return c.ids[x.sha] })
	match(func(x *rangeCommit) string { return x.author + "\x00" + x.subject })
	match(func(x *rangeCommit) string { return x.subject })
	git := paired(text)
	match(func(x *rangeCommit) string {
		for k, sides := range git {
			if strings.HasPrefix(x.sha, sides[0]) || strings.HasPrefix(x.sha, sides[1]) {
				return fmt.Sprint(k)
			}
		}
		return ""
	})
}

// paired returns the abbreviated ids that git's range-diff pairs, from lines such as "2: caf0881 ! 2: a2cdd3d subject".
func paired(text string) (list [][2]string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "    ") {
			continue // a line of a diff
		}
		f := strings.Fields(line)
		if len(f) >= 5 && (f[2] == "=" || f[2] == "!") && len(f[1]) >= 4 && len(f[4]) >= 4 {
			list = append(list, [2]string{f[1], f[4]})
		}
	}
	return list
}

// explain fills the list of commits, in the order of the old ones.
func (c *comparison) explain(ctx context.Context) error {
	on := c.NewBase // parent of the next commit
	for i := range c.old {
		o := &c.old[i]
		n := c.pairs[o.sha]
		var p workorder.RangePair
		var err error
		switch {
		case o.merge:
			p = workorder.RangePair{
				Old: o.sha, Subject: o.subject, How: workorder.RangeDropped,
				Reason: "a merge: its commits were rebased one by one",
			}
		case n == nil:
			p, err = c.gone(ctx, o, on)
		case c.ids[o.sha] != "" && c.ids[o.sha] == c.ids[n.sha] || c.ids[o.sha] == c.ids[n.sha] && c.ids[o.sha] == "":
			p = workorder.RangePair{Old: o.sha, New: n.sha, Subject: n.subject, How: workorder.RangeSame}
			on = n.sha
		default:
			p, err = c.changed(ctx, o, n)
			on = n.sha
		}
		if err != nil {
			return err
		}
		if n != nil && n.author != o.author {
			c.problem(
				"the author of %.12s %q is not kept: %s became %s", o.sha, o.subject, text.Name(o.author, maxRangeSubject), text.Name(n.author,
					maxRangeSubject),
			)
		}
		c.out.Moved = append(c.out.Moved, p)
	}
	for _, n := range c.new {
		if !c.taken[n.sha] {
			c.out.Moved = append(c.out.Moved, workorder.RangePair{New: n.sha, Subject: n.subject, How: workorder.RangeAdded, Reason: byRebase})
		}
	}
	return nil
}

func (c *comparison) problem(format string, a ...any) {
	if len(c.out.Problems) < maxProblems {
		c.out.Problems = append(c.out.Problems, fmt.Sprintf(format, a...))
	}
}

// gone describes a commit without a successor. That is right only if the new base has its change.
func (c *comparison) gone(ctx context.Context, o *rangeCommit, on string) (workorder.RangePair, error) {
	p := workorder.RangePair{Old: o.sha, Subject: o.subject, How: workorder.RangeDropped, Reason: inBase}
	m, err := c.move(ctx, o, on)
	if err != nil {
		return p, err
	}
	at, err := c.tree(ctx, on)
	if err != nil {
		return p, err
	}
	switch {
	case len(m.files) > 0:
		c.out.Conflicts = append(c.out.Conflicts, m.files...)
		p.Reason = "left out, where it conflicted in " + named(m.files)
		c.problem("the commit %.12s %q is gone: it conflicted in %s and was left out", o.sha, o.subject, named(m.files))
	case m.tree != at:
		p.Reason = leftOut
		c.problem("the commit %.12s %q is gone, though its change is not in the new base", o.sha, o.subject)
	}
	return p, nil
}

// changed returns why a commit differs.
func (c *comparison) changed(ctx context.Context, o, n *rangeCommit) (workorder.RangePair, error) {
	p := workorder.RangePair{Old: o.sha, New: n.sha, Subject: n.subject, How: workorder.RangeChanged}
	m, err := c.move(ctx, o, n.parent)
	if err != nil {
		return p, err
	}
	nothing, err := c.tree(ctx, n.parent)
	if err != nil {
		return p, err
	}
	switch {
	case len(m.files) > 0:
		c.out.Conflicts = append(c.out.Conflicts, m.files...)
		p.Reason = "conflict in " + named(m.files) + ", resolved by " + cmp.Or(c.Resolver, "git")
		if err := c.marks(ctx, o, n, m.files); err != nil {
			return p, err
		}
	case m.tree == n.tree:
		p.Reason = around
	default:
		p.Reason = altered
	}
	if n.tree == nothing {
		p.Reason += "; nothing is left of it"
	}
	return p, nil
}

func named(files []string) string {
	var s []string
	for _, f := range files[:min(len(files), maxFiles)] {
		s = append(s, text.Name(f, maxRangeSubject))
	}
	list := strings.Join(s, ", ")
	if more := len(files) - maxFiles; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return list
}

// rebasedCommit is a commit that git rebased onto another parent.
type rebasedCommit struct {
	tree  string
	files []string // files with conflicts
}

// move rebases a commit onto another one without a work tree: two temporary commits make its parent the merge base.
func (c *comparison) move(ctx context.Context, o *rangeCommit, on string) (m rebasedCommit, err error) {
	at, err := c.tree(ctx, on)
	if err != nil {
		return m, err
	}
	var sides [2]string
	for i, tree := range []string{at, o.tree} {
		args := []string{"commit-tree", "-m", "side", tree}
		if o.parent != "" {
			args = append(args, "-p", o.parent)
		}
		out, err := c.git.Output(ctx, args...)
		if err != nil {
			return m, err
		}
		sides[i] = strings.TrimSpace(string(out))
	}
	out, err := c.git.Output(
		ctx, "merge-tree", "--write-tree", "--allow-unrelated-histories", "--no-messages", "--name-only", "-z", sides[0], sides[1],
	)
	if err != nil && proc.ExitCode(err) != 1 {
		return m, err
	}
	f := strings.Split(strings.TrimRight(string(out), "\x00\n"), "\x00")
	m.tree = f[0]
	if err != nil {
		m.files = slices.DeleteFunc(f[1:], func(s string) bool { return s == "" })
	}
	return m, nil
}

func (c *comparison) tree(ctx context.Context, sha string) (string, error) {
	out, err := c.git.Output(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", sha+"^{tree}")
	return strings.TrimSpace(string(out)), err
}

// marks looks for conflict markers in the conflicting files, except markers that either side already has.
func (c *comparison) marks(ctx context.Context, o, n *rangeCommit, files []string) error {
	now, err := c.marked(ctx, n.sha, files)
	if err != nil || len(now) == 0 {
		return err
	}
	for _, side := range []string{o.sha, n.parent} {
		was, err := c.marked(ctx, side, files)
		if err != nil {
			return err
		}
		for line := range was {
			delete(now, line)
		}
	}
	if len(now) == 0 {
		return nil
	}
	in := map[string]bool{}
	for line := range now {
		in[line.file] = true
	}
	c.problem("conflict markers are left in %s by %.12s %q", named(slices.Sorted(maps.Keys(in))), n.sha, n.subject)
	return nil
}

type mark struct{ file, line string }

func (c *comparison) marked(ctx context.Context, sha string, files []string) (map[mark]bool, error) {
	list := map[mark]bool{}
	// Files are names, not patterns.
	args := []string{
		"--literal-pathspecs", "grep", "-z", "-I", "--no-color", "-E", `^(<<<<<<<|=======|>>>>>>>|\|\|\|\|\|\|\|)( |$|` + "\r)", sha, "--",
	}
	out, err := c.git.Output(ctx, append(args, files...)...)
	if err != nil && proc.ExitCode(err) != 1 {
		return nil, err
	}
	// "commit:path<NUL>line<newline>"
	for rec := range strings.Lines(string(out)) {
		name, line, ok := strings.Cut(rec, "\x00")
		if ok {
			list[mark{strings.TrimPrefix(name, sha+":"), strings.TrimRight(line, "\r\n")}] = true
		}
	}
	return list, nil
}
