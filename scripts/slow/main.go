// Slow reads what `go test -json` prints, passes on what a person wants to see of it (failures and packages), and ends
// with a table of seconds and boxes per test, the slowest first: who makes the suite longer sees where the time goes.
// Boxes are containers that a test has started; the tests count them (e2e/internal/boxes). It fails when a test did.
//
// Usage: go test -json ... | slow [HOW MANY]; without a number it prints all. scripts/tested.sh sees also a `go test`
// that was killed.
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

// key is the test among all packages.
func (e event) key() string { return e.Package + "\x00" + e.Test }

func run(in io.Reader, out io.Writer, most int) error {
	said := map[string]*strings.Builder{} // by package and test, while it runs
	var ended []event
	boxes := map[string]int{} // by package and test
	failed, packages := 0, 0
	sc := bufio.NewScanner(in)
	sc.Buffer(nil, 64<<20) // a test prints what it was told by a box in one line
	for sc.Scan() {
		var e event
		if err := json.Unmarshal(sc.Bytes(), &e); err != nil {
			fmt.Fprintln(out, sc.Text()) // go itself has something to say
			continue
		}
		key := e.key()
		switch e.Action {
		case "output":
			if test, n, ok := started(e.Output); ok {
				boxes[e.Package+"\x00"+test] = n
				continue
			}
			if said[key] == nil {
				said[key] = &strings.Builder{}
			}
			said[key].WriteString(e.Output)
			continue
		case "build-output":
			fmt.Fprint(out, e.Output)
			continue
		case "build-fail":
			failed++
			continue
		case "pass", "fail", "skip":
		default:
			continue
		}
		if s := said[key]; s != nil && (e.Action == "fail" || e.Test == "") {
			fmt.Fprint(out, strings.ReplaceAll(s.String(), "PASS\n", "")) // which its line says, too
		}
		delete(said, key)
		if e.Action == "fail" {
			failed++
		}
		if e.Test == "" {
			packages++
			continue
		}
		ended = append(ended, e)
	}
	if err := sc.Err(); err != nil {
		return fmt.Errorf("read what go test printed: %w", err)
	}
	for _, s := range said { // a package that never ended
		fmt.Fprint(out, s)
	}
	table(out, ended, boxes, most)
	switch {
	case failed > 0:
		return fmt.Errorf("%d tests and packages failed", failed)
	case packages == 0 || len(said) > 0:
		return errors.New("go test did not come to its end")
	}
	return nil
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
		_, name, _ := strings.Cut(t.Package, "sandbox-agent/sandbox-agent/")
		fmt.Fprintf(out, "%8.1f s", t.Elapsed)
		if len(boxes) > 0 {
			fmt.Fprintf(out, "  %3d boxes", boxes[t.key()])
		}
		fmt.Fprintf(out, "  %s %s\n", cmp.Or(name, t.Package), t.Test)
	}
}
