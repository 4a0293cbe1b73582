package github

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-github/v60/github"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
)

const (
	// maxSaid bounds the forge's message in an error, in bytes.
	maxSaid = 600
	// secondaryPause is GitHub's documented pause after a secondary limit without a time.
	secondaryPause = time.Minute
	// maxPause bounds the pause that a server requests; primary limits reset within an hour.
	maxPause = 24 * time.Hour
)

// graphError is a GraphQL error with status 200.
type graphError struct {
	resp *http.Response
	kind string // GitHub's type of the first error
	said string
}

func (e *graphError) Error() string { return e.said }

// movedError is a redirect that is not followed.
type movedError struct{ to string }

func (e *movedError) Error() string { return "redirected to " + e.to }

// classify returns the Error of a failed request. ctx is the caller's, not that of one attempt.
func (c *api) classify(ctx context.Context, doing string, err error) *forge.Error {
	if e, ok := errors.AsType[*forge.Error](err); ok {
		return e
	}
	e := &forge.Error{Doing: doing, Kind: forge.Unavailable, Said: err.Error()}
	var resp *http.Response
	if g, ok := errors.AsType[*graphError](err); ok {
		resp = g.resp
		e.Said, e.Kind = g.said, graphKind(g)
	} else {
		resp, e.Said = answer(err)
		e.Kind = kindOf(resp, e.Said)
	}
	if moved, ok := errors.AsType[*movedError](err); ok {
		e.Kind, e.Said = forge.Invalid, moved.Error()
		e.Next = "correct the remote or pr.api_url; the token is sent to no other host"
	}
	if resp != nil {
		e.Status = resp.StatusCode
	}
	if e.Kind == forge.RateLimited {
		e.Until = c.now().Add(pause(resp))
		e.Said = "the rate limit is used up until " + e.Until.UTC().Format(time.RFC3339) + ": " + e.Said
	}
	if ctx.Err() != nil {
		e.Cause = context.Cause(ctx)
		e.Said = "not done in time: " + e.Said
	}
	e.Next = cmp.Or(e.Next, next(e))
	// Scrub before cutting, which could leave half a token, and after hidden characters are gone.
	e.Said = c.scrub(forge.OneLine(c.scrub(e.Said), maxSaid))
	return e
}

// answer returns the response and the message of an error of go-github.
func answer(err error) (*http.Response, string) {
	if e, ok := errors.AsType[*github.RateLimitError](err); ok {
		return e.Response, e.Message
	}
	if e, ok := errors.AsType[*github.AbuseRateLimitError](err); ok {
		return e.Response, e.Message
	}
	if e, ok := errors.AsType[*github.TwoFactorAuthError](err); ok {
		return e.Response, "two-factor authentication is required: " + e.Message
	}
	if e, ok := errors.AsType[*github.ErrorResponse](err); ok {
		return e.Response, words(e)
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		return nil, fmt.Sprintf("%s: %v", hostOf(e.URL), e.Err)
	}
	return nil, err.Error()
}

// words returns the message of a refusal with its details.
func words(e *github.ErrorResponse) string {
	parts := []string{e.Message}
	if e.Message == "" {
		parts[0] = "the forge answered " + e.Response.Status
	}
	for i, d := range e.Errors {
		if i == 5 { // the first few say it
			break
		}
		switch {
		case d.Message != "":
			parts = append(parts, d.Message)
		case d.Field != "":
			parts = append(parts, d.Resource+"."+d.Field+" is "+d.Code)
		}
	}
	return strings.Join(parts, ": ")
}

func hostOf(s string) string {
	if u, err := url.Parse(s); err == nil && u.Host != "" {
		return u.Host
	}
	return "the forge"
}

// kindOf classifies a status. GitHub reports both of its limits with 403 or 429.
func kindOf(resp *http.Response, said string) forge.Kind {
	if resp == nil {
		return forge.Unavailable
	}
	switch code := resp.StatusCode; {
	case code == http.StatusUnauthorized:
		return forge.Auth
	case code == http.StatusTooManyRequests:
		return forge.RateLimited
	case code == http.StatusForbidden:
		if resp.Header.Get("X-RateLimit-Remaining") == "0" || resp.Header.Get("Retry-After") != "" || secondary(said) {
			return forge.RateLimited
		}
		return forge.Permission
	case code == http.StatusNotFound, code == http.StatusGone, code >= 300 && code < 400:
		return forge.NotFound
	case code == http.StatusRequestTimeout, code >= 500:
		return forge.Unavailable
	case code >= 400:
		return forge.Invalid
	}
	return forge.Unavailable // an answer that cannot be read
}

func secondary(said string) bool {
	s := strings.ToLower(said)
	return strings.Contains(s, "secondary rate limit") || strings.Contains(s, "abuse detection")
}

func graphKind(g *graphError) forge.Kind {
	switch g.kind {
	case "RATE_LIMITED", "RATE_LIMIT":
		return forge.RateLimited
	case "NOT_FOUND":
		return forge.NotFound
	case "FORBIDDEN", "INSUFFICIENT_SCOPES":
		return forge.Permission
	case "SERVICE_UNAVAILABLE", "INTERNAL":
		return forge.Unavailable
	}
	switch {
	case secondary(g.said):
		return forge.RateLimited
	case strings.HasPrefix(g.said, "Something went wrong while executing your query"):
		return forge.Unavailable // GitHub's words for a time-out of its own
	}
	return forge.Invalid
}

// pause returns how long a limited client must wait, by the server's own clock.
func pause(resp *http.Response) time.Duration {
	d := secondaryPause
	if resp != nil {
		server := time.Now()
		if t, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
			server = t
		}
		after, reset := resp.Header.Get("Retry-After"), resp.Header.Get("X-RateLimit-Reset")
		if n, err := strconv.ParseInt(after, 10, 64); err == nil && n >= 0 {
			d = time.Duration(min(n, int64(maxPause/time.Second))) * time.Second
		} else if t, err := http.ParseTime(after); err == nil {
			d = t.Sub(server)
		} else if n, err := strconv.ParseInt(reset, 10, 64); err == nil && resp.Header.Get("X-RateLimit-Remaining") == "0" {
			d = time.Unix(n, 0).Sub(server)
		}
	}
	// Add a second: both clocks are cut to seconds.
	return min(max(d, 0)+time.Second, maxPause)
}

// next returns the step for an error that needs another text than its kind's.
func next(e *forge.Error) string {
	said := strings.ToLower(e.Said)
	switch {
	case e.Kind == forge.Permission && strings.Contains(said, "saml"):
		return "authorize the token for the organization's single sign-on"
	case e.Kind == forge.Permission && strings.Contains(said, "archived"):
		return "the repository is archived: it takes no changes"
	case e.Kind == forge.NotFound && e.Status >= 300 && e.Status < 400:
		return "the repository was renamed or moved: correct the remote"
	case e.Cause != nil && e.Kind == forge.Unavailable:
		return "try again with more time; nothing is lost"
	}
	return forge.NextSteps[e.Kind]
}
