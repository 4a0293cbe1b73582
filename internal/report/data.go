package report

import (
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Data is all that a report is made of. Only Result must be there; everything
// else makes the report better.
type Data struct {
	Result *workorder.Result
	// Later is a later attempt that left the branch as it was; nil means there is none.
	Later *workorder.Result
	Order Order
	// Evidence are the files beside the result. Those of the result that are not
	// in it, by path, are listed without a link. A picture gets the group, side, size and note of Result.Proof.Pages
	// where it has none.
	Evidence []EvidenceLink
	// Files is the result's folder, of which HTML embeds pictures and videos. Nil if none are
	// embedded. Use the FS of an os.Root: a link in the folder must not lead out of it.
	Files fs.FS
	// Folder is the result's folder as seen from where the report lies, as in "." or "attempts/2". Empty means the report lies elsewhere.
	Folder string
	// CommitURL and FileURL are the forge's pages of a commit, and of a line of a file
	// at a commit (line 0 means the whole file). Nil, or an empty answer: no link.
	CommitURL func(sha string) string
	FileURL   func(sha, path string, line int) string
	// EvidenceURL is the page of a file of the result's folder that lies on the forge. Nil, or an empty
	// answer: no link. It is for those of Evidence without a URL and for logs of checks.
	EvidenceURL func(path string) string
	// Next says how to go on.
	Next []NextStep
	// Versions are further versions, beside those in the result: this program's first.
	Versions []Version
}

// Order is what was asked, of whom.
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
	// IssueURL is the issue that the task was made of; empty means there is none.
	IssueURL string
}

// Side is the commit that a picture was taken of.
type Side string

// Sides of a picture.
const (
	sideNone Side = ""
	sideBase Side = "base"
	sideHead Side = "head"
	sideDiff Side = "diff"
)

// EvidenceLink is a file of evidence, and where it can be seen.
type EvidenceLink struct {
	Name string
	Kind string // as in workorder.Evidence
	// URL is its place on the forge, pinned to a commit. Empty means it is only in the result's folder.
	URL string
	// Path is relative to the result's folder.
	Path string
	// Group joins the pictures of one page at one width, as in "/login at 390 px": they are shown side by side.
	Group string
	Side  Side
	// Width and Height are in pixels; 0 means not known.
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

// RevisePR are the steps for a task that is to be changed: by its pull request (0 means there is none), and as its last attempt ended.
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

// TakeOver is how to work on the branch of a repository oneself. One that is a folder of this machine has the branch
// already, and no remote to fetch it from.
func TakeOver(repo, branch string) NextStep {
	if filepath.IsAbs(repo) {
		if strings.HasSuffix(repo, ".git") { // without a work tree
			return NextStep{Purpose: takeOver, Command: text.Shell("git", "clone", "--branch", branch, repo)}
		}
		return NextStep{Purpose: takeOver, Command: text.Shell("git", "-C", repo, "switch", branch)}
	}
	return NextStep{Purpose: takeOver, Command: text.Shell("git", "fetch", "origin", branch) + " && " + text.Shell("git", "switch", branch)}
}
