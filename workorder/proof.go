package workorder

import "encoding/json"

// TestStatus is the outcome of a test.
type TestStatus string

// Values of TestStatus.
const (
	TestPassed  TestStatus = "passed"
	TestFailed  TestStatus = "failed" // including errors of the test itself
	TestSkipped TestStatus = "skipped"
)

// Transition compares one check, or one of its tests, before and after the task's commits.
type Transition string

// Transitions. "Base" is the commit at which the task began, "head" the last commit of its branch.
const (
	TransitionStillPasses Transition = "pass→pass"
	TransitionFixed       Transition = "fail→pass" // failed or was skipped on base
	TransitionBroken      Transition = "pass→fail"
	TransitionStillFails  Transition = "fail→fail"
	TransitionNewPasses   Transition = "new" // missing on base, passes on head
	TransitionNewFails    Transition = "new→fail"
	TransitionDeleted     Transition = "deleted" // on base, missing on head
	TransitionSkipped     Transition = "skipped" // ran on base, or is new, and is skipped on head
	TransitionFlaky       Transition = "flaky"   // repeats at one commit differ
	TransitionNotCompared Transition = ""        // only one side could be run
)

// TestChange compares one test of a check on both sides.
type TestChange struct {
	Suite      string     `json:"suite"` // the package, class or file of the test, as its report names it
	Name       string     `json:"name"`
	Transition Transition `json:"transition"`
	Text       string     `json:"text"` // the beginning of the test's output when it failed on head
}

// TestCounts counts the tests in a report.
type TestCounts struct {
	Passed  int `json:"passed"`
	Failed  int `json:"failed"`
	Skipped int `json:"skipped"`
}

// CheckRun is one run of a validate command in a clean checkout.
type CheckRun struct {
	ExitCode   int         `json:"exit_code"`
	Passed     bool        `json:"passed"`
	DurationMS int64       `json:"duration_ms"`
	Log        string      `json:"log"`   // the path of the full output, relative to the result's directory
	Tests      *TestCounts `json:"tests"` // nil if the command wrote no report
}

// CheckProof compares a validate command on both sides. The runner runs it out of the agent's reach.
type CheckProof struct {
	Name    string `json:"name"`
	Command string `json:"command"`
	// Base and Head are the last run of each side; nil if it could not be run.
	Base       *CheckRun  `json:"base"`
	Head       *CheckRun  `json:"head"`
	Transition Transition `json:"transition"`
	// BaseVaries reports that runs on base had different outcomes. If base does not vary, the task made a Flaky check flaky.
	BaseVaries bool   `json:"base_varies,omitempty"`
	Report     string `json:"report"` // the format of the test report; "" if there was none
	// Counts has the number of tests by transition. Tests has those that are not TransitionStillPasses, the worst first, at most
	// MaxTestChanges.
	Counts map[Transition]int `json:"counts"`
	Tests  []TestChange       `json:"tests"`
	// BaseTests is a run on head's code with base's version of all test files. It is nil if the task edited and deleted
	// no test file, if the check fails on head or runs no tests, and if this run was not possible.
	BaseTests *CheckRun `json:"base_tests,omitempty"`
	// BaseTestsFailed has the tests that failed in that run and do not fail on head, at most MaxTestChanges. Their
	// Transition compares that run with base.
	BaseTestsFailed []TestChange `json:"base_tests_failed,omitempty"`
}

// MaxTestChanges is the limit of the tests of a check in a result; others are only counted.
const MaxTestChanges = 200

// TestFinding is a warning to reviewers about a passing check.
type TestFinding struct {
	Kind string `json:"kind"` // one of the Flag constants
	Path string `json:"path"`
	Line int    `json:"line"` // from 1; 0 means the whole file
	Text string `json:"text"` // the finding, for people
	// Added and Deleted count the lines that differ, for FindingTestEdited and a deleted file.
	Added   int `json:"added,omitempty"`
	Deleted int `json:"deleted,omitempty"`
}

// Kinds of flags.
const (
	FindingTestEdited    = "test-edited"    // head changes a test file of base; no alarm by itself
	FindingBaseTests     = "base-tests"     // a check that passes on head fails with base's version of the test files
	FindingTestDeleted   = "test-deleted"   // a test file, or a test that only base's report has
	FindingTestSkipped   = "test-skipped"   // by the reports
	FindingReportMissing = "report-missing" // a check that passes leaves no test report on head, and left one on base
	FindingCheckEdited   = "check-edited"   // a file that a command names, or that decides what checks run
	FindingBrokenOnHead  = "broken"         // passed on base, fails on head
	FindingNothingProven = "not-proven"     // no check shows a difference between base and head

	// Written by older versions only.
	FindingTestWeakened = "test-weakened"
	FindingHardCoded    = "hard-coded" // a value that a test expects appears as a constant in the code
)

