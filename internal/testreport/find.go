package testreport

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

// FileState is the state of a work tree's report files at one moment: a report from before a command says nothing about
// it, and file systems' clocks are too coarse to compare.
type FileState map[string]stamp

type stamp struct {
	size, inode   int64
	written, made int64 // nanoseconds of modification and of the inode's change
}

// ReportFile is a report file that a command wrote.
type ReportFile struct {
	Path   string // in the work tree, with slashes
	Format Format
}

const (
	// maxWalked bounds the visited entries of a work tree, maxReports the files: surefire writes one per class.
	maxWalked  = 500_000
	maxReports = 5000
	// maxTotal bounds the bytes of all report files of one command.
	maxTotal = 256 << 20
	// maxDirDepth bounds the depth of the search; a multi-module build has reports at 4 to 6.
	maxDirDepth = 10
	// headBytes is the part of a file that Detect gets.
	headBytes = 64 << 10
	// findTime bounds the search. A tree of 500,000 entries takes some 3 s.
	findTime = 20 * time.Second
)

// pruned are directories without reports of this repository's tests.
var pruned = []string{".git", "node_modules", ".venv", "venv", "vendor", "site-packages", ".tox", ".nox", ".cache", "__pycache__"}

// usualNames match the paths that runners and their documentation use.
var usualNames = lazyregexp.New(`(?i)(?:^|/)(?:` +
	`(?:[\w.-]*[._-])?(?:junit|xunit|pytest|rspec|phpunit|unittests?|tests?|nosetests|ctest|gotestsum)` +
	`(?:[._-]?(?:report|results?|output|tests?|junit|xunit))*\.xml` +
	`|(?:test-?)?(?:report|results?|reports)\.(?:xml|tap)` +
	`|(?:surefire-reports|failsafe-reports|test-results|test_results|test-reports|test_reports|testresults|reports?|junit)/` +
	`(?:[^/]+/){0,3}[^/]+\.xml` +
	`|TEST-[^/]+\.xml` +
	`|(?:[\w.-]*[._-])?(?:jest|vitest)(?:[._-]?(?:report|results?|output))*\.json` +
	`|(?:go-?)?test-?(?:report|results?|output)\.(?:json|jsonl|ndjson)` +
	`|[\w.-]+\.tap` +
	`)$`)

// MarkFiles records the report files before a command runs.
func MarkFiles(root *os.Root) (FileState, error) {
	m := FileState{}
	err := walk(root, func(p string, st stamp) { m[p] = st })
	return m, err
}

// Find lists the report files that were written since the mark.
func Find(root *os.Root, before FileState) ([]ReportFile, error) {
	var paths []string
	err := walk(root, func(p string, st stamp) {
		if before[p] != st {
			paths = append(paths, p)
		}
	})
	slices.Sort(paths)
	var found []ReportFile
	for _, p := range paths {
		if len(found) == maxReports {
			return found, fmt.Errorf("look for test reports: more than %d files; the rest is ignored", maxReports)
		}
		if f := detectFile(root, p); f != None {
			found = append(found, ReportFile{Path: p, Format: f})
		}
	}
	return found, err
}

// Read returns the report of a command: from files since the mark, and from its output. It is nil without one; an error
// may come with a part.
func Read(root *os.Root, before FileState, output io.Reader) (*Report, error) {
	found, err := Find(root, before)
	errs := []error{err}
	byFormat := map[Format]*Report{}
	left := int64(maxTotal)
	for _, f := range found {
		rep, err := readFile(root, f, &left)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.Path, err))
		}
		if rep != nil {
			merge(byFormat, rep)
		}
	}
	if output != nil {
		rep, err := parseOutput(output)
		if err != nil {
			errs = append(errs, fmt.Errorf("output of the command: %w", err))
		}
		if rep != nil {
			merge(byFormat, rep)
		}
	}
	all := joined(byFormat)
	if all != nil {
		all.Trim(root.Name())
	}
	return all, errors.Join(errs...)
}

// parseOutput reads a report in a command's output; nil without one.
func parseOutput(output io.Reader) (*Report, error) {
	all, err := io.ReadAll(io.LimitReader(output, maxReport))
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	f := Detect(all)
	if f == None {
		return nil, nil
	}
	return Parse(f, strings.NewReader(string(all)))
}

