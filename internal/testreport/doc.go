// Package testreport says what the tests of a change prove. It has two halves.
//
// Reports: Parse reads what test runners write (go test -json, JUnit XML, TAP,
// the JSON of jest and vitest), Read finds such a report in a work tree or in a
// command's output, and Compare puts the runs of two commits beside each other.
//
// Flags: what a reviewer should see before believing green tests. It reads the
// two commits as git objects and looks for tests that were deleted, skipped or
// weakened, for edits of what the checks run, and for values of tests that were
// written into the code.
//
// Everything read here was written by an agent or by programs of its
// repository. Sizes are bounded, nothing is executed, no link is followed, and text
// for humans is stripped of control characters. A report is evidence of what the
// command printed, not of what is true: a check's exit code counts beside it.
//
// The rules on source are of the eye, not of a compiler: they read lines, and
// prefer to miss a subtle cheat to crying wolf at every refactoring.
package testreport
