// Package testreport reads reports of test runners (Parse, Read, Compare) and lists edits of tests and checks (FindEdited, Reported).
//
// The input is untrusted: sizes are bounded, nothing is executed, no link is followed, and a check's exit code counts beside a report.
package testreport

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	texts "github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Format is a kind of test report.
type Format string

// Formats as results name them.
const (
	None   Format = ""
	GoJSON Format = "go test -json"
	JUnit  Format = "junit xml"
	TAP    Format = "tap"
	Jest   Format = "jest json" // vitest writes the same
)

// Test is one test of a report.
type Test struct {
	// Suite is the package, class or file; Name the test in it, with its groups.
	Suite, Name string
	Status      workorder.TestStatus
	Duration    time.Duration
	// Text is the beginning of its output when it failed.
	Text string
	// Flaky means that the runner repeated the test with another result.
	Flaky bool
	// Whole means that this is the failure of the whole suite, which did not build, load or end.
	Whole bool
}

// Report is the tests of one run.
type Report struct {
	Format Format
	Tests  []Test
	// More is the number of tests beyond maxTests, which are not listed.
	More int
}

const (
	// maxReport bounds one report, in bytes; the largest known are around 40 MB.
	maxReport = 64 << 20
	maxTests  = 200_000
	// maxName bounds a suite's and a test's name, in bytes, with its arguments.
	maxName = 400
	// textLines and textBytes bound the text of a failure.
	textLines = 12
	textBytes = 1200
	// maxDepth bounds how deep suites nest in a report.
	maxDepth = 64
	// wholeSuite is the name of the entry for a suite itself.
	wholeSuite = "(suite)"
)

// errTooLarge means that a report has more than maxReport bytes.
var errTooLarge = fmt.Errorf("the report exceeds %d MiB; the rest was not read", maxReport>>20)

// Parse reads a report. With an error it returns the tests so far: a killed runner leaves a part.
func Parse(format Format, r io.Reader) (*Report, error) {
	rep := &Report{Format: format}
	in := &bounded{r: r, left: maxReport}
	var err error
	switch format {
	case GoJSON:
		err = parseGo(rep, in)
	case JUnit:
		err = parseJUnit(rep, in)
	case TAP:
		err = parseTAP(rep, in)
	case Jest:
		err = parseJest(rep, in)
	default:
		err = errors.New("unknown test report format")
	}
	rep.number()
	if err != nil {
		return rep, fmt.Errorf("read test report (%s): %w", format, err)
	}
	return rep, nil
}

// Counts returns the numbers of tests by their ending.
func (r *Report) Counts() workorder.TestCounts {
	var c workorder.TestCounts
	for _, t := range r.Tests {
		switch t.Status {
		case workorder.TestPassed:
			c.Passed++
		case workorder.TestSkipped:
			c.Skipped++
		default:
			c.Failed++
		}
	}
	return c
}

// Trim removes a directory from the names of suites, so that those of two checkouts are equal.
func (r *Report) Trim(dir string) {
	if dir = strings.TrimRight(dir, "/"); dir == "" {
		return
	}
	for i := range r.Tests {
		r.Tests[i].Suite = strings.TrimPrefix(r.Tests[i].Suite, dir+"/")
	}
}

// add appends a test with the report's names and text.
func (r *Report) add(t Test) {
	if len(r.Tests) >= maxTests {
		r.More++
		return
	}
	t.Suite, t.Name, t.Text = name(t.Suite), name(t.Name), text(t.Text)
	if t.Name == "" {
		t.Name = wholeSuite
	}
	if t.Status == workorder.TestPassed {
		t.Text = ""
	}
	r.Tests = append(r.Tests, t)
}

// number numbers further tests of the same name; parseGo has joined Go's repetitions (-count) before.
func (r *Report) number() {
	type key struct{ suite, name string }
	seen := make(map[key]int, len(r.Tests))
	for i := range r.Tests {
		t := &r.Tests[i]
		k := key{t.Suite, t.Name}
		seen[k]++
		if n := seen[k]; n > 1 {
			t.Name = fmt.Sprintf("%s (%d)", t.Name, n)
		}
	}
}

type bounded struct {
	r    io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLarge
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// escapes are terminal sequences for colours and titles.
var escapes = lazyregexp.New("\x1b(?:\\[[0-9;?]*[ -/]*[@-~]|\\][^\x07\x1b]{0,200}(?:\x07|\x1b\\\\)?|[@-Z\\\\-_])")

// printable drops characters on which a terminal or a browser would act.
func printable(s string) string {
	if strings.Contains(s, "\x1b") {
		s = escapes.ReplaceAllString(s, "")
	}
	return texts.Visible(s)
}

func name(s string) string { return oneLine(s, maxName) }

func oneLine(s string, n int) string {
	return texts.Short(texts.Words(printable(texts.Short(s, 4*n))), n)
}

// text returns the beginning of a failure's output.
func text(s string) string {
	s = printable(texts.Short(s, 8*textBytes))
	var lines []string
	for l := range strings.Lines(s) {
		l = strings.TrimRight(l, " \t\n")
		if l == "" && len(lines) == 0 {
			continue
		}
		if lines = append(lines, l); len(lines) == textLines {
			break
		}
	}
	return strings.TrimRight(texts.Short(strings.Join(lines, "\n"), textBytes), " \t\n")
}

// seconds returns a report's duration; 0 if it is invalid.
func seconds(f float64) time.Duration {
	const day = 24 * 60 * 60
	if !(f > 0 && f < 30*day) {
		return 0
	}
	return time.Duration(f * float64(time.Second))
}