// Proof is the outcome of the checks in clean checkouts of base and head.
type Proof struct {
	Base   string       `json:"base"` // commit
	Head   string       `json:"head"` // commit
	Checks []CheckProof `json:"checks"`
	// LeftOut lists the detected checks that cannot run on base, and fail on head, too. They judge nothing.
	LeftOut []LeftOut `json:"left_out,omitempty"`
	// Pages are those of the development server; empty without one.
	Pages        []PageProof   `json:"pages"`
	TestFindings []TestFinding `json:"flags"`
	// Reasons say which parts are missing and why; empty if everything was run.
	Reasons Reasons `json:"reasons"`
}

// LeftOut is a detected check that judges nothing.
type LeftOut struct {
	Name   string `json:"name"`
	Reason string `json:"reason"` // for people
}

// proofText is Proof.Reasons as one sentence, for programs that read results of older versions.
type proofText struct {
	Reason string `json:"reason"`
}

// MarshalJSON writes the reasons as a list and as a sentence.
func (p Proof) MarshalJSON() ([]byte, error) {
	type plain Proof // without this method
	c := plain(p)
	c.Reasons = orEmpty(c.Reasons)
	return json.Marshal(struct {
		plain
		proofText
	}{c, proofText{p.Reasons.String()}})
}

// UnmarshalJSON also reads proofs of older versions.
func (p *Proof) UnmarshalJSON(b []byte) error {
	type plain Proof // without this method
	both := struct {
		*plain
		proofText
	}{plain: (*plain)(p)}
	if err := json.Unmarshal(b, &both); err != nil {
		return err
	}
	if len(p.Reasons) == 0 && both.Reason != "" {
		p.Reasons = Reasons{{Detail: both.Reason}}
	}
	return nil
}

// SurfaceFinding is a changed file that runs, or decides what runs, on the machine of a person who checks the branch out or
// builds it, or in CI.
type SurfaceFinding struct {
	// Kind names the rule of internal/sensitivefiles, such as "workflow". Results of older versions have kinds that no rule has now.
	Kind string `json:"kind"`
	Path string `json:"path"`
	Line int    `json:"line"` // in the new file, from 1; 0 means the whole file
	// Text says in one line for a human what happened to the file and why it matters, without control characters.
	Text string `json:"text"`
	// Severe marks kinds that a reviewer should look at first, such as workflows, hooks and settings of agents.
	Severe bool `json:"grave"`
}

// PageProof compares a page of the development server on both sides, at one width.
type PageProof struct {
	Path  string `json:"path"`  // of the URL
	Width int    `json:"width"` // of the window, in CSS pixels
	// Base and Head are nil if the page could not be visited; Proof.Reasons say why.
	Base *PageView `json:"base"`
	Head *PageView `json:"head"`
	// Diff is the picture of the differences, relative to the result's directory; "" if there are none.
	Diff    string   `json:"diff"`
	Differs *float64 `json:"differs"` // the share of differing pixels, from 0 to 1; nil if not compared
}

// PageView is a browser's view of a page.
type PageView struct {
	Status int    `json:"status"` // HTTP status; 0 if there was no answer
	Title  string `json:"title"`
	// Picture is the path of the screenshot, relative to the result's directory; "" if there is none.
	Picture       string `json:"picture"`
	PictureWidth  int    `json:"picture_width"` // in pixels
	PictureHeight int    `json:"picture_height"`
	// Console has errors and warnings of the console and uncaught exceptions, Failed the requests that failed or were
	// answered with 400 or more: at most MaxPageNotes each, in order.
	Console []string `json:"console"`
	Failed  []string `json:"failed"`
	Error   string   `json:"error"` // why the page could not be visited; "" if it was
}

// MaxPageNotes is the limit of each list of a PageView.
const MaxPageNotes = 20

// Kinds of evidence in Evidence.Kind that are displayed, not only listed.
const (
	EvidenceScreenshot = "screenshot"
	EvidenceVideo      = "video"
)
