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
	// Assumed means that the host's name is unknown: it may be a server of the forge or anything else.
	Assumed bool
}

// String returns owner/name.
func (r Repo) String() string { return r.Owner + "/" + r.Name }

// PRSpec is the desired pull request.
type PRSpec struct {
	Head  string // branch, pushed already
	Base  string
	Title string
	Body  string // Markdown; cut when it is longer than MaxBody
	Draft bool   // of a new one; whether an existing one is a draft is its reviewers' affair

	Labels        []string
	Reviewers     []string
	TeamReviewers []string // slugs

	// Keep, if non-nil, makes the body of an open pull request from its present body, in place of Body; title and base
	// stay. If ok is false, the body stays.
	Keep func(body string) (kept string, ok bool)
	// NoNew updates only: a missing pull request is no error.
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
	// Fork means that the branch is in another repository, HeadRepo, to which we do not push.
	Fork     bool
	HeadRepo string // owner/name, "" when it is gone
	Base     string
	BaseSHA  string
	Author   string
	Created  bool // by this call
	Updated  bool // by this call
	// Warnings lists refused parts that did not prevent the rest.
	Warnings []string
}

// Warn adds a warning.
func (p *PR) Warn(format string, a ...any) {
	p.Warnings = append(p.Warnings, fmt.Sprintf(format, a...))
}

// Note is a text on the forge.
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
	// Comments are in the order of writing. More: there are more than the bounds allow. MoreCommands: some of these
	// are, or could be, by people with write access.
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

// Item is one piece of feedback on a pull request. Its Note is the text, or a thread's first comment.
type Item struct {
	Source string // a From constant
	Note
	// State of a review: APPROVED, CHANGES_REQUESTED, COMMENTED, DISMISSED.
	State string

	// The rest applies to threads.
	Thread   string // id for ReplyThread and ResolveThread
	Path     string
	Line     int // in the file's present version, else as it was; 0 means the whole file
	Outdated bool
	Replies  []Note // after the first, ours included
	// Answered means that the last reply is ours and its author has not responded to it.
	Answered bool
}

// Feedback is the reviewers' feedback, oldest first. Commands take precedence over other texts if not all fit; Prefer
// does the same for the caller's own bound.
type Feedback struct {
	Items []Item
	// More means that there is more than the bounds of this package allow.
	More bool
	// MoreCommands means that some of that is, or could be, by people with write access.
	MoreCommands bool
}

// Person is an author.
type Person struct {
	Login string // of a bot with "[bot]"; "ghost" for a deleted account
	Bot   bool
	// Permission is the person's role on the repository in the forge's words; "" if unknown.
	Permission string
	// CanWrite reports whether the person may push. Texts of others are quoted and never obeyed.
	CanWrite bool
	// Guessed means that CanWrite was derived from the association. When in doubt, it is false.
	Guessed bool
}
