package testreport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// maxChanges bounds the examined files of a diff.
	maxChanges = 5000
	// maxEdited bounds the named test files; one more flag covers the others. maxCheckEdits bounds the flags for files
	// that decide what checks run.
	maxEdited     = 50
	maxCheckEdits = 100
	// renameLimit is the number of files that git compares with each other to find renames.
	renameLimit = 1000
	// editsTime bounds reading a diff.
	editsTime = 2 * time.Minute
)

// Edited describes the files of tests and checks that differ between two commits.
type Edited struct {
	// Flags has one entry for each file of base that is edited or deleted.
	Flags []workorder.TestFinding
	// BaseTests are the paths of the test files on base, HeadTests the paths on head that base does not have.
	BaseTests, HeadTests []string
}

// FindEdited compares two commits, given as full ids, by their objects. With an error it returns what it found so far.
func FindEdited(ctx context.Context, repo git.Repo, base, head string, commands Commands) (*Edited, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, editsTime, fmt.Errorf("the change is too large for %s", editsTime))
	defer cancel()
	out := &Edited{}
	c := &change{ctx: ctx, repo: repo, base: base, head: head}
	if err := c.list(); err != nil {
		return out, errors.Join(err, context.Cause(ctx))
	}
	out.addTests(c)
	if err := out.addChecks(c, commands); err != nil {
		return out, errors.Join(err, context.Cause(ctx))
	}
	if c.truncated {
		return out, fmt.Errorf("compare the files of tests and checks: only the first %d changed files were inspected", maxChanges)
	}
	return out, nil
}

func (e *Edited) addTests(c *change) {
	ofBase := map[string]bool{}
	more, rest := workorder.TestFinding{Kind: workorder.FindingTestEdited}, 0
	for _, f := range c.files {
		if !ofTests(f.oldPath) {
			if f.oldPath == "" && ofTests(f.newPath) {
				e.HeadTests = append(e.HeadTests, f.newPath)
			}
			continue
		}
		e.BaseTests = append(e.BaseTests, f.oldPath)
		ofBase[f.oldPath] = true
		if f.newPath != "" {
			e.HeadTests = append(e.HeadTests, f.newPath)
		}
		flag := f.testFlag()
		switch {
		case f.oldID == f.newID && flag.Kind == workorder.FindingTestEdited: // only the name or the mode differs
		case flag.Kind == workorder.FindingTestEdited && len(e.Flags) >= maxEdited:
			rest++
			more.Added, more.Deleted = more.Added+flag.Added, more.Deleted+flag.Deleted
		default:
			e.Flags = append(e.Flags, flag)
		}
	}
	e.HeadTests = slices.DeleteFunc(e.HeadTests, func(p string) bool { return ofBase[p] })
	if rest > 0 {
		more.Text = fmt.Sprintf("%d more files: +%d −%d", rest, more.Added, more.Deleted)
		e.Flags = append(e.Flags, more)
	}
}

// addChecks adds the files that decide what checks run, and those that a command names.
func (e *Edited) addChecks(c *change, commands Commands) error {
	n := 0
	for _, f := range c.files {
		if n == maxCheckEdits {
			break
		}
		if f.oldID == f.newID && f.oldPath == f.newPath {
			continue
		}
		text := ""
		if name := commands.namedBy(f.oldPath); name != "" && f.oldID != f.newID {
			text = fmt.Sprintf("the command %q runs or reads it", name)
		} else {
			var err error
			if text, err = c.decidesChecks(f); err != nil {
				return err
			}
		}
		if text == "" {
			continue
		}
		e.Flags = append(e.Flags, f.flag(workorder.FindingCheckEdited, text+": "+f.size()))
		n++
	}
	return nil
}

// fileChange is a file that differs between the commits. A side without the file has no path; a link or submodule has no id.
type fileChange struct {
	oldPath, newPath string
	oldID, newID     string
	added, deleted   int // lines
}

func (f *fileChange) size() string {
	size := fmt.Sprintf("+%d −%d", f.added, f.deleted)
	switch {
	case f.newPath == "":
		return "the file is deleted: " + size
	case f.oldPath != "" && f.newPath != f.oldPath:
		return size + ", renamed from " + f.oldPath
	}
	return size
}

