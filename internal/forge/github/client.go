// Package github implements forge.Forge for github.com, *.ghe.com and GitHub Enterprise servers.
//
// A request that is sent twice has no second effect: requests without a change are retried, and a failed creation is looked up before it
// is repeated. The token is sent to the API's own scheme, host and port only, and is in no error and no log.
package github

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/google/go-github/v60/github"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/internal/redact"
	"github.com/sandbox-agent/sandbox-agent/internal/version"
)

const (
	// callLimit is the deadline of a call whose context has none.
	callLimit    = 2 * time.Minute
	attemptLimit = 30 * time.Second
	// maxAttempts bounds requests that fail for reasons of the server or the network.
	maxAttempts = 5
	// maxLimits bounds waits for rate limits within one call.
	maxLimits = 10
	// firstPause doubles up to maxBackoff, each time with jitter.
	firstPause = 500 * time.Millisecond
	maxBackoff = 8 * time.Second
)

// Client talks to one repository. It is safe for concurrent use.
type Client struct{ *pulls }

var _ forge.Forge = (*Client)(nil)

type api struct {
	repo  Repo
	http  *http.Client
	log   *slog.Logger
	pause func(ctx context.Context, d time.Duration) error // replaced by tests; returns early with the context's error
	token tokens

	mu      sync.Mutex
	checked bool // an assumed host was found to be a GitHub
}

// people knows who may write to the repository.
type people struct {
	*api

	mu     sync.Mutex
	people map[string]forge.Person
	full   *github.Repository
	// me is the token's owner, without a login until the forge reports it, at the earliest after askAgain.
	me       account
	askAgain time.Time
}

type talk struct{ *people }

type pulls struct{ *talk }

// New returns a client; it sends nothing yet.
func New(conf forge.Config) (*Client, error) {
	repo, ok := Parse(conf.Remote)
	if conf.Repository != "" {
		if repo.Owner, repo.Name, ok = ownerAndName(conf.Repository); !ok || conf.APIURL == "" {
			return nil, forge.NewError(forge.Invalid, "use a forge",
				fmt.Sprintf("repository %q without an API, or not of the form owner/name", forge.OneLine(conf.Repository, 200)),
				"give both: pr.api_url and pr.repository")
		}
	}
	doing := "use the forge of " + forge.OneLine(sanitize(conf.Remote), 200)
	if !ok {
		return nil, forge.NewError(forge.Unsupported, doing, "the remote is not a GitHub repository", "")
	}
	if conf.APIURL != "" && !repo.at(conf.APIURL) {
		return nil, forge.NewError(forge.Invalid, doing,
			"pr.api_url is no http or https address of an API", "give one like https://ghe.example.com/api/v3")
	}
	if strings.ContainsFunc(conf.Token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return nil, forge.NewError(forge.Auth, doing,
			"the token has blanks or control characters in it", "give the token alone, without a line break")
	}
	c := &api{repo: repo, log: conf.Log, pause: sleep}
	c.log = cmp.Or(c.log, slog.New(slog.DiscardHandler))
	c.token.fixed = conf.Token
	if conf.App != nil {
		key, err := appKey(conf.App)
		if err != nil {
			return nil, forge.NewError(forge.Auth, doing, err.Error(), "use the App's private key file as downloaded from GitHub")
		}
		c.token.app, c.token.key = conf.App, key
	}
	base, err := url.Parse(repo.API)
	if err != nil {
		return nil, forge.NewError(forge.Invalid, doing, "the API's address is invalid", "")
	}
	c.http = guarded(base)
	return &Client{&pulls{&talk{&people{api: c, people: map[string]forge.Person{}}}}}, nil
}

// Repo returns the client's repository.
func (c *api) Repo() Repo { return c.repo }

// sanitize removes user and password from a remote, also from one that cannot be parsed.
func sanitize(remote string) string {
	scheme, rest, ok := strings.Cut(remote, "://")
	if i := strings.LastIndexByte(rest, '@'); ok && i >= 0 {
		return scheme + "://" + rest[i+1:]
	}
	return remote
}

func (c *api) now() time.Time { return time.Now() }

// scrub removes tokens from texts of the forge or the network.
func (c *api) scrub(s string) string {
	return redact.Named(c.token.known()).String(s)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, callLimit)
}

type request func(ctx context.Context, gh *github.Client) error

// fetch sends a request that may be repeated.
func (c *api) fetch(ctx context.Context, doing string, send request) error {
	return c.try(ctx, doing, maxAttempts, send)
}

