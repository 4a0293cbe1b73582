package sensitivefiles

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// perRule is the number of paths that a report lists for each rule; the last one says how many more there are.
	perRule = 10
	// maxPath is the number of characters of a path that a report shows.
	maxPath = 300
)

// Empty trees, for a base that does not exist. git knows them without having them.
const (
	emptyTreeSHA1   = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
	emptyTreeSHA256 = "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321"
)

// Modes of entries in git's trees.
const (
	modeNone       = "000000"
	modeExecutable = "100755"
	modeLink       = "120000"
	modeSubmodule  = "160000"
)

// Report compares two commits, given by their full ids; an empty base is an empty repository. It lists severe findings
// first, then in the order of the rules. With an error it returns the findings made until then.
func Report(ctx context.Context, repo git.Repo, base, head string) ([]workorder.SurfaceFinding, error) {
	if !git.ValidSHA(head) || base != "" && !git.ValidSHA(base) {
		return nil, fmt.Errorf("list sensitive files: %q and %q must be full commit ids", base, head)
	}
	empty := emptyTreeSHA1
	if len(head) == len(emptyTreeSHA256) {
		empty = emptyTreeSHA256
	}
	// The repository's own configuration can replace objects, and its attributes can declare a program to be text.
	repo.Env = append(slices.Clone(repo.Env), "GIT_NO_REPLACE_OBJECTS=1", "GIT_NO_LAZY_FETCH=1", "GIT_ATTR_SOURCE="+empty)
	repo.Auth = nil
	d := &diff{repo: repo, base: cmp.Or(base, empty), head: head, executables: map[string]bool{}}
	err := d.modes(ctx)
	if err == nil {
		err = d.binaries(ctx)
	}
	if err != nil {
		err = fmt.Errorf("list sensitive files from %.12s to %.12s: %w", base, head, err)
	}
	return d.report(), err
}

// diff collects facts about the paths that differ between two commits.
type diff struct {
	repo        git.Repo
	base, head  string
	executables map[string]bool // changed files that head has with the executable bit
	facts       []fact
}

// fact is a rule that applies to a path, and what happened to the path.
type fact struct {
	rule int // index in rules
	path string
	verb string
}

func (d *diff) add(rule int, path, verb string) { d.facts = append(d.facts, fact{rule, path, verb}) }

// each calls f for each record of git diff-tree.
func (d *diff) each(ctx context.Context, f func(record string), args ...string) error {
	args = append([]string{"diff-tree", "-r", "-z", "--no-renames", "--no-ext-diff", "--no-textconv", "--ignore-submodules=none"}, args...)
	return d.repo.Each(ctx, f, append(args, "--end-of-options", d.base, d.head)...)
}

func (d *diff) modes(ctx context.Context) error {
	var meta []string
	return d.each(ctx, func(record string) {
		if meta == nil {
			meta = append(strings.Fields(strings.TrimPrefix(record, ":")), "", "")
			return
		}
		d.mode(record, meta[0], meta[1])
		meta = nil
	}, "--raw")
}

func (d *diff) mode(path, was, is string) {
	verb := "changed"
	switch modeNone {
	case was:
		verb = "new"
	case is:
		verb = "deleted"
	}
	if rule := classify(path); rule >= 0 {
		d.add(rule, path, verb)
	}
	if is == modeNone {
		return
	}
	switch is {
	case modeSubmodule:
		d.add(submodule, path, verb)
	case modeLink:
		d.add(symlink, path, verb)
	case modeExecutable:
		d.executables[path] = true
		if was != modeExecutable {
			d.add(executable, path, verb)
		}
	}
	if was == modeNone && strings.ContainsFunc(path, text.IsInvisible) {
		d.add(hiddenName, path, verb)
	}
}

// binaries adds the files that git takes for binary, which no review can read. Files of a rule are listed already, and
// pictures, sounds and fonts run nothing unless they have the executable bit.
func (d *diff) binaries(ctx context.Context) error {
	return d.each(ctx, func(record string) {
		path, ok := strings.CutPrefix(record, "-\t-\t")
		switch {
		case !ok:
		case d.executables[path]:
			d.add(program, path, "new or changed")
		case classify(path) < 0 && !media(path):
			d.add(binary, path, "new or changed")
		}
	}, "--numstat", "--diff-filter=d")
}

// report sorts the facts and lists the first of each rule. Paths close to the root come first: they matter most, and copied
// code lies deeper.
func (d *diff) report() []workorder.SurfaceFinding {
	slices.SortStableFunc(d.facts, func(a, b fact) int {
		severe := func(f fact) int {
			if rules[f.rule].severe {
				return 0
			}
			return 1
		}
		depth := func(f fact) int { return strings.Count(f.path, "/") }
		return cmp.Or(severe(a)-severe(b), a.rule-b.rule, depth(a)-depth(b), strings.Compare(a.path, b.path))
	})
	count := map[int]int{}
	for _, f := range d.facts {
		count[f.rule]++
	}
	found, listed := []workorder.SurfaceFinding{}, map[int]int{}
	for _, f := range d.facts {
		n := listed[f.rule] + 1
		if listed[f.rule] = n; n > perRule {
			continue
		}
		r := rules[f.rule]
		s := f.verb + "; " + r.why
		if more := count[f.rule] - n; n == perRule && more > 0 {
			s += fmt.Sprintf("; %d more like it", more)
		}
		found = append(found, workorder.SurfaceFinding{Kind: r.kind, Path: text.Runes(shown(f.path), maxPath), Text: s, Severe: r.severe})
	}
	return found
}

// shown returns a path as it can be displayed: one with characters that are not shown has them escaped.
func shown(path string) string {
	if utf8.ValidString(path) && !strings.ContainsFunc(path, text.IsInvisible) {
		return path
	}
	return strings.Trim(strconv.QuoteToASCII(path), `"`)
}
