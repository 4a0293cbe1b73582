package testreport

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

var update = flag.Bool("update", false, "write the .want files anew; look at the difference")

func (r *Report) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", r.Format)
	for _, t := range r.Tests {
		marks := ""
		if t.Flaky {
			marks += " flaky"
		}
		if t.Whole {
			marks += " whole"
		}
		fmt.Fprintf(&b, "%s%s | %s | %s\n", t.Status, marks, t.Suite, t.Name)
		if t.Text != "" {
			fmt.Fprintf(&b, "\t%s\n", strings.ReplaceAll(t.Text, "\n", "\n\t"))
		}
	}
	return b.String()
}

// Reports of real runners, with the version in the name. The format is found from the content.
func TestRealReports(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/reports/*")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range files {
		if strings.HasSuffix(f, ".want") {
			continue
		}
		n++
		t.Run(filepath.Base(f), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			rep, err := Parse(Detect(data), strings.NewReader(string(data)))
			got := rep.table()
			if err != nil {
				got += "error: " + err.Error() + "\n"
			}
			if *update {
				if err := os.WriteFile(f+".want", []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(f + ".want")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Error(diff)
			}
		})
	}
	if n < 15 {
		t.Errorf("only %d reports", n)
	}
}

// A runner that was killed leaves half a report: what was read is kept, and the end is an error.
func TestHalfReports(t *testing.T) {
	t.Parallel()
	for _, f := range []string{"pytest-7.2.xml", "vitest-2.1.json", "go-1.26.json"} {
		data, err := os.ReadFile("testdata/reports/" + f)
		if err != nil {
			t.Fatal(err)
		}
		rep, err := Parse(Detect(data), strings.NewReader(string(data[:len(data)*19/20])))
		if err == nil || rep == nil || len(rep.Tests) < 2 {
			t.Errorf("%s: error %v, report %+v", f, err, rep)
		}
	}
}

func TestHostileXML(t *testing.T) {
	t.Parallel()
	lol := `<?xml version="1.0"?><!DOCTYPE a [<!ENTITY a "aaaaaaaa"><!ENTITY b "&a;&a;"><!ENTITY x SYSTEM "file:///etc/passwd">]>
<testsuite name="s"><testcase classname="c" name="first"/><testcase classname="c" name="t"><failure>&x;&b;</failure></testcase></testsuite>`
	rep, err := Parse(JUnit, strings.NewReader(lol))
	if err == nil || strings.Contains(rep.table(), "root:") || len(rep.Tests) != 2 {
		t.Errorf("%v\n%s", err, rep.table())
	}
	deep := strings.Repeat("<testsuite>", 100_000)
	if _, err := Parse(JUnit, strings.NewReader(deep)); err == nil || !strings.Contains(err.Error(), "deep") {
		t.Errorf("got %v", err)
	}
	odd := "<testsuite><testcase classname=\"c\u202e\" name=\"a\tb\u200b \"><failure message=\"&#27;[31mred&#27;[0m\"/></testcase></testsuite>"
	if _, err := Parse(JUnit, strings.NewReader(odd)); err == nil {
		t.Error("a control character is no XML")
	}
	odd = strings.ReplaceAll(odd, "&#27;", "")
	rep, err = Parse(JUnit, strings.NewReader(odd))
	if err != nil || rep.Tests[0].Suite != "c" || rep.Tests[0].Name != "a b" {
		t.Errorf("%v %+v", err, rep.Tests)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("<testsuite>")
	for i := range maxTests + 3 {
		fmt.Fprintf(&b, `<testcase name="t%d"/>`, i)
	}
	b.WriteString("</testsuite>")
	rep, err := Parse(JUnit, strings.NewReader(b.String()))
	if err != nil || len(rep.Tests) != maxTests || rep.More != 3 {
		t.Errorf("%v: %d and %d more", err, len(rep.Tests), rep.More)
	}
	long := "TAP version 13\nok 1 - " + strings.Repeat("x", 9<<20) + "\nnot ok 2 - y\n" + strings.Repeat("  said\n", 1000)
	rep, err = Parse(TAP, strings.NewReader(long))
	if err != nil || len(rep.Tests) != 2 || len(rep.Tests[0].Name) > maxName || strings.Count(rep.Tests[1].Text, "\n") >= textLines {
		t.Errorf("%v %d", err, len(rep.Tests))
	}
	// Input without results is cheap to pass over, also for the race detector.
	endless := io.MultiReader(strings.NewReader("ok 1 - a\n"), &repeat{line: []byte(strings.Repeat("said ", 1<<10) + "\n")})
	rep, err = Parse(TAP, endless)
	if err == nil || !strings.Contains(err.Error(), "MiB") || len(rep.Tests) != 1 {
		t.Errorf("%v %d", err, len(rep.Tests))
	}
}

// repeat is a report that never ends.
type repeat struct {
	line []byte
	at   int
}

func (r *repeat) Read(p []byte) (int, error) {
	n := copy(p, r.line[r.at:])
	r.at = (r.at + n) % len(r.line)
	return n, nil
}

func TestGoRepeats(t *testing.T) {
	t.Parallel()
	rep, err := Parse(GoJSON, strings.NewReader(`{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p"}
# q
FAIL	q [build failed]
`))
	if err != nil {
		t.Fatal(err)
	}
	if a := rep.Tests[0]; len(rep.Tests) != 2 || !a.Flaky || a.Status != workorder.TestPassed || a.Text != "" || !rep.Tests[1].Whole {
		t.Errorf("%s", rep.table())
	}
}

func TestDetectNothing(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"", "ok  \texample.org/p\t0.01s\n", "<html><body>testsuite</body></html>", `{"name":"a","version":"1"}`,
		"1..10 are the numbers\n", "$ make test\nall is fine\n", "ok 1 is what it said\n", `{"Time":"now"}`,
	} {
		if f := Detect([]byte(s)); f != None {
			t.Errorf("%q is taken for %s", s, f)
		}
	}
}

func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/reports/*")
	for _, name := range files {
		if data, err := os.ReadFile(name); err == nil && !strings.HasSuffix(name, ".want") {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		Detect(data)
		for _, format := range []Format{GoJSON, JUnit, TAP, Jest} {
			rep, _ := Parse(format, strings.NewReader(string(data)))
			keys := map[testKey]bool{}
			for _, test := range rep.Tests {
				if len(test.Suite) > maxName || len(test.Text) > textBytes || test.Name == "" || test.Duration < 0 {
					t.Fatalf("%s: %+v", format, test)
				}
				if s := test.Suite + test.Name + test.Text; printable(s) != s {
					t.Fatalf("%s: %q", format, s)
				}
				switch test.Status {
				case workorder.TestPassed, workorder.TestFailed, workorder.TestSkipped:
				default:
					t.Fatalf("%s: status %q of %q", format, test.Status, test.Name)
				}
				keys[testKey{test.Suite, test.Name}] = true
			}
			changes, counts := Compare([]*Report{rep}, []*Report{rep})
			for tr := range counts {
				if tr != workorder.TransitionStillPasses && tr != workorder.TransitionStillFails && tr != workorder.TransitionFlaky {
					t.Fatalf("%s: a report differs from itself: %v %v", format, counts, changes)
				}
			}
		}
	})
}
