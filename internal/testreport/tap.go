package testreport

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	texts "github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// tapReader reads the Test Anything Protocol, versions 13 and 14. A sub-test is indented; its point follows it, or
// precedes it and opens a brace (node-tap, vitest).
type tapReader struct {
	rep    *Report
	levels []*tapLevel // the open ones, the outermost first
	last   *tapPoint   // the failed point whose diagnostics are being read
	yaml   int         // indentation of the open YAML block, -1 for none
	any    bool
	bailed bool
	points int
}

type tapLevel struct {
	indent int
	plan   int // -1: none yet
	points []*tapPoint
	inside []*tapPoint // points of sub-tests that wait for theirs
	braced *tapPoint   // the point that opened this level with a brace
}

// tapPoint is a test, or a group of tests.
type tapPoint struct {
	name   string
	status workorder.TestStatus
	text   []string
	time   float64
	inside []*tapPoint
}

var (
	tapResult    = lazyregexp.New(`^(not )?ok\b(?:[ \t]+(\d+)\b)?[ \t]*(.*)$`)
	tapPlan      = lazyregexp.New(`^1\.\.(\d+)[ \t]*(?:#[ \t]*(?i:skip)\S*[ \t]*(.*))?$`)
	tapDirective = lazyregexp.New(`(?i)(?:^|[ \t])#[ \t]*(skip|todo)\S*(?:[ \t]|$)`)
	tapTime      = lazyregexp.New(`[ \t]+#[ \t]*time=([0-9.]+)(ms|s)`)
	tapDuration  = lazyregexp.New(`^duration_ms:\s*([0-9.]+)$`)
)

func parseTAP(rep *Report, in io.Reader) error {
	t := &tapReader{rep: rep, yaml: -1}
	lines := texts.NewLines(texts.MaxLine, func(line []byte, _ int64) { t.line(string(line[:min(len(line), 8*textBytes)])) })
	_, err := io.Copy(lines, in)
	lines.Close()
	for len(t.levels) > 1 {
		t.close()
	}
	if len(t.levels) == 0 {
		t.levels = []*tapLevel{{plan: -1}}
	}
	top := t.levels[0]
	for _, p := range append(top.points, top.inside...) {
		t.emit(p, nil)
	}
	if problem := top.problem(); problem != "" && !t.bailed {
		rep.add(Test{Name: wholeSuite, Status: workorder.TestFailed, Text: problem, Whole: true})
	}
	if !t.any && err == nil {
		err = fmt.Errorf("it contains no test points")
	}
	return err
}

func (l *tapLevel) problem() string {
	if l.plan >= 0 && l.plan != len(l.points) {
		return fmt.Sprintf("%d tests were planned, %d ran", l.plan, len(l.points))
	}
	return ""
}

func (t *tapReader) line(raw string) {
	body := strings.TrimLeft(raw, " \t")
	indent := len(strings.ReplaceAll(raw[:len(raw)-len(body)], "\t", "    "))
	body = strings.TrimRight(body, " \t\r")
	if t.yaml >= 0 {
		if body == "..." && indent <= t.yaml {
			t.yaml = -1
			return
		}
		t.diagnostic(body)
		return
	}
	switch {
	case body == "":
	case body == "---" && t.any:
		t.yaml = indent
	case body == "}":
		t.closeTo(indent)
	case strings.HasPrefix(body, "Bail out!"):
		t.any, t.bailed = true, true
		t.rep.add(Test{Name: wholeSuite, Status: workorder.TestFailed, Text: body, Whole: true})
	case indent > 4*maxDepth:
	case t.result(indent, body):
	case t.planned(indent, body):
	case strings.HasPrefix(body, "# Subtest"):
		t.last = nil
	default:
		t.diagnostic(body)
	}
}

