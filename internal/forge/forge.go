// Package forge defines the contract of a forge, such as GitHub, and the text handling that all forges share.
package forge

import (
	"context"
	"log/slog"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Forge is one repository on a forge. Its methods are safe for concurrent use, have a deadline of their own if the
// context has none, and return an *Error. A repeated request has no second effect.
type Forge interface {
	// Token returns the credential for git, renewed if it has expired.
	Token(ctx context.Context) (string, error)
	// OpenPR opens the pull request of a branch, or updates it.
	OpenPR(ctx context.Context, spec PRSpec) (PR, error)
	// PRByNumber reads a pull request.
	PRByNumber(ctx context.Context, number int) (PR, error)
	// PRByHead finds the pull request of a branch, an open one first; its number is 0 if there is none.
	PRByHead(ctx context.Context, branch string) (PR, error)
	// Issue reads an issue with its comments.
	Issue(ctx context.Context, number int) (Issue, error)
	// Feedback reads the reviewers' feedback since a time that is not answered.
	Feedback(ctx context.Context, number int, since time.Time) (Feedback, error)
	// Commented reports whether a comment with the mark of key exists.
	Commented(ctx context.Context, number int, key string) (bool, error)
	// Comment writes a comment, or updates the one with the mark of key.
	Comment(ctx context.Context, number int, key, body string) (Posted, error)
	// ReplyThread answers a thread of a review, once for each key.
	ReplyThread(ctx context.Context, number int, thread, key, body string) (Posted, error)
	// ResolveThread closes a thread.
	ResolveThread(ctx context.Context, number int, thread string) error
}

// Config selects a repository and its credentials.
type Config struct {
	Remote string // clone URL
	// Repository is owner/name if the remote has another path; it needs APIURL.
	Repository string
	// APIURL is the API of a server with an unknown name; "" takes it from the remote.
	APIURL string
	Token  string
	// App makes tokens for this one repository and renews them; nil uses Token.
	App *workorder.ForgeApp
	Log *slog.Logger // nil writes no log
}

// Pages are the addresses of a repository's pages in a browser.
type Pages interface {
	Commit(sha string) string
	// File returns the page of a file in a commit, at a line; 0 means the whole file.
	File(sha, path string, line int) string
	// Raw returns the content of a file in a commit.
	Raw(sha, path string) string
}
