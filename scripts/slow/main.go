// Slow prints failures and packages of `go test -json`, then a table of seconds and boxes (internal/test/boxes) per test.
//
// Usage: go test -json ... | slow [HOW MANY]; without a number it prints all. It fails when a test did.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
)

func main() {
	most := math.MaxInt
	if len(os.Args) > 1 {
		n, err := strconv.Atoi(os.Args[1])
		if err != nil {
			fmt.Fprintln(os.Stderr, "slow: how many:", err)
			os.Exit(2)
		}
		most = n
	}
	if err := run(os.Stdin, os.Stdout, most); err != nil {
		fmt.Fprintln(os.Stderr, "slow:", err)
		os.Exit(1)
	}
}

// event is a line of `go test -json`, see `go doc test2json`.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // seconds, without the time that a parallel test waited for its turn
}

func (e event) key() string { return e.Package + "\x00" + e.Test }

// name is the test as people read it.
func (e event) name() string {
	_, name, _ := strings.Cut(e.Package, "sandbox-agent/sandbox-agent/")
	return cmp.Or(name, e.Package) + " " + e.Test
}

// session is what a `go test` has said so far.
type session struct {
	out      io.Writer                   // for people: what failed, and a line for each package
	said     map[string]*strings.Builder // by test, while it runs
	ended    []event                     // tests that passed or failed, in order
	skipped  []string                    // with what they said
	boxes    map[string]int              // by test
	failed   int                         // tests, packages and builds
	packages int                         // that ended
}

func run(in io.Reader, out io.Writer, most int) error {
	s := &session{out: out, said: map[string]*strings.Builder{}, boxes: map[string]int{}}
	sc := bufio.NewScanner(in)
	sc.Buffer(nil, 64<<20) // a test prints a box's output in one line
	for sc.Scan() {
		var e event
		if err := json.Unmarshal(sc.Bytes(), &e); err != nil {
			fmt.Fprintln(out, sc.Text()) // go itself has something to say
			continue
		}
		switch e.Action {
		case "output":
			s.output(e)
		case "build-output":
			fmt.Fprint(out, e.Output)
		case "build-fail":
			s.failed++
		case "pass", "fail", "skip":
			s.end(e)
		}
	}
	if err := sc.Err(); err != nil {
		return fmt.Errorf("read what go test printed: %w", err)
	}
	for _, text := range s.said { // a package that never ended
		fmt.Fprint(out, text)
	}
	table(out, s.ended, s.boxes, most)
	if len(s.skipped) > 0 {
		fmt.Fprintf(out, "\n%d more were skipped, and count as nothing:\n", len(s.skipped))
		for _, line := range s.skipped {
			fmt.Fprintln(out, "  "+line)
		}
	}
	switch {
	case s.failed > 0:
		return fmt.Errorf("%d tests and packages failed", s.failed)
	case s.packages == 0 || len(s.said) > 0:
		return errors.New("go test did not come to its end")
	}
	return nil
}

// output keeps a line until its test ends, or counts the boxes that it names.
func (s *session) output(e event) {
	if test, n, ok := started(e.Output); ok {
		s.boxes[e.Package+"\x00"+test] = n
		return
	}
	key := e.key()
	if s.said[key] == nil {
		s.said[key] = &strings.Builder{}
	}
	s.said[key].WriteString(e.Output)
}

// end counts a test or, without a name of one, a package, and prints what it said if a person wants to see it.
func (s *session) end(e event) {
	text := ""
	if b := s.said[e.key()]; b != nil {
		text = b.String()
		delete(s.said, e.key())
	}
	if e.Action == "fail" || e.Test == "" {
		fmt.Fprint(s.out, strings.ReplaceAll(text, "PASS\n", "")) // which its line says, too
	}
	if e.Action == "fail" {
		s.failed++
	}
	switch {
	case e.Test == "":
		s.packages++
	case e.Action == "skip":
		s.skipped = append(s.skipped, e.name()+": "+reason(text))
	default:
		s.ended = append(s.ended, e)
	}
}

// reason is what a skipped test said: its line is `    file.go:1: reason`.
func reason(output string) string {
	for line := range strings.Lines(output) {
		if place, why, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && strings.Contains(place, ".go:") {
			return why
		}
	}
	return "no reason given"
}

// started reads what the tests print of the boxes that they have started: `boxes: TEST NUMBER`.
func started(line string) (test string, n int, ok bool) {
	rest, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "boxes: ")
	if !ok {
		return "", 0, false
	}
	test, number, _ := strings.Cut(rest, " ")
	n, err := strconv.Atoi(number)
	return test, n, err == nil
}

// table prints the tests that took longest: those without parts, whose time is their own. A test with parts that
// started boxes for all of them is there without a time.
func table(out io.Writer, ended []event, boxes map[string]int, most int) {
	parents := map[string]bool{}
	for _, t := range ended {
		if i := strings.LastIndexByte(t.Test, '/'); i >= 0 {
			parents[t.Package+"\x00"+t.Test[:i]] = true
		}
	}
	seconds, containers := 0.0, 0
	for i := range ended {
		if t := &ended[i]; parents[t.key()] {
			t.Elapsed = 0
		} else {
			seconds += t.Elapsed
		}
	}
	for _, n := range boxes {
		containers += n
	}
	ended = slices.DeleteFunc(ended, func(t event) bool { return parents[t.key()] && boxes[t.key()] == 0 })
	slices.SortStableFunc(ended, func(a, b event) int {
		return cmp.Or(cmp.Compare(b.Elapsed, a.Elapsed), cmp.Compare(boxes[b.key()], boxes[a.key()]))
	})
	fmt.Fprintf(out, "\n%d tests, %.0f s in all", len(ended), seconds)
	if len(boxes) > 0 {
		fmt.Fprintf(out, ", %d boxes", containers)
	}
	if most < len(ended) {
		fmt.Fprint(out, "; the slowest")
	}
	fmt.Fprintln(out, ":")
	for _, t := range ended[:min(most, len(ended))] {
		fmt.Fprintf(out, "%8.1f s", t.Elapsed)
		if len(boxes) > 0 {
			fmt.Fprintf(out, "  %3d boxes", boxes[t.key()])
		}
		fmt.Fprintln(out, "  "+t.name())
	}
}
