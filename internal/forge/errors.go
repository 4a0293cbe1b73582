package forge

import (
	"cmp"
	"errors"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// Kind is the kind of an error, on which callers branch.
type Kind string

// Kinds of errors.
const (
	Unsupported Kind = "not-github"   // the remote is not on a GitHub, so there is no pull request
	Auth        Kind = "auth"         // no token, or one that is not accepted
	Permission  Kind = "permission"   // the token is accepted and may not do this
	NotFound    Kind = "not-found"    // it is not there, or the token may not see it
	RateLimited Kind = "rate-limited" // Until says when it works again; the caller's deadline is earlier
	Unavailable Kind = "unavailable"  // the forge or the way to it fails; try later
	Invalid     Kind = "invalid"      // the forge understood and refuses; again would not help
)

// Error is the error of every call of this package. It never contains the token.
type Error struct {
	Kind   Kind
	Doing  string    // what was being done, with what
	Said   string    // what happened; words of the forge included, in one line
	Next   string    // what to do
	Status int       // of HTTP; 0 means no answer
	Until  time.Time // of RateLimited, on this machine's clock
	Cause  error     // a context's error, or nil
}

// NewError returns an error of a request without an answer. An empty next means the kind's next step.
func NewError(kind Kind, doing, said, next string) *Error {
	return &Error{Kind: kind, Doing: doing, Said: said, Next: cmp.Or(next, NextSteps[kind])}
}

func (e *Error) Error() string {
	if e.Next == "" {
		return e.Doing + ": " + e.Said
	}
	return e.Doing + ": " + e.Said + "; " + e.Next
}

// Unwrap returns the context's error if that ended the call.
func (e *Error) Unwrap() error { return e.Cause }

// KindOf returns the kind of an error of this package, "" for any other.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return ""
}

// NextSteps has the user's next step for each kind of error.
var NextSteps = map[Kind]string{
	Unsupported: "push the branch and open the request by hand, or name the API of an enterprise server: pr.api_url in the project file",
	Auth:        "use a token that is valid for this host: SANDBOX_AGENT_GIT_TOKEN (first), GH_TOKEN, or `gh auth login`",
	Permission:  "give the token write access to pull requests, issues and contents of this repository",
	NotFound:    "check the name, and that the token can read the repository",
	RateLimited: "try again after that time",
	Unavailable: "try again later; nothing is lost",
	Invalid:     "correct the request as the forge's message says",
}

// OneLine returns an untrusted text on one line.
func OneLine(s string, limit int) string {
	return text.Short(text.Words(StripPlain(text.Prefix(s, 4*limit))), limit)
}
