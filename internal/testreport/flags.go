package testreport

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/pattern"
	texts "github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// maxFlags bounds the flags of a change, maxFlagText one's words in bytes.
	maxFlags    = 100
	maxFlagText = 300
	// maxNamed is how many tests a flag names.
	maxNamed = 5
)

// re is short, for tables of patterns.
var re = pattern.New

// squeeze makes lines comparable that differ in blanks only.
func squeeze(line string) string { return texts.Words(line) }

// Observed is what running the checks of two commits showed.
type Observed struct {
	Commands map[string]string      // the validate commands, by name
	Setup    map[string]string      // the commands before them, by name
	Tests    []workorder.TestChange // what Compare found, for all of them
}

// Flags returns what the reports say against the checks, and edits of what the checks run. It reads the
// difference of two commits, given as full ids, from objects alone. Beside an error comes what was found.
func Flags(ctx context.Context, repo git.Repo, base, head string, o Observed) ([]workorder.Flag, error) {
	ctx, cancel := context.WithTimeout(ctx, flagsTime)
	defer cancel()
	fs := &flagger{ctx: ctx, have: map[workorder.Flag]bool{}}
	fs.reported(o.Tests)
	c, err := readChange(ctx, repo, base, head)
	if err != nil {
		return fs.bounded(), err
	}
	if err := fs.findEdited(c, o); err != nil {
		return fs.bounded(), err
	}
	if err := ctx.Err(); err != nil {
		return fs.bounded(), fmt.Errorf("look for edited checks: the change is too large for %s: %w", flagsTime, err)
	}
	if c.short != "" {
		return fs.bounded(), fmt.Errorf("look for edited checks: %s", c.short)
	}
	return fs.bounded(), nil
}

// flagger collects flags.
type flagger struct {
	flags []workorder.Flag
	have  map[workorder.Flag]bool
	ctx   context.Context // of one call, not kept
}

// late reports whether there is no time left; Flags then says so.
func (fs *flagger) late() bool { return fs.ctx.Err() != nil }

func (fs *flagger) line(kind, path string, line int, text string) {
	f := workorder.Flag{Kind: kind, Path: oneLine(path, 4*maxFlagText), Line: line, Text: oneLine(text, maxFlagText)}
	if !fs.have[f] {
		fs.have[f] = true
		fs.flags = append(fs.flags, f)
	}
}

func (fs *flagger) bounded() []workorder.Flag { return fs.flags[:min(len(fs.flags), maxFlags)] }

// SortFlags orders flags for a reader: edited tests first, and what is worse before the rest.
func SortFlags(flags []workorder.Flag) {
	slices.SortStableFunc(flags, func(a, b workorder.Flag) int {
		return cmp.Or(
			cmp.Compare(slices.Index(kinds, a.Kind), slices.Index(kinds, b.Kind)),
			strings.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line))
	})
}

var kinds = []string{
	workorder.FlagTestEdited, workorder.FlagBaseTests, workorder.FlagBrokenOnHead, workorder.FlagTestDeleted, workorder.FlagTestSkipped,
	workorder.FlagReportMissing, workorder.FlagCheckEdited, workorder.FlagNothingProven,
}

// reported flags what the reports of base and head tell: what broke, and tests that are gone or skipped.
func (fs *flagger) reported(changes []workorder.TestChange) {
	fresh := map[string]int{} // new tests by suite and parent
	for _, c := range changes {
		if c.Transition == workorder.NewPasses || c.Transition == workorder.NewFails {
			fresh[parent(c)]++
		}
	}
	var gone, skipped []string
	for _, c := range changes {
		switch c.Transition {
		case workorder.Broken:
			first, _, _ := strings.Cut(c.Text, "\n")
			fs.line(workorder.FlagBrokenOnHead, "", 0, strings.TrimSuffix(fullName(c)+": "+first, ": "))
		case workorder.Gone:
			if p := parent(c); fresh[p] > 0 && !strings.HasSuffix(p, "\x00") { // a case of a table that reads otherwise now
				fresh[p]--
				continue
			}
			gone = append(gone, fullName(c))
		case workorder.NowSkipped:
			skipped = append(skipped, fullName(c))
		}
	}
	if len(gone) > 0 {
		fs.line(workorder.FlagTestDeleted, "", 0, named(gone)+" (ran on base, not on head)")
	}
	if len(skipped) > 0 {
		fs.line(workorder.FlagTestSkipped, "", 0, named(skipped)+" (skipped on head)")
	}
}

func fullName(c workorder.TestChange) string { return strings.TrimPrefix(c.Suite+" > "+c.Name, " > ") }

// FailedNames counts tests and names the first of them.
func FailedNames(tests []workorder.TestChange) string {
	names := make([]string, len(tests))
	for i, t := range tests {
		names[i] = fullName(t)
	}
	if len(names) == 1 {
		return "1 fails: " + names[0]
	}
	return fmt.Sprintf("%d fail: %s", len(names), first(names))
}

// named counts tests and names the first of them.
func named(names []string) string {
	if len(names) == 1 {
		return "1 test: " + names[0]
	}
	return fmt.Sprintf("%d tests: %s", len(names), first(names))
}

func first(names []string) string {
	if len(names) <= maxNamed {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:maxNamed], ", ") + ", …"
}

// parent is the suite of a test, and what groups it there; "" after the separator for a test of no group.
func parent(c workorder.TestChange) string {
	i := max(strings.LastIndexByte(c.Name, '/'), strings.LastIndex(c.Name, " > "), strings.IndexByte(c.Name, '['))
	return c.Suite + "\x00" + c.Name[:max(i, 0)]
}
