package testreport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/pattern"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// testNames are how the files of a language's tests are called: file matches their base name, dir a directory on the way to them.
type testNames struct{ file, dir *pattern.Pattern }

var (
	goNames = testNames{file: re(`_test\.go$`)}
	jsNames = testNames{
		file: re(`[.\-_](?:test|spec|e2e|cy)\.[cm]?[jt]sx?$|^test[.\-_]?\w*\.[cm]?[jt]sx?$`),
		dir:  re(`^(?:__tests__|tests?|specs?|e2e|cypress)$`),
	}
	pythonNames = testNames{file: re(`^test_.*\.py$|_tests?\.py$|^tests?\.py$`)}
	javaNames   = testNames{
		file: re(`(?:Tests?|IT|Spec|TestCase)\.(?:java|kts?|groovy)$`),
		dir:  re(`^(?:test|androidTest|integrationTest|\w+Test)$`),
	}
	csharpNames = testNames{file: re(`(?:Tests?|Specs?|Fixture)\.cs$`), dir: re(`(?i)^(?:.*\.)?(?:unit|integration)?tests?$`)}
	rubyNames   = testNames{file: re(`_(?:spec|test)\.rb$|^test_.*\.rb$`)}
	rustNames   = testNames{file: re(`^tests?\.rs$|_tests?\.rs$`), dir: re(`^tests$`)}
	phpNames    = testNames{file: re(`(?:Test|Cest|Spec)\.php$`), dir: re(`(?i)^tests?$`)}
)

// programs are the extensions of source files, with the names of their tests.
var programs = map[string]testNames{
	".go": goNames,
	".js": jsNames, ".jsx": jsNames, ".mjs": jsNames, ".cjs": jsNames, ".ts": jsNames, ".tsx": jsNames, ".mts": jsNames, ".cts": jsNames,
	".vue": jsNames, ".svelte": jsNames,
	".py":   pythonNames,
	".java": javaNames, ".kt": javaNames, ".kts": javaNames, ".groovy": javaNames,
	".cs": csharpNames, ".rb": rubyNames, ".rs": rustNames, ".php": phpNames,
}

// isProgram reports whether a path is one of a source file.
func isProgram(p string) bool {
	_, ok := programs[path.Ext(p)]
	return ok
}

// isTest reports whether a test runner would look for tests in a file, by its name.
func isTest(p string) bool {
	names, ok := programs[path.Ext(p)]
	if !ok {
		return false
	}
	if path.Ext(p) == ".go" && ignoredByGo.MatchString("/"+p) {
		return false
	}
	dir, base := path.Split(p)
	return names.file.MatchString(base) || names.dir != nil && slices.ContainsFunc(strings.Split(dir, "/"), names.dir.MatchString)
}

var ignoredByGo = re(`/testdata/|/_|/\.[^/]*$`)

var (
	// testData matches what tests read or load, expectation the files with the output that they expect.
	testData = re(`(?:^|/)(?:testdata|fixtures|__\w+__|tests?|e2e)/|(?:^|/)conftest\.py$|(?:^|/)spec/.*\.rb$`)

	expectation = re(`(?i)(?:^|/)(?:goldens?|golden[-_]files|snapshots?|expected|approvals?)/|\.snap$|\.ambr$|\.approved\.\w+$` +
		`|\.(?:expected|expect|want|golden)(?:\.\w+)?$|[._-](?:expected|golden)\.\w+$|(?:^|/)(?:expected|want)[\w-]*\.\w+$`)
)

// ofTests reports whether a file is a test or belongs to tests.
func ofTests(p string) bool {
	return p != "" && (isTest(p) || testData.MatchString(p) || !isProgram(p) && expectation.MatchString(p))
}

// maxEdited bounds the edited test files that are named; those beyond it are one flag.
const maxEdited = 50

// TestFiles are the files of tests that differ between two commits.
type TestFiles struct {
	// Flags are one for each file of base that is edited or deleted.
	Flags []workorder.Flag
	// Base are the paths of these files on base, Head the paths on head that base does not have.
	Base, Head []string
}

