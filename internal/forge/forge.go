// Package forge is what the rest asks of the place where pull requests are: the contract, and what all forges share. Texts
// that somebody else wrote are made harmless here (Strip), our texts are shortened to fit (FitBody), and a mark in a
// comment says that it is ours (Mark). A forge is in a package below it.
package forge

import (
	"context"
	"time"
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
