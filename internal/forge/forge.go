// Package forge defines the contract of a forge, such as GitHub, and the text handling that all forges share.
package forge

import (
	"context"
	"log/slog"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Forge is one repository on a forge. Its methods are safe for concurrent use; each has a deadline of its own where its
// context has none, and ends in an *Error whose Kind says what happened. A request that is repeated does nothing twice.
type Forge interface {
	// Token is what opens the repository for git, renewed where it expires.
	Token(ctx context.Context) (string, error)
	// OpenPR opens the pull request of a branch, or brings it up to date.
	OpenPR(ctx context.Context, spec PRSpec) (PR, error)
	// PRByNumber reads a pull request.
	PRByNumber(ctx context.Context, number int) (PR, error)
	// PRByHead finds the pull request of a branch, an open one first; its number is 0 if there is none.
	PRByHead(ctx context.Context, branch string) (PR, error)
	// Issue reads an issue with its comments.
	Issue(ctx context.Context, number int) (Issue, error)
	// Feedback reads what reviewers asked for since a time, and is not answered.
	Feedback(ctx context.Context, number int, since time.Time) (Feedback, error)
	// Commented reports whether a comment with the mark of key is there.
	Commented(ctx context.Context, number int, key string) (bool, error)
	// Comment writes a comment, or brings the one with the mark of key up to date.
	Comment(ctx context.Context, number int, key, body string) (Posted, error)
	// ReplyThread answers a thread of a review, once for each key.
	ReplyThread(ctx context.Context, number int, thread, key, body string) (Posted, error)
	// ResolveThread closes a thread.
	ResolveThread(ctx context.Context, number int, thread string) error
}

// Config says which repository is used, and with which credentials.
type Config struct {
	Remote string // clone URL
	// Repository is owner/name, for a remote whose path is another; needs APIURL.
	Repository string
	// APIURL is the API of a server that is not known by its name; "" takes it from the remote.
	APIURL string
	Token  string
	// App makes tokens for this one repository and renews them; nil uses Token.
	App *workorder.ForgeApp
	Log *slog.Logger // nil writes no log
}

// Pages are the addresses of a repository's pages in a browser.
type Pages interface {
	Commit(sha string) string
	// File is the page of a file in a commit, at a line; 0 means the file as a whole.
	File(sha, path string, line int) string
	// Raw is the content of a file in a commit.
	Raw(sha, path string) string
}
