package testreport

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	maxFlagText = 300
	// maxBroken bounds the flags for tests that broke.
	maxBroken = 100
	// maxNamed bounds the tests that a flag names.
	maxNamed = 5
)

// SortFlags orders flags: edited tests first, then the worst.
func SortFlags(flags []workorder.TestFinding) {
	slices.SortStableFunc(flags, func(a, b workorder.TestFinding) int {
		return cmp.Or(
			cmp.Compare(slices.Index(kinds, a.Kind), slices.Index(kinds, b.Kind)),
			strings.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line))
	})
}

var kinds = []string{
	workorder.FindingTestEdited, workorder.FindingBaseTests, workorder.FindingBrokenOnHead, workorder.FindingTestDeleted,
	workorder.FindingTestSkipped,
	workorder.FindingReportMissing, workorder.FindingCheckEdited, workorder.FindingNothingProven,
}

// Reported returns flags for tests that broke, are missing or are skipped by the reports of base and head.
func Reported(changes []workorder.TestChange) (flags []workorder.TestFinding) {
	flag := func(kind, text string) {
		flags = append(flags, workorder.TestFinding{Kind: kind, Text: oneLine(text, maxFlagText)})
	}
	added := map[string]int{} // new tests by suite and parent
	for _, c := range changes {
		if c.Transition == workorder.TransitionNewPasses || c.Transition == workorder.TransitionNewFails {
			added[parent(c)]++
		}
	}
	var gone, skipped []string
	for _, c := range changes {
		switch c.Transition {
		case workorder.TransitionBroken:
			first, _, _ := strings.Cut(c.Text, "\n")
			if len(flags) < maxBroken {
				flag(workorder.FindingBrokenOnHead, strings.TrimSuffix(fullName(c)+": "+first, ": "))
			}
		case workorder.TransitionDeleted:
			if p := parent(c); added[p] > 0 && !strings.HasSuffix(p, "\x00") { // a renamed case of a table
				added[p]--
				continue
			}
			gone = append(gone, fullName(c))
		case workorder.TransitionSkipped:
			skipped = append(skipped, fullName(c))
		}
	}
	if len(gone) > 0 {
		flag(workorder.FindingTestDeleted, named(gone)+" (ran on base, not on head)")
	}
	if len(skipped) > 0 {
		flag(workorder.FindingTestSkipped, named(skipped)+" (skipped on head)")
	}
	return flags
}

func fullName(c workorder.TestChange) string { return strings.TrimPrefix(c.Suite+" > "+c.Name, " > ") }

// FailedNames counts tests and names the first of them.
func FailedNames(tests []workorder.TestChange) string {
	names := make([]string, len(tests))
	for i, t := range tests {
		names[i] = fullName(t)
	}
	if len(names) == 1 {
		return "1 fails: " + names[0]
	}
	return fmt.Sprintf("%d fail: %s", len(names), first(names))
}

// named counts tests and names the first of them.
func named(names []string) string {
	if len(names) == 1 {
		return "1 test: " + names[0]
	}
	return fmt.Sprintf("%d tests: %s", len(names), first(names))
}

func first(names []string) string {
	if len(names) <= maxNamed {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:maxNamed], ", ") + ", …"
}

// parent returns the suite and group of a test.
func parent(c workorder.TestChange) string {
	i := max(strings.LastIndexByte(c.Name, '/'), strings.LastIndex(c.Name, " > "), strings.IndexByte(c.Name, '['))
	return c.Suite + "\x00" + c.Name[:max(i, 0)]
}