func merge(byFormat map[Format]*Report, rep *Report) {
	if have := byFormat[rep.Format]; have != nil {
		room := min(maxTests-len(have.Tests), len(rep.Tests))
		have.Tests = append(have.Tests, rep.Tests[:room]...)
		have.More += rep.More + len(rep.Tests) - room
		have.number()
		return
	}
	byFormat[rep.Format] = rep
}

// joined joins the reports of all formats, named by the one with most tests. A format whose tests all have names of the
// first is a copy of it and is left out.
func joined(byFormat map[Format]*Report) *Report {
	reps := slices.SortedFunc(maps.Values(byFormat), func(a, b *Report) int {
		return cmp.Or(cmp.Compare(len(b.Tests), len(a.Tests)), strings.Compare(string(a.Format), string(b.Format)))
	})
	if len(reps) == 0 {
		return nil
	}
	all := reps[0]
	known := map[string]bool{}
	for _, t := range all.Tests {
		known[t.Name] = true
	}
	for _, r := range reps[1:] {
		if slices.ContainsFunc(r.Tests, func(t Test) bool { return !known[t.Name] }) {
			all.Tests = append(all.Tests, r.Tests...)
			all.More += r.More
		}
	}
	all.number()
	return all
}

// walk calls f for each regular file with a usual name. The tree may change at any moment: each directory must have the
// identity that it was listed with, and no link is followed.
func walk(root *os.Root, f func(p string, st stamp)) error {
	w := &walker{f: f, left: maxWalked, end: time.Now().Add(findTime)}
	w.visitDir(root, "", 0)
	if w.left <= 0 {
		return fmt.Errorf("look for test reports: the work tree is too large; only %d entries were examined", maxWalked)
	}
	return nil
}

type walker struct {
	f    func(p string, st stamp)
	left int
	end  time.Time
}

func (w *walker) visitDir(dir *os.Root, at string, depth int) {
	self, err := dir.OpenFile(".", os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_DIRECTORY, 0)
	if err != nil {
		return // not readable, or gone: no reports here
	}
	defer self.Close()
	for {
		names, err := self.Readdirnames(512)
		for _, n := range names {
			if w.left--; w.left <= 0 {
				return
			}
			w.entry(dir, n, path.Join(at, n), depth)
		}
		if err != nil || len(names) == 0 {
			return
		}
		if time.Now().After(w.end) {
			w.left = 0
			return
		}
	}
}

func (w *walker) entry(dir *os.Root, n, p string, depth int) {
	usual := usualNames.MatchString(p)
	fi, err := dir.Lstat(n)
	switch {
	case err != nil:
	case fi.Mode().IsRegular() && usual:
		w.f(p, stampOf(fi))
	case fi.IsDir() && depth < maxDirDepth && !slices.Contains(pruned, n):
		sub, err := dir.OpenRoot(n)
		if err != nil {
			return
		}
		defer sub.Close()
		if now, err := sub.Stat("."); err == nil && os.SameFile(fi, now) {
			w.visitDir(sub, p, depth+1)
		}
	}
}

func stampOf(fi os.FileInfo) stamp {
	s := stamp{size: fi.Size(), written: fi.ModTime().UnixNano()}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		s.inode, s.made = int64(st.Ino), changed(st)
	}
	return s
}

var errNotRegular = errors.New("not a regular file")

// open opens a regular file of the tree.
func open(root *os.Root, p string) (*os.File, int64, error) {
	f, err := root.OpenFile(p, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fmt.Errorf("open %s: %w", p, errNotRegular)
	}
	if err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	return f, fi.Size(), nil
}

func detectFile(root *os.Root, p string) Format {
	f, _, err := open(root, p)
	if err != nil {
		return None
	}
	defer f.Close()
	head := make([]byte, headBytes)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return None
	}
	return Detect(head[:n])
}

func readFile(root *os.Root, found ReportFile, left *int64) (*Report, error) {
	f, size, err := open(root, found.Path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if *left -= size; *left < 0 {
		return nil, fmt.Errorf("the reports of the command exceed %d MiB in total", maxTotal>>20)
	}
	return Parse(found.Format, io.LimitReader(f, size))
}