// EditedTests compares the test files of two commits, given as full ids, from objects alone.
func EditedTests(ctx context.Context, repo git.Repo, base, head string) (*TestFiles, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, flagsTime, fmt.Errorf("the change is too large for %s", flagsTime))
	defer cancel()
	c, err := listChange(ctx, repo, base, head)
	if err != nil {
		return nil, errors.Join(err, context.Cause(ctx))
	}
	sizes, err := c.sizes()
	if err != nil {
		return nil, err
	}
	out := &TestFiles{}
	kept := map[string]bool{}
	more, rest := workorder.Flag{Kind: workorder.FlagTestEdited}, 0
	for _, f := range c.files {
		if !ofTests(f.oldPath) {
			if f.oldPath == "" && ofTests(f.newPath) {
				out.Head = append(out.Head, f.newPath)
			}
			continue
		}
		out.Base = append(out.Base, f.oldPath)
		kept[f.oldPath] = true
		if f.newPath != "" {
			out.Head = append(out.Head, f.newPath)
		}
		flag := f.edited(sizes[cmp.Or(f.newPath, f.oldPath)])
		switch {
		case f.oldID == f.newID && flag.Kind == workorder.FlagTestEdited: // only the name or the mode differs
		case flag.Kind == workorder.FlagTestEdited && len(out.Flags) >= maxEdited:
			rest++
			more.Added, more.Deleted = more.Added+flag.Added, more.Deleted+flag.Deleted
		default:
			out.Flags = append(out.Flags, flag)
		}
	}
	out.Head = slices.DeleteFunc(out.Head, func(p string) bool { return kept[p] })
	if rest > 0 {
		more.Text = fmt.Sprintf("%d more files: +%d −%d", rest, more.Added, more.Deleted)
		out.Flags = append(out.Flags, more)
	}
	if c.short != "" {
		return out, fmt.Errorf("compare the test files: %s", c.short)
	}
	return out, nil
}

// edited is the flag for a test file of base.
func (f *fileChange) edited(size [2]int) workorder.Flag {
	flag := workorder.Flag{Kind: workorder.FlagTestEdited, Path: f.newPath, Added: size[0], Deleted: size[1]}
	flag.Text = fmt.Sprintf("+%d −%d", size[0], size[1])
	switch {
	case f.newPath == "":
		flag.Kind, flag.Path, flag.Text = workorder.FlagTestDeleted, f.oldPath, "the file is deleted: "+flag.Text
	case isTest(f.oldPath) && !isTest(f.newPath):
		flag.Kind, flag.Path = workorder.FlagTestDeleted, f.oldPath
		flag.Text = fmt.Sprintf("the file is now %s, where no test runner looks: %s", f.newPath, flag.Text)
	case f.newPath != f.oldPath:
		flag.Text += ", renamed from " + f.oldPath
	}
	flag.Path, flag.Text = oneLine(flag.Path, 4*maxFlagText), oneLine(flag.Text, maxFlagText)
	return flag
}

// sizes are the lines added and deleted in each file, by its path on head, or on base where head does not have it.
func (c *change) sizes() (map[string][2]int, error) {
	all := map[string][2]int{}
	var size [2]int
	names := 0 // of a rename, which are still to come
	err := c.repo.Each(c.ctx, func(rec string) {
		if names > 0 {
			if names--; names == 0 {
				all[rec] = size
			}
			return
		}
		f := strings.SplitN(rec, "\t", 3)
		if len(f) != 3 {
			return
		}
		for i := range size {
			size[i], _ = strconv.Atoi(f[i]) // "-" of a binary file is 0
		}
		if f[2] == "" {
			names = 2
			return
		}
		all[f[2]] = size
	}, c.diff("--numstat")...)
	if err != nil {
		return nil, fmt.Errorf("count the lines that differ between %.12s and %.12s: %w", c.base, c.head, err)
	}
	return all, nil
}
