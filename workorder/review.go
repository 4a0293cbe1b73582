package workorder

import (
	"fmt"
	"time"
)

// Review is the feedback on a task's pull request that the agent is asked to address.
type Review struct {
	// PR is the pull request; 0 means the feedback came from a file, and nothing is answered on a forge.
	PR  int    `json:"pr"`
	URL string `json:"url,omitempty"`
	// Items are the feedback, the oldest first.
	Items []ReviewItem `json:"items"`
	// Until is the forge's time of the newest text in Items: what was written later is for the next attempt.
	Until time.Time `json:"until,omitzero"`
	// Since is the branch's commit when the feedback was taken on: those after it can address it. The box
	// fills it in.
	Since string `json:"since,omitempty"`
}

// Where feedback came from.
const (
	FromThread  = "thread"  // a review thread on a line or file, not resolved
	FromReview  = "review"  // the text of a review
	FromComment = "comment" // a comment on the pull request
	FromFile    = "file"    // --feedback-file
)

// ReviewItem is one piece of feedback.
type ReviewItem struct {
	// Number is what agent and reviewer call it, from 1 in the order of Items.
	Number int    `json:"number"`
	Source string `json:"source"`
	// Thread is the forge's id of the thread, Path and Line where it is; Line 0 means the whole file.
	Thread   string `json:"thread,omitempty"`
	Path     string `json:"path,omitempty"`
	Line     int    `json:"line,omitempty"`
	Outdated bool   `json:"outdated,omitempty"`
	URL      string `json:"url,omitempty"`
	// Command tells that somebody who may write to the repository stands behind it. Other feedback
	// is quoted to the agent as information, and not answered.
	Command bool         `json:"command"`
	Notes   []ReviewNote `json:"notes"` // the text, then the replies to it
}

// ReviewNote is what one person wrote.
type ReviewNote struct {
	Author string `json:"author"`
	// Trusted: the author may write to the repository.
	Trusted bool   `json:"trusted"`
	Text    string `json:"text"`
	Cut     bool   `json:"cut,omitempty"` // the text was longer
}

// Feedback is what an attempt of that mode addresses; nil means it has nothing to do with feedback.
func (s *State) Feedback(m Mode) *Review {
	if m == ModeRevise || m == ModeContinue {
		return s.Review
	}
	return nil
}

// MaxReviewItems bounds Review.Items; more is for the next attempt.
const MaxReviewItems = 100

func (r *Review) check(c *check) {
	c.that(len(r.Items) > 0 && len(r.Items) <= MaxReviewItems, "review has %d items, it takes 1 to %d", len(r.Items), MaxReviewItems)
	for i := range r.Items {
		it := &r.Items[i]
		c.that(it.Number == i+1, "review item %d is numbered %d", i+1, it.Number)
		c.that(len(it.Notes) > 0, "review item %d has no text", i+1)
		for _, n := range it.Notes {
			if err := checkText(n.Text); err != nil {
				c.errs = append(c.errs, fmt.Errorf("review item %d: %w", i+1, err))
			}
		}
	}
}

// How an item of feedback was dealt with.
const (
	AnsweredByCommit = "commit" // commits of the branch say that they address it
	AnsweredByReason = "reason" // the agent gives a reason for leaving it
	NotAnswered      = "none"   // the agent did not say anything about it
	NotCommanded     = "quoted" // nobody who may command stands behind it
	LeftForLater     = "later"  // the prompt had no room for it: the next attempt has it
)

// ReviewAnswer is what became of one item of feedback.
type ReviewAnswer struct {
	Number int    `json:"number"`
	Source string `json:"source"`
	Thread string `json:"thread"` // the forge's id, as in ReviewItem
	Path   string `json:"path"`
	Line   int    `json:"line"`
	URL    string `json:"url"`
	// Text is the beginning of what was asked.
	Text string `json:"text"`
	// Answer is one of the constants above, Commits are those that address it, Reason the agent's words.
	Answer  string   `json:"answer"`
	Commits []string `json:"commits"`
	Reason  string   `json:"reason"`
	// Replied and Resolved: the forge has the reply, the thread is resolved. Resolved only where
	// commits address it and the runner's own evidence is green.
	Replied  bool `json:"replied"`
	Resolved bool `json:"resolved"`
}

// Unaddressed counts the items that somebody who may command stands behind, and those of them that the agent neither addressed nor
// gave a reason for.
func (r *Result) Unaddressed() (open, of int) {
	for i := range r.Review {
		switch r.Review[i].Answer {
		case NotCommanded:
			continue
		case NotAnswered, LeftForLater:
			open++
		}
		of++
	}
	return open, of
}

// Rebased is what a rebase did.
type Rebased struct {
	Onto    string `json:"onto"`     // branch
	OldBase string `json:"old_base"` // commit
	NewBase string `json:"new_base"` // commit
	OldHead string `json:"old_head"`
	NewHead string `json:"new_head"` // empty means there is none
	// Backup is the ref of the remote that keeps OldHead.
	Backup string `json:"backup"`
	// Conflicts are the files that conflicted; the agent resolved them.
	Conflicts []string `json:"conflicts"`
	// Moved compares the commits before and after.
	Moved []RangePair `json:"moved"`
	// Pushed tells whether the branch was moved; Kept is the ref that keeps the new
	// commits where it was not.
	Pushed bool   `json:"pushed"`
	Kept   string `json:"kept"`
	// Text is git's range-diff, shortened.
	Text string `json:"text"`
}

// How a commit came through a rebase.
const (
	RangeSame    = "same"    // the same change, by patch-id
	RangeChanged = "changed" // another change under the same message
	RangeDropped = "dropped" // not there any more
	RangeAdded   = "added"   // not there before
)

// RangePair is one commit before and after a rebase.
type RangePair struct {
	Old     string `json:"old"` // commit; empty: RangeAdded
	New     string `json:"new"` // commit; empty: RangeDropped
	Subject string `json:"subject"`
	How     string `json:"how"` // one of the constants above
	// Why says for a human why it is not the same, such as "conflict in a.go, resolved by the agent".
	Why string `json:"why"`
}

// RepairRound is one return of failed validation to the agent.
type RepairRound struct {
	Number int `json:"number"` // from 1
	// Failed are the checks that were sent back, by name.
	Failed []string `json:"failed"`
	// Status and Reason are the agent's end of the round.
	Status     Status     `json:"status"`
	Reason     string     `json:"reason"`
	ReasonCode ReasonCode `json:"reason_code,omitempty"`
	DurationMS int64      `json:"duration_ms"`
	// Validation is what came after it.
	Validation []Validation `json:"validation"`
}

// MaxPlan bounds a plan, in bytes: what a human reads, and a state holds.
const MaxPlan = 256 << 10

// PlanFile is the plan's place, in the result's folder.
const PlanFile = "plan.md"
