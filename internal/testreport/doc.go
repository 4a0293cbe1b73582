// Package testreport reads facts about the tests of a change. It has two halves.
//
// Reports: Parse reads what test runners write (go test -json, JUnit XML, TAP,
// the JSON of jest and vitest), Read finds such a report in a work tree or in a
// command's output, and Compare puts the runs of two commits beside each other.
//
// Flags: what a reviewer should know before believing green tests. FindEdited lists the files of tests and checks that differ,
// with their diff size; Reported lists tests that are gone or skipped in head's report. Neither judges what a test asks for: a
// proof runs base's version of the test files on head's code instead.
//
// Everything read here was written by an agent or by programs of its repository. Sizes are bounded, nothing is executed, no link
// is followed, and text for people has no control characters. A report is evidence of what the command printed, not of what is
// true: a check's exit code counts beside it.
package testreport
