package forge

import (
	"fmt"
	"time"
)

// Repo is a repository on a forge.
type Repo struct {
	Host  string // of the remote, lower case, with the port of an HTTP remote
	Owner string
	Name  string
	// Assumed is set for a host that is not known by its name: it may be a server of the forge or anything else.
	Assumed bool
}

// String is owner/name.
func (r Repo) String() string { return r.Owner + "/" + r.Name }

// PRSpec is the pull request that should be there.
type PRSpec struct {
	Head  string // branch, pushed already
	Base  string
	Title string
	Body  string // Markdown; cut when it is longer than MaxBody
	Draft bool   // of a new one; whether an existing one is a draft is its reviewers' affair

	Labels        []string
	Reviewers     []string
	TeamReviewers []string // slugs

	// Keep makes the body of one that is open from the body that it has, in place of Body; not ok leaves it as it is. Nil replaces it by Body.
	// Title and base are left as they are, too.
	Keep func(body string) (kept string, ok bool)
	// NoNew opens none where there is none, which is no error.
	NoNew bool
}

// States of a pull request.
const (
	StateOpen   = "open"
	StateClosed = "closed"
	StateMerged = "merged"
)

// PR is a pull request.
type PR struct {
	Number  int
	URL     string // for a browser
	Title   string // stripped, as all words of others
	Body    string // stripped
	State   string // a State constant
	Draft   bool
	Head    string // branch
	HeadSHA string
	// Fork is set when the branch is in another repository, HeadRepo: it is not ours to push.
	Fork     bool
	HeadRepo string // owner/name, "" when it is gone
	Base     string
	BaseSHA  string
	Author   string
	Created  bool // by this call
	Updated  bool // by this call
	// Warnings are what could not be done as asked and did not keep the rest from being done.
	Warnings []string
}

// Warn adds a warning.
func (p *PR) Warn(format string, a ...any) {
	p.Warnings = append(p.Warnings, fmt.Sprintf(format, a...))
}

// Note is a text that somebody wrote on the forge.
type Note struct {
	ID      int64
	Author  Person
	Body    string // Markdown, stripped and bounded
	At      time.Time
	Changed time.Time // the last time, of a comment; else zero
	URL     string
	Removed int  // characters of hidden text that were taken out
	Cut     bool // the text was longer
	Ours    bool // written by this program
}

// Issue is an issue with its discussion.
type Issue struct {
	Number int
	Title  string
	Note          // the first text
	State  string // open or closed
	Labels []string
	IsPR   bool
	// Comments are in the order they were written. More is set when there are more than could be taken,
	// MoreCommands when some of these are, or could be, by people who may write.
	Comments     []Note
	More         bool
	MoreCommands bool
}

// Sources of feedback.
const (
	FromThread  = "thread"  // an unresolved review thread on a line or file
	FromReview  = "review"  // a review with a text of its own
	FromComment = "comment" // a comment on the pull request
)

// Item is one piece of feedback on a pull request. The Note in it is the text, of a
// thread its first comment.
type Item struct {
	Source string // a From constant
	Note
	// State of a review: APPROVED, CHANGES_REQUESTED, COMMENTED, DISMISSED.
	State string

	// The rest is of threads.
	Thread   string // id for ReplyThread and ResolveThread
	Path     string
	Line     int // in the file's present version, else as it was; 0 means the whole file
	Outdated bool
	Replies  []Note // after the first, ours included
	// Answered reports that the last reply is ours and its author has not responded to it.
	Answered bool
}

// Feedback is what a pull request's readers want, oldest first. Where not everything could be taken, what commands
// was taken first; Prefer does the same for a bound of one's own.
type Feedback struct {
	Items []Item
	// More is set when there is more than the bounds of this package take.
	More bool
	// MoreCommands is set when some of that is, or could be, by people who may write: else only others' words are missing.
	MoreCommands bool
}

// Person is who wrote something.
type Person struct {
	Login string // of a bot with "[bot]"; "ghost" for a deleted account
	Bot   bool
	// Permission is the person's role on the repository in the forge's words; "" when it could not be asked.
	Permission string
	// CanWrite tells whether the person may push. Who may not is quoted and obeyed in nothing.
	CanWrite bool
	// Guessed is set when the forge would not say the permission, and CanWrite was concluded from what else it says of the
	// person. An uncertain answer is no.
	Guessed bool
}