// create sends a request that must not be carried out twice. If its outcome is unknown, look reports it.
func (c *api) create(ctx context.Context, doing string, look func(context.Context) (bool, error), send request) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	for attempt := 1; ; attempt++ {
		err := c.try(ctx, doing, 1, send)
		if forge.KindOf(err) != forge.Unavailable || attempt == maxAttempts || !c.backOff(ctx, attempt) {
			return err
		}
		if done, lookErr := look(ctx); lookErr != nil || done {
			return lookErr
		}
		c.log.Debug("forge: sent again", "doing", doing, "attempt", attempt, "error", err)
	}
}

// try sends a request up to attempts times, and waits for rate limits within the context's deadline.
func (c *api) try(ctx context.Context, doing string, attempts int, send request) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	fresh, limits := false, 0
	for failed := 0; ; {
		err := c.once(ctx, send)
		if err == nil {
			return nil
		}
		e := c.classify(ctx, doing, err)
		switch {
		case ctx.Err() != nil:
			return e
		case e.Kind == forge.RateLimited:
			limits++
			if limits > maxLimits || !c.waitFor(ctx, e) {
				return e
			}
		case e.Kind == forge.Auth && !fresh && c.token.forget():
			fresh = true // an installation token that was revoked or has expired early
		case e.Kind == forge.Unavailable:
			failed++
			if failed >= attempts || !c.backOff(ctx, failed) {
				return e
			}
			c.log.Debug("forge: again", "doing", doing, "attempt", failed, "error", e.Said)
		default:
			return e
		}
	}
}

// once sends a request with a deadline of its own. go-github's client is new each time: it remembers limits by this
// machine's clock, which may be wrong.
func (c *api) once(ctx context.Context, send request) error {
	ctx, cancel := context.WithTimeout(ctx, attemptLimit)
	defer cancel()
	if err := c.known(ctx); err != nil {
		return err
	}
	token, err := c.Token(ctx)
	if err != nil {
		return err
	}
	return send(withAuth(ctx, token), c.client())
}

func (c *api) client() *github.Client {
	gh := github.NewClient(c.http)
	gh.BaseURL, _ = url.Parse(c.repo.API) // New has parsed it
	gh.UserAgent = "sandbox-agent/" + version.String()
	return gh
}

// send is for operations below the repository that go-github lacks.
func (c *api) send(ctx context.Context, gh *github.Client, method, path string, body, out any) error {
	req, err := gh.NewRequest(method, "repos/"+c.repo.Owner+"/"+c.repo.Name+"/"+path, body)
	if err != nil {
		return err
	}
	_, err = gh.Do(ctx, req, out)
	return err
}

// waitFor waits until a limit has ended, or returns false if that is too late.
func (c *api) waitFor(ctx context.Context, e *forge.Error) bool {
	if deadline, ok := ctx.Deadline(); ok && e.Until.After(deadline) {
		return false
	}
	c.log.Info("forge: waits for the rate limit", "doing", e.Doing, "until", e.Until.UTC().Format(time.RFC3339))
	return c.pause(ctx, e.Until.Sub(c.now())) == nil
}

// backOff pauses before the next attempt; false if there is no time.
func (c *api) backOff(ctx context.Context, failed int) bool {
	return c.pause(ctx, jitter(min(firstPause<<(failed-1), maxBackoff))) == nil
}

// needToken refuses calls that cannot work without a token.
func (c *api) needToken(doing string) error {
	if c.token.fixed == "" && c.token.app == nil {
		return forge.NewError(forge.Auth, doing, "there is no token", "")
	}
	return nil
}

// known verifies that an assumed host is a GitHub before it gets the token: GitHub marks every answer.
func (c *api) known(ctx context.Context) error {
	c.mu.Lock()
	done := c.checked || !c.repo.Assumed
	c.mu.Unlock()
	if done {
		return nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.repo.API+"meta", http.NoBody)
	if err != nil {
		return err
	}
	not := forge.NewError(forge.Unsupported, "look whether "+c.repo.Host+" is a GitHub", "it does not answer like one", "")
	resp, err := c.http.Do(req)
	if err != nil {
		if _, moved := errors.AsType[*movedError](err); moved {
			return not
		}
		return err
	}
	defer resp.Body.Close()
	if resp.Header.Get("X-GitHub-Request-Id") == "" && resp.Header.Get("X-GitHub-Enterprise-Version") == "" {
		if resp.StatusCode >= 500 {
			return &forge.Error{
				Kind: forge.Unavailable, Doing: not.Doing, Said: "it answers " + resp.Status, Status: resp.StatusCode,
				Next: forge.NextSteps[forge.Unavailable],
			}
		}
		not.Status = resp.StatusCode
		return not
	}
	c.mu.Lock()
	c.checked = true
	c.mu.Unlock()
	return nil
}
