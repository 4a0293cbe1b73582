package testreport

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	texts "github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// goEvent is a line of `go test -json`, see `go doc test2json` and `go help buildjson`.
type goEvent struct {
	Action, Package, Test, Output, ImportPath, FailedBuild string
	Elapsed                                                float64
}

// goTest is a test whose end may be missing.
type goTest struct {
	Test
	running bool
	said    testOutput
}

type goPackage struct {
	name  string
	tests map[string]*goTest
	order []*goTest
	said  testOutput
	ended bool
}

type goReader struct {
	packages map[string]*goPackage
	order    []*goPackage
	builds   map[string]*testOutput
	count    int
	lost     int
}

// parseGo reads the events among other output. Other lines are skipped, except older Go's verdict on a package that did
// not build.
func parseGo(rep *Report, in io.Reader) error {
	g := &goReader{packages: map[string]*goPackage{}, builds: map[string]*testOutput{}}
	lines := texts.NewLines(texts.MaxLine, func(line []byte, lost int64) {
		if lost == 0 {
			g.line(line)
		}
	})
	_, err := io.Copy(lines, in)
	lines.Close()
	rep.More += g.lost
	for _, p := range g.order {
		if !p.ended {
			if err == nil {
				err = fmt.Errorf("it ends before package %s does", name(p.name))
			}
			g.finish(p, false)
		}
		for _, t := range p.order {
			if t.Status != "" { // else a benchmark, which has no verdict
				rep.add(t.Test)
			}
		}
	}
	return err
}

// starts of an event that follows other output on the same line.
var goStarts = [][]byte{[]byte(`{"Time":"`), []byte(`{"Action":"`), []byte(`{"ImportPath":"`)}

var plainVerdict = lazyregexp.New(`^FAIL\s+(\S+) \[(?:build|setup) failed\]`)

func (g *goReader) line(b []byte) {
	if !bytes.HasPrefix(b, []byte("{")) {
		for _, s := range goStarts {
			if i := bytes.Index(b, s); i >= 0 {
				g.line(b[i:])
				return
			}
		}
		if m := plainVerdict.FindSubmatch(b); m != nil {
			g.event(goEvent{Action: "fail", Package: string(m[1]), Output: string(b)})
		}
		return
	}
	var ev goEvent
	if json.Unmarshal(b, &ev) != nil || ev.Action == "" {
		return
	}
	g.event(ev)
}

func (g *goReader) event(ev goEvent) {
	switch {
	case ev.Action == "build-output":
		if g.builds[ev.ImportPath] == nil && len(g.builds) < maxTests {
			g.builds[ev.ImportPath] = &testOutput{}
		}
		g.builds[ev.ImportPath].hear(ev.Output)
		return
	case ev.Package == "" || ev.Action == "build-fail":
		return
	}
	p := g.packages[ev.Package]
	if p == nil {
		if g.count++; g.count > maxTests {
			g.lost++
			return
		}
		p = &goPackage{name: ev.Package, tests: map[string]*goTest{}}
		g.packages[ev.Package] = p
		g.order = append(g.order, p)
	}
	if ev.Test == "" {
		g.ofPackage(p, ev)
		return
	}
	g.ofTest(p, ev)
}

func (g *goReader) ofPackage(p *goPackage, ev goEvent) {
	switch ev.Action {
	case "output":
		p.said.hear(ev.Output)
	case "pass", "skip":
		p.ended = true
		for _, t := range p.order {
			if t.running { // its verdict was lost in the output of another program
				t.running = false
				t.Status, t.Text = workorder.TestFailed, "no verdict in the report"
			}
		}
	case "fail":
		if p.ended { // once as an event, once as a plain line
			return
		}
		if b := g.builds[ev.FailedBuild]; b != nil && ev.FailedBuild != "" {
			p.said = *b
		}
		p.said.hear(ev.Output)
		g.finish(p, true)
	}
}

