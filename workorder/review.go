package workorder

import (
	"fmt"
	"time"
)

// Review is the feedback on a task's pull request that the agent shall address.
type Review struct {
	PR    int          `json:"pr"` // the pull request; 0 means feedback from a file, which is not answered on a forge
	URL   string       `json:"url,omitempty"`
	Items []ReviewItem `json:"items"` // the feedback, oldest first
	// Until is the forge's time of the newest text in Items. Later feedback is for the next attempt.
	Until time.Time `json:"until,omitzero"`
	// Since is the branch's commit when the box accepted the feedback: only later commits can address it.
	Since string `json:"since,omitempty"`
}

// Sources of feedback.
const (
	ReviewFromThread  = "thread"  // an unresolved review thread on a line or file
	ReviewFromReview  = "review"  // the text of a review
	ReviewFromComment = "comment" // a comment on the pull request
	ReviewFromFile    = "file"    // --feedback-file
)

// ReviewItem is one piece of feedback.
type ReviewItem struct {
	// Number identifies the item for agent and reviewer, from 1 in the order of Items.
	Number int    `json:"number"`
	Source string `json:"source"`
	// Thread is the forge's id of the thread, Path and Line its location; Line 0 means the whole file.
	Thread   string `json:"thread,omitempty"`
	Path     string `json:"path,omitempty"`
	Line     int    `json:"line,omitempty"`
	Outdated bool   `json:"outdated,omitempty"`
	URL      string `json:"url,omitempty"`
	// Command reports that a user with write access wrote or confirmed it. Other feedback is quoted to the agent as
	// information and not answered.
	Command bool         `json:"command"`
	Notes   []ReviewNote `json:"notes"` // the text, then its replies
}

// ReviewNote is a text by one author.
type ReviewNote struct {
	Author  string `json:"author"`
	Trusted bool   `json:"trusted"` // the author has write access to the repository
	Text    string `json:"text"`
	Cut     bool   `json:"cut,omitempty"` // the text was shortened
}

// Feedback returns the feedback that an attempt of that mode addresses; nil if it addresses none.
func (s *State) Feedback(m Mode) *Review {
	if m == ModeRevise || m == ModeContinue {
		return s.Review
	}
	return nil
}

// MaxReviewItems is the limit of Review.Items; further feedback is for the next attempt.
const MaxReviewItems = 100

func (r *Review) check(p *problems) {
	p.require(len(r.Items) > 0 && len(r.Items) <= MaxReviewItems, "review has %d items: use 1 to %d", len(r.Items), MaxReviewItems)
	for i := range r.Items {
		it := &r.Items[i]
		p.require(it.Number == i+1, "review item %d is numbered %d", i+1, it.Number)
		p.require(len(it.Notes) > 0, "review item %d has no text", i+1)
		for _, n := range it.Notes {
			if err := checkText(n.Text); err != nil {
				p.errs = append(p.errs, fmt.Errorf("review item %d: %w", i+1, err))
			}
		}
	}
}

// Answers to an item of feedback.
const (
	AnswerCommit   = "commit" // commits of the branch name it
	AnswerReason   = "reason" // the agent gives a reason not to address it
	AnswerNone     = "none"   // the agent did not answer it
	AnswerQuoted   = "quoted" // not from a user with write access
	AnswerDeferred = "later"  // omitted in a full prompt: the next attempt has it
)

// ReviewAnswer is the outcome of one item of feedback.
type ReviewAnswer struct {
	Number int    `json:"number"`
	Source string `json:"source"`
	Thread string `json:"thread"` // the forge's id, as in ReviewItem
	Path   string `json:"path"`
	Line   int    `json:"line"`
	URL    string `json:"url"`
	Text   string `json:"text"` // the beginning of the feedback
	// Answer is one of the constants above, Commits are those that address the item, Reason is the agent's text.
	Answer  string   `json:"answer"`
	Commits []string `json:"commits"`
	Reason  string   `json:"reason"`
	// Replied reports that the forge has the reply, Resolved that the thread is resolved. A thread is resolved only if
	// commits address it and the runner's checks pass.
	Replied  bool `json:"replied"`
	Resolved bool `json:"resolved"`
}

// Unaddressed counts the items from users with write access (of), and those of them that the agent neither addressed
// nor declined with a reason (open).
func (r *Result) Unaddressed() (open, of int) {
	for i := range r.Review {
		switch r.Review[i].Answer {
		case AnswerQuoted:
			continue
		case AnswerNone, AnswerDeferred:
			open++
		}
		of++
	}
	return open, of
}

// Rebased is the outcome of a rebase.
type Rebased struct {
	Onto      string   `json:"onto"`     // branch
	OldBase   string   `json:"old_base"` // commit
	NewBase   string   `json:"new_base"` // commit
	OldHead   string   `json:"old_head"`
	NewHead   string   `json:"new_head"`  // "" if there is none
	Backup    string   `json:"backup"`    // the ref of the remote that keeps OldHead
	Conflicts []string `json:"conflicts"` // the conflicting files, which the agent resolved
	// Moved compares the commits before and after.
	Moved []RangePair `json:"moved"`
	// Pushed reports whether the branch was moved. If not, Kept is the ref of the new commits.
	Pushed bool   `json:"pushed"`
	Kept   string `json:"kept"`
	Text   string `json:"text"` // git's range-diff, shortened
}

// Outcomes of a commit in a rebase.
const (
	RangeSame    = "same"    // the same change, by patch-id
	RangeChanged = "changed" // another change with the same message
	RangeDropped = "dropped" // no longer there
	RangeAdded   = "added"   // not there before
)

// RangePair is one commit before and after a rebase.
type RangePair struct {
	Old     string `json:"old"` // commit; empty: RangeAdded
	New     string `json:"new"` // commit; empty: RangeDropped
	Subject string `json:"subject"`
	How     string `json:"how"` // one of the constants above
	// Reason describes the difference for people, such as "conflict in a.go, resolved by the agent".
	Reason string `json:"why"`
}

// RepairRound is one round of failed validation sent back to the agent.
type RepairRound struct {
	Number int      `json:"number"` // from 1
	Failed []string `json:"failed"` // the names of the failed checks
	// Status and Reason are the agent's outcome.
	Status     Status       `json:"status"`
	Reason     string       `json:"reason"`
	ReasonCode ReasonCode   `json:"reason_code,omitempty"`
	DurationMS int64        `json:"duration_ms"`
	Validation []Validation `json:"validation"` // the validation after the round
}

// MaxPlan is the limit of a plan, in bytes.
const MaxPlan = 256 << 10

// PlanFile is the plan's path, relative to the result's directory.
const PlanFile = "plan.md"
