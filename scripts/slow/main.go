// Slow reads what `go test -json` prints, passes on what a person wants to see of it (failures and packages), and ends
// with the tests that took longest: who makes the suite longer sees where the time goes. It fails when a test did.
//
// Usage: go test -json ... | slow [HOW MANY]; scripts/tested.sh sees also a `go test` that was killed.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

func main() {
	most := 20
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

func run(in io.Reader, out io.Writer, most int) error {
	said := map[string]*strings.Builder{} // by package and test, while it runs
	var ended []event
	failed, packages := 0, 0
	sc := bufio.NewScanner(in)
	sc.Buffer(nil, 64<<20) // a test prints what it was told by a box in one line
	for sc.Scan() {
		var e event
		if err := json.Unmarshal(sc.Bytes(), &e); err != nil {
			fmt.Fprintln(out, sc.Text()) // go itself has something to say
			continue
		}
		key := e.Package + "\x00" + e.Test
		switch e.Action {
		case "output":
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
	table(out, ended, most)
	switch {
	case failed > 0:
		return fmt.Errorf("%d tests and packages failed", failed)
	case packages == 0 || len(said) > 0:
		return errors.New("go test did not come to its end")
	}
	return nil
}

// table prints the tests that took longest: those without parts, whose time is their own.
func table(out io.Writer, ended []event, most int) {
	parents := map[string]bool{}
	for _, t := range ended {
		if i := strings.LastIndexByte(t.Test, '/'); i >= 0 {
			parents[t.Package+"\x00"+t.Test[:i]] = true
		}
	}
	ended = slices.DeleteFunc(ended, func(t event) bool { return parents[t.Package+"\x00"+t.Test] })
	slices.SortStableFunc(ended, func(a, b event) int { return cmp.Compare(b.Elapsed, a.Elapsed) })
	sum := 0.0
	for _, t := range ended {
		sum += t.Elapsed
	}
	fmt.Fprintf(out, "\n%d tests, %.0f s in all; the slowest:\n", len(ended), sum)
	for _, t := range ended[:min(most, len(ended))] {
		_, name, _ := strings.Cut(t.Package, "sandbox-agent/sandbox-agent/")
		fmt.Fprintf(out, "%8.1f s  %s %s\n", t.Elapsed, cmp.Or(name, t.Package), t.Test)
	}
}