// finish ends a package that failed or has no end.
func (g *goReader) finish(p *goPackage, verdict bool) {
	p.ended = true
	failed, cutShort := false, p.said.panicked
	for _, t := range p.order {
		cutShort = cutShort || t.said.panicked || t.running
		if t.running {
			t.running = false
			t.Status, t.Text = workorder.TestFailed, t.said.text()
			if t.Text == "" {
				t.Text = "it did not finish"
			}
		}
		failed = failed || t.Status == workorder.TestFailed
	}
	if failed && !cutShort {
		return
	}
	said := p.said.text()
	if failed {
		said = strings.TrimSpace("the package ended before all of its tests had run\n" + said)
	}
	if !verdict {
		said = "the report ends before the package does\n" + said
	} else if said == "" {
		said = "the package failed, and none of its tests says why"
	}
	t := &goTest{Test: Test{Suite: p.name, Name: wholeSuite, Status: workorder.TestFailed, Text: said, Whole: true}}
	p.order = append(p.order, t)
}

func (g *goReader) ofTest(p *goPackage, ev goEvent) {
	t := p.tests[ev.Test]
	if t == nil {
		if g.count++; g.count > maxTests {
			g.lost++
			return
		}
		t = &goTest{Test: Test{Suite: p.name, Name: ev.Test}}
		p.tests[ev.Test] = t
		p.order = append(p.order, t)
	}
	end := func(s workorder.TestStatus) {
		// -count and the re-runs of gotestsum: the last counts, a difference is flaky.
		t.Flaky = t.Flaky || t.Status != "" && t.Status != s
		t.Status, t.running, t.Duration = s, false, seconds(ev.Elapsed)
		t.Text = t.said.text()
		panicked := t.said.panicked
		t.said = testOutput{panicked: panicked}
	}
	switch ev.Action {
	case "run", "start":
		t.running = true
	case "output":
		t.said.hear(ev.Output)
		if t.Status == workorder.TestFailed { // what a panic says comes after the verdict
			t.Text = texts.Short(t.Text+"\n"+t.said.text(), 4*textBytes)
			t.said = testOutput{panicked: t.said.panicked}
		}
	case "pass":
		end(workorder.TestPassed)
	case "fail":
		end(workorder.TestFailed)
	case "skip":
		end(workorder.TestSkipped)
	}
}

// testOutput keeps the first lines of a test's output, and the first that look like a failure's.
type testOutput struct {
	first, telling []string
	follow         bool
	panicked       bool
}

var (
	goNoise = lazyregexp.New(`^\s*(?:=== (?:RUN|PAUSE|CONT|NAME)|--- (?:FAIL|PASS|SKIP|BENCH):|` +
		`PASS$|FAIL$|FAIL\t|exit status \d+$|coverage: )`)
	goTelling = lazyregexp.New(`^\s*(?:\S+\.go:\d+:|panic:|fatal error:|WARNING: DATA RACE|\S+: .*timed out)`)
	goPanic   = lazyregexp.New(`^\s*(?:panic: |fatal error: |signal: )|^panic:`)
)

func (s *testOutput) hear(out string) {
	if s == nil {
		return
	}
	for line := range strings.Lines(texts.Short(out, 8*textBytes)) {
		line = strings.TrimRight(line, "\r\n")
		if goPanic.MatchString(line) {
			s.panicked = true
		}
		if goNoise.MatchString(line) || strings.TrimSpace(line) == "" {
			continue
		}
		line = texts.Short(line, textBytes)
		if len(s.first) < textLines {
			s.first = append(s.first, line)
		}
		s.follow = goTelling.MatchString(line) || s.follow && strings.HasPrefix(line, "        ")
		if s.follow && len(s.telling) < textLines {
			s.telling = append(s.telling, line)
		}
	}
}

func (s *testOutput) text() string {
	lines := s.telling
	if len(lines) == 0 {
		lines = s.first
	}
	lines = slices.Clone(lines)
	for i, l := range lines {
		lines[i] = strings.TrimPrefix(l, "    ")
	}
	return strings.Join(lines, "\n")
}
