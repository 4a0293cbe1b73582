package workorder

import "encoding/json"

// TestStatus is how one test ended.
type TestStatus string

// Endings of a test.
const (
	TestPassed  TestStatus = "passed"
	TestFailed  TestStatus = "failed" // errors of the test itself included
	TestSkipped TestStatus = "skipped"
)

// Transition compares one check, or one of its tests, before and after the task's commits.
type Transition string

// Transitions. "Base" is the commit that the task began with, "head" the last one of its branch.
const (
	StillPasses Transition = "pass→pass"
	Fixed       Transition = "fail→pass" // failed or was skipped on base
	Broken      Transition = "pass→fail"
	StillFails  Transition = "fail→fail"
	NewPasses   Transition = "new" // not on base, passes on head
	NewFails    Transition = "new→fail"
	Gone        Transition = "deleted" // on base, not on head
	NowSkipped  Transition = "skipped" // ran on base, or is new, and is skipped on head
	Flaky       Transition = "flaky"   // repeats at one commit differ
	NotCompared Transition = ""        // only one side could be run
)

// TestChange is one test of a check on both sides.
type TestChange struct {
	// Suite is the package, class or file of the test, as its report names it.
	Suite      string     `json:"suite"`
	Name       string     `json:"name"`
	Transition Transition `json:"transition"`
	// Text is the beginning of what the test said when it failed on head.
	Text string `json:"text"`
}

// TestCounts are the numbers of tests in a report.
type TestCounts struct {
	Passed  int `json:"passed"`
	Failed  int `json:"failed"`
	Skipped int `json:"skipped"`
}

// CheckRun is one run of a validate command in a clean checkout.
type CheckRun struct {
	ExitCode   int   `json:"exit_code"`
	Passed     bool  `json:"passed"`
	DurationMS int64 `json:"duration_ms"`
	// Log is the path of the full output, relative to the result's folder.
	Log string `json:"log"`
	// Tests is nil when the command left no report.
	Tests *TestCounts `json:"tests"`
}

// CheckProof is a validate command on both sides. The runner ran it, where the agent cannot reach.
type CheckProof struct {
	Name    string `json:"name"`
	Command string `json:"command"`
	// Base and Head are the last run of each side; nil means it could not be run there.
	Base       *CheckRun  `json:"base"`
	Head       *CheckRun  `json:"head"`
	Transition Transition `json:"transition"`
	// BaseVaries reports that runs of base ended differently. A Flaky check whose base does not vary became flaky by the task.
	BaseVaries bool `json:"base_varies,omitempty"`
	// Report is the format of the test report, empty when there was none.
	Report string `json:"report"`
	// Counts has the number of tests by transition, Tests those that are not
	// StillPasses, the worst first, at most MaxTestChanges.
	Counts map[Transition]int `json:"counts"`
	Tests  []TestChange       `json:"tests"`
}

// MaxTestChanges bounds the tests of a check that a result names; more are only counted.
const MaxTestChanges = 200

// Flag is something that a reviewer should see before believing a green check.
type Flag struct {
	// Kind is one of the Flag constants.
	Kind string `json:"kind"`
	Path string `json:"path"`
	Line int    `json:"line"` // from 1; 0 means the whole file
	Text string `json:"text"` // what was found, for a human
}

// Kinds of flags on the tests themselves.
const (
	FlagTestDeleted   = "test-deleted"
	FlagTestSkipped   = "test-skipped"
	FlagTestWeakened  = "test-weakened"
	FlagCheckEdited   = "check-edited" // a script or configuration that a validate command runs
	FlagHardCoded     = "hard-coded"   // a value that a test expects appears as a constant in the code
	FlagBrokenOnHead  = "broken"       // passed on base, fails on head
	FlagNothingProven = "not-proven"   // no check shows a difference between base and head
)

// Proof is what the runner found out about the work, in clean checkouts of base and head.
type Proof struct {
	Base   string       `json:"base"` // commit
	Head   string       `json:"head"` // commit
	Checks []CheckProof `json:"checks"`
	// Pages are those of the development server, empty without one.
	Pages []PageProof `json:"pages"`
	Flags []Flag      `json:"flags"`
	// Reasons say what of it is missing, and why; empty when all was run.
	Reasons Reasons `json:"reasons"`
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

// UnmarshalJSON reads what MarshalJSON writes, and proofs of older versions.
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
	// Grave marks kinds that a reviewer should look at first, such as workflows, hooks and settings of agents.
	Grave bool `json:"grave"`
}

// PageProof is one page of the development server, at one width, on both sides.
type PageProof struct {
	Path  string `json:"path"`  // of the URL
	Width int    `json:"width"` // of the window, in CSS pixels
	// Base and Head are nil where the page could not be looked at; Proof.Reasons say why.
	Base *PageView `json:"base"`
	Head *PageView `json:"head"`
	// Diff is the picture of what differs, relative to the result's folder; empty when nothing does.
	Diff string `json:"diff"`
	// Differs is the share of pixels that differ, from 0 to 1; nil means not compared.
	Differs *float64 `json:"differs"`
}

// PageView is what a browser saw of a page.
type PageView struct {
	Status int    `json:"status"` // of HTTP; 0 means no answer
	Title  string `json:"title"`
	// Picture is the path of the screenshot, relative to the result's folder; empty means there is none.
	Picture       string `json:"picture"`
	PictureWidth  int    `json:"picture_width"` // in pixels
	PictureHeight int    `json:"picture_height"`
	// Console are errors and warnings of the console and uncaught exceptions, Failed requests that
	// failed or were answered with 400 and more: at most MaxPageNotes each, in order.
	Console []string `json:"console"`
	Failed  []string `json:"failed"`
	Error   string   `json:"error"` // why the page could not be looked at; empty means it could
}

// MaxPageNotes bounds the lists of a PageView.
const MaxPageNotes = 20

// Kinds of evidence in Evidence.Kind that are shown and not only listed.
const (
	EvidenceScreenshot = "screenshot"
	EvidenceVideo      = "video"
)