func (f *fileChange) flag(kind, text string) workorder.TestFinding {
	return workorder.TestFinding{Kind: kind, Path: oneLine(cmp.Or(f.newPath, f.oldPath), 4*maxFlagText), Text: oneLine(text, maxFlagText)}
}

func (f *fileChange) testFlag() workorder.TestFinding {
	flag := f.flag(workorder.FindingTestEdited, f.size())
	switch {
	case f.newPath == "":
		flag.Kind = workorder.FindingTestDeleted
	case isTest(f.oldPath) && !isTest(f.newPath):
		flag = f.flag(workorder.FindingTestDeleted,
			fmt.Sprintf("the file is now %s, where no test runner looks: +%d −%d", f.newPath, f.added, f.deleted))
		flag.Path = oneLine(f.oldPath, 4*maxFlagText)
	}
	flag.Added, flag.Deleted = f.added, f.deleted
	return flag
}

// change lists the files that differ between two commits.
type change struct {
	ctx        context.Context // of one call, not kept
	repo       git.Repo
	base, head string
	files      []*fileChange
	truncated  bool // more than maxChanges files differ
}

// diff returns git's arguments for the difference in a format.
func (c *change) diff(format string) []string {
	return []string{
		"-c", "core.quotePath=false", "diff-tree", "-r", "-z", format, "--no-abbrev", "--no-textconv", "--no-ext-diff",
		"-M50%", fmt.Sprintf("-l%d", renameLimit), c.base, c.head, "--",
	}
}

func (c *change) list() error {
	if !git.ValidSHA(c.base) || !git.ValidSHA(c.head) {
		return fmt.Errorf("compare the tests of %q and %q: both must be full commit ids", c.base, c.head)
	}
	var rec []string
	err := c.repo.Each(c.ctx, func(r string) {
		if rec = append(rec, r); len(rec) == fieldsOf(rec[0]) {
			c.record(rec)
			rec = nil
		}
	}, c.diff("--raw")...)
	if err != nil {
		return fmt.Errorf("list what differs between %.12s and %.12s: %w", c.base, c.head, err)
	}
	return c.countLines()
}

// fieldsOf returns the number of fields of a --raw -z record: a rename has two paths.
func fieldsOf(head string) int {
	f := strings.Fields(head)
	if len(f) == 5 && (f[4][0] == 'R' || f[4][0] == 'C') {
		return 3
	}
	return 2
}

func (c *change) record(rec []string) {
	f := strings.Fields(strings.TrimPrefix(rec[0], ":"))
	if len(f) != 5 || len(c.files) == maxChanges {
		c.truncated = true
		return
	}
	fc := &fileChange{oldPath: rec[1], newPath: rec[len(rec)-1], oldID: f[2], newID: f[3]}
	switch f[4][0] {
	case 'A':
		fc.oldPath = ""
	case 'D':
		fc.newPath = ""
	}
	const regular = "100"
	if !strings.HasPrefix(f[0], regular) {
		fc.oldID = ""
	}
	if !strings.HasPrefix(f[1], regular) {
		fc.newID = ""
	}
	c.files = append(c.files, fc)
}

// countLines counts the added and deleted lines of each file.
func (c *change) countLines() error {
	files := map[string]*fileChange{}
	for _, f := range c.files {
		files[cmp.Or(f.newPath, f.oldPath)] = f
	}
	var size [2]int
	set := func(p string) {
		if f := files[p]; f != nil {
			f.added, f.deleted = size[0], size[1]
		}
	}
	names := 0 // of a rename, which are still to come
	err := c.repo.Each(c.ctx, func(rec string) {
		if names > 0 {
			if names--; names == 0 {
				set(rec)
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
		set(f[2])
	}, c.diff("--numstat")...)
	if err != nil {
		return fmt.Errorf("count the lines that differ between %.12s and %.12s: %w", c.base, c.head, err)
	}
	return nil
}

// text reads a file of a commit; empty without one.
func (c *change) text(id string) (string, error) {
	if strings.Trim(id, "0") == "" {
		return "", nil
	}
	out, err := c.repo.Output(c.ctx, "cat-file", "blob", id)
	if err != nil {
		return "", fmt.Errorf("read a changed file: %w", err)
	}
	return string(out), nil
}