// result parses a line as a test point, or returns that it is none.
func (t *tapReader) result(indent int, body string) bool {
	m := tapResult.FindStringSubmatch(body)
	// "ok  	example.org/pkg	0.1s" is plain go test.
	if m == nil || m[2] == "" && m[3] != "" && !strings.HasPrefix(m[3], "-") && !strings.HasPrefix(m[3], "#") {
		return false
	}
	t.any = true
	if t.points++; t.points > maxTests {
		t.rep.More++
		return true
	}
	rest, braced := strings.CutSuffix(m[3], "{")
	p := &tapPoint{status: workorder.TestPassed}
	if m[1] != "" {
		p.status = workorder.TestFailed
	}
	if loc := tapDirective.FindStringSubmatchIndex(rest); loc != nil && (loc[0] == 0 || rest[loc[0]-1] != '\\') {
		// A failing TODO does not count; it is no proof either.
		p.status = workorder.TestSkipped
		rest = rest[:loc[0]]
	}
	if tm := tapTime.FindStringSubmatch(rest); tm != nil {
		p.time, _ = strconv.ParseFloat(tm[1], 64)
		if tm[2] == "ms" {
			p.time /= 1000
		}
		rest = strings.Replace(rest, tm[0], "", 1)
	}
	p.name = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(rest), "-"))
	if p.name == "" {
		p.name = "test " + m[2]
	}
	l := t.level(indent)
	p.inside, l.inside = l.inside, nil
	l.points = append(l.points, p)
	t.last = p
	if braced {
		t.levels = append(t.levels, &tapLevel{indent: indent + 1, plan: -1, braced: p})
	}
	return true
}

func (t *tapReader) planned(indent int, body string) bool {
	m := tapPlan.FindStringSubmatch(body)
	if m == nil {
		return false
	}
	t.any = true
	l := t.level(indent)
	n, err := strconv.Atoi(m[1])
	if err != nil {
		n = -1
	}
	if l.plan >= 0 && l.plan != n || l.plan >= 0 && len(l.points) > 0 {
		return true // outputs of several programs one after the other: the first plan is of the first
	}
	l.plan = n
	if n == 0 && indent == 0 && strings.Contains(body, "#") {
		t.rep.add(Test{Name: wholeSuite, Status: workorder.TestSkipped, Text: m[2]})
	}
	return true
}

// level returns the open level at an indentation and ends deeper ones.
func (t *tapReader) level(indent int) *tapLevel {
	if len(t.levels) == 0 {
		t.levels = []*tapLevel{{plan: -1}}
	}
	t.closeTo(indent)
	top := t.levels[len(t.levels)-1]
	if top.braced != nil && len(top.points) == 0 && top.plan < 0 {
		top.indent = indent
		return top
	}
	if indent > top.indent {
		top = &tapLevel{indent: indent, plan: -1}
		t.levels = append(t.levels, top)
	}
	return top
}

func (t *tapReader) closeTo(indent int) {
	for len(t.levels) > 1 && t.levels[len(t.levels)-1].indent > indent {
		t.close()
	}
}

// close ends the innermost level and adds its points to the outer one.
func (t *tapReader) close() {
	n := len(t.levels) - 1
	l, outer := t.levels[n], t.levels[n-1]
	t.levels = t.levels[:n]
	points := append(l.points, l.inside...)
	if problem := l.problem(); problem != "" {
		points = append(points, &tapPoint{name: wholeSuite, status: workorder.TestFailed, text: []string{problem}})
	}
	if l.braced != nil {
		l.braced.inside = append(l.braced.inside, points...)
		return
	}
	outer.inside = append(outer.inside, points...)
}

func (t *tapReader) diagnostic(body string) {
	p := t.last
	if p == nil {
		return
	}
	if m := tapDuration.FindStringSubmatch(body); m != nil {
		if ms, err := strconv.ParseFloat(m[1], 64); err == nil {
			p.time = ms / 1000
		}
		return
	}
	if p.status == workorder.TestFailed && len(p.text) < textLines {
		p.text = append(p.text, strings.TrimSpace(strings.TrimPrefix(body, "#")))
	}
}

// emit adds the tests of a point. A group counts only if it failed and none of its tests did.
func (t *tapReader) emit(p *tapPoint, path []string) {
	if len(p.inside) == 0 {
		t.rep.add(Test{
			Suite: strings.Join(path, " > "), Name: p.name, Status: p.status,
			Duration: seconds(p.time), Text: strings.Join(p.text, "\n"), Whole: p.name == wholeSuite,
		})
		return
	}
	before, failed := len(t.rep.Tests), false
	for _, q := range p.inside {
		t.emit(q, append(slices.Clip(path), texts.Short(p.name, maxName)))
	}
	for _, added := range t.rep.Tests[before:] {
		failed = failed || added.Status == workorder.TestFailed
	}
	if p.status == workorder.TestFailed && !failed {
		t.rep.add(Test{Suite: strings.Join(path, " > "), Name: p.name, Status: p.status, Text: strings.Join(p.text, "\n")})
	}
}
