package testreport

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// maxFlags bounds the flags of a change, maxFlagText one's words in bytes.
	maxFlags    = 100
	maxFlagText = 300
)

// kinds orders flags for a reader.
var kinds = []string{
	workorder.FlagBrokenOnHead, workorder.FlagTestDeleted, workorder.FlagTestSkipped, workorder.FlagTestWeakened,
	workorder.FlagCheckEdited, workorder.FlagHardCoded,
}

// Observed is what running the checks of two commits showed.
type Observed struct {
	Commands map[string]string      // the validate commands, by name
	Setup    map[string]string      // the commands before them, by name
	Fixed    []string               // names of those that failed on base and passed on head
	Tests    []workorder.TestChange // what Compare found, for all of them
}

// Flags says what a reviewer should see before believing the checks: it reads
// the difference of two commits, given as full ids, from objects alone. Beside an error comes what was found.
func Flags(ctx context.Context, repo git.Repo, base, head string, o Observed) ([]workorder.Flag, error) {
	ctx, cancel := context.WithTimeout(ctx, flagsTime)
	defer cancel()
	fs := &flagger{ctx: ctx, explained: map[string]bool{}, have: map[workorder.Flag]bool{}}
	c, err := readChange(ctx, repo, base, head)
	if err != nil {
		fs.reported(o.Tests)
		return fs.sorted(), err
	}
	s := gather(c)
	fs.findDeleted(s)
	fs.findSkipped(s)
	fs.findWeakened(s)
	fs.findRewritten(c)
	fs.findAdapted(s, o)
	fs.reported(o.Tests)
	if err := fs.findEdited(c, o); err != nil {
		return fs.sorted(), err
	}
	if err := fs.findHardCoded(c, s); err != nil {
		return fs.sorted(), err
	}
	fs.findTestsOnly(c, o)
	if err := ctx.Err(); err != nil {
		return fs.sorted(), fmt.Errorf("look for weakened tests between %.12s and %.12s: the change is too large for %s: %w", base, head, flagsTime, err)
	}
	if c.short != "" {
		return fs.sorted(), fmt.Errorf("look for weakened tests: %s", c.short)
	}
	return fs.sorted(), nil
}

// flagger collects flags.
type flagger struct {
	flags []workorder.Flag
	have  map[workorder.Flag]bool
	// explained are tests, by their own name, of which the sources say what became.
	explained map[string]bool
	ctx       context.Context //nolint:containedctx // one call's work, not kept
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

// at flags a line of a test, counted from 0.
func (fs *flagger) at(kind string, t *testFunc, line int, format string, args ...any) {
	fs.explained[t.leaf] = true
	fs.line(kind, t.path, line+1, fmt.Sprintf(format, args...))
}

func (fs *flagger) sorted() []workorder.Flag {
	slices.SortStableFunc(fs.flags, func(a, b workorder.Flag) int {
		return cmp.Or(cmp.Compare(slices.Index(kinds, a.Kind), slices.Index(kinds, b.Kind)), strings.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line))
	})
	return fs.flags[:min(len(fs.flags), maxFlags)]
}

// findRewritten flags snapshots and golden files that were changed together with
// the code that makes them: the test then proves only that the code does what it does.
func (fs *flagger) findRewritten(c *change) {
	code := ""
	var files []string
	for _, f := range c.files {
		switch {
		case f.oldPath != "" && f.newPath != "" && f.oldID != f.newID && expectation.MatchString(f.newPath):
			files = append(files, f.newPath)
		case f.newPath != "" && product(f.newPath):
			code = f.newPath
		}
	}
	if code == "" || len(files) == 0 {
		return
	}
	more := ""
	if len(files) > 1 {
		more = fmt.Sprintf(" (and %d more files)", len(files)-1)
	}
	fs.line(workorder.FlagTestWeakened, files[0], 0, "expected output was rewritten together with the code"+more)
}

// product reports whether a file is code that tests are about.
func product(p string) bool {
	return languageOf(p) != nil && !isTestFile(p) && !support.MatchString(p) && !expectation.MatchString(p)
}
