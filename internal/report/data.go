package report

import (
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Data is the input of a report. Only Result is required.
type Data struct {
	Result *workorder.Result
	// Later is a later attempt that left the branch as it was; nil means there is none.
	Later *workorder.Result
	Order Order
	// Evidence lists the files of the result that can be linked; others are listed without a link. A picture without a
	// group, side, size and note gets those of Result.Proof.Pages.
	Evidence []EvidenceLink
	// Files is the result's directory, from which HTML embeds pictures and videos; nil embeds none. Use the FS of an os.Root.
	Files fs.FS
	// ResultDir is the path from the report to the result's directory, as in "." or "attempts/2"; empty if it is elsewhere.
	ResultDir string
	// CommitURL and FileURL return the forge's page of a commit, and of a line of a file (0 means the whole file). Nil,
	// or an empty answer: no link.
	CommitURL func(sha string) string
	FileURL   func(sha, path string, line int) string
	// EvidenceURL returns the forge's page of a file of the result, for Evidence without a URL and for logs of checks.
	// Nil, or an empty answer: no link.
	EvidenceURL func(path string) string
	// Next lists next steps.
	Next []NextStep
	// Versions are further versions besides those in the result; this program's is first.
	Versions []Version
}

// Order describes the task and its settings.
type Order struct {
	Task    string   // as it was given first
	Added   []string // to the task by later attempts, oldest first
	Project string
	Harness string // empty means the one in the result
	Model   string
	Network workorder.NetworkMode
	// Allow are the rules of a restricted network.
	Allow []string
	// BudgetUSD and TimeoutMinutes are the limits; 0 means none.
	BudgetUSD      float64
	TimeoutMinutes float64
	// IssueURL is the issue that the task comes from; empty if none.
	IssueURL string
}

// Side is the commit that a picture shows.
type Side string

// Sides of a picture.
const (
	sideNone Side = ""
	sideBase Side = "base"
	sideHead Side = "head"
	sideDiff Side = "diff"
)

// EvidenceLink is a file of evidence with its location.
type EvidenceLink struct {
	Name string
	Kind string // as in workorder.Evidence
	// URL is its page on the forge, pinned to a commit; empty if it is only in the result's directory.
	URL string
	// Path is relative to the result's directory.
	Path string
	// Group joins the pictures of one page at one width, as in "/login at 390 px", to be shown side by side.
	Group string
	Side  Side
	// Width and Height are in pixels; 0 means unknown.
	Width, Height int
	// Note is a short remark, as in "3.1 % of the pixels differ".
	Note string
}

// NextStep is a command with its purpose.
type NextStep struct {
	Purpose string
	Command string
}

// Version is a program or image and its version.
type Version struct{ Name, Version string }

// RevisePR returns the steps to change a task, by its pull request (0 if none) and its last attempt's ending.
func RevisePR(pr int, task string, ended workorder.Status) []NextStep {
	var s []NextStep
	if pr > 0 {
		s = append(s, NextStep{
			Purpose: "Write review comments here, then let the agent work on them",
			Command: "sandbox-agent revise --pr " + strconv.Itoa(pr),
		})
	}
	if !workorder.ValidTaskID(task) {
		return s
	}
	switch ended {
	case workorder.StatusPlanned:
		return append(s, NextStep{Purpose: "Let a new sandbox carry the plan out", Command: "sandbox-agent create --from-plan " + task})
	case workorder.StatusSuccess, workorder.StatusNoChanges: // not started again without a text
		return append(s, NextStep{Purpose: "Add to the task, in a new sandbox", Command: "sandbox-agent continue " + task + ` --task "..."`})
	}
	return append(s, NextStep{Purpose: "Go on with the task in a new sandbox", Command: "sandbox-agent continue " + task})
}

const takeOver = "Take it over yourself"

// TakeOver returns how to work on the branch of a repository. A local directory has the branch already.
func TakeOver(repo, branch string) NextStep {
	if filepath.IsAbs(repo) {
		if strings.HasSuffix(repo, ".git") { // without a work tree
			return NextStep{Purpose: takeOver, Command: text.Shell("git", "clone", "--branch", branch, repo)}
		}
		return NextStep{Purpose: takeOver, Command: text.Shell("git", "-C", repo, "switch", branch)}
	}
	return NextStep{Purpose: takeOver, Command: text.Shell("git", "fetch", "origin", branch) + " && " + text.Shell("git", "switch", branch)}
}
