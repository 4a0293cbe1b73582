// Package poolserver lends the sandboxes of a pool to programs of any language, over HTTP on a socket of this user and,
// where asked, on the loopback with a token.
//
//	GET    /v1/stats             Stats
//	POST   /v1/leases            Request -> Lease
//	GET    /v1/leases            all that are lent, a Lease each
//	POST   /v1/leases/{id}/exec  Exec -> Result, or lines of Output with Exec.Stream or Accept: application/x-ndjson
//	DELETE /v1/leases/{id}       gives it back; with ?destroy=1 its sandbox is removed
//	DELETE /v1/leases            removes all sandboxes, lent and idle
//
// Documents are JSON; an unknown field is an error. An answer that is no success has an Error.
package poolserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/sandbox/pool"
)

// Request asks for a lease.
type Request struct {
	pool.Spec
	// Name is for people who look at what is lent; it need not be unique.
	Name string `json:"name,omitempty"`
	// TimeoutSeconds limits each command of the lease that has no limit of its own; 0 means 300.
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty"`
}

var lease = lazyregexp.New(`^L-[a-z0-9]{1,40}$`)

// ValidLease reports whether a lease can have the ID.
func ValidLease(id string) bool { return lease.MatchString(id) }

// LeaseInfo is a lease as JSON.
type LeaseInfo struct {
	ID      string    `json:"id"`
	Name    string    `json:"name,omitempty"`
	Sandbox string    `json:"sandbox"`
	Since   time.Time `json:"since"`
	// Status is idle or busy, whether a command runs in it.
	Status string `json:"status"`
	// TimeoutSeconds limits a command that has no limit of its own.
	TimeoutSeconds float64 `json:"timeout_seconds"`
}

// ExecRequest is a command: Argv, or Command for a shell.
type ExecRequest struct {
	Argv    []string `json:"argv,omitempty"`
	Command string   `json:"command,omitempty"` // a script for sh -c
	Dir     string   `json:"cwd,omitempty"`     // "" is /workspace
	Env     []string `json:"env,omitempty"`     // NAME=value
	Stdin   string   `json:"stdin,omitempty"`
	// StdinBytes is Stdin that need not be a text.
	StdinBytes []byte `json:"stdin_base64,omitempty"`
	// TimeoutSeconds ends it with everything it started; 0 means the lease's limit.
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty"`
	// MaxOutput bounds each stream, in bytes, up to 64 MiB; 0 means 1 MiB.
	MaxOutput int `json:"max_output,omitempty"`
	// Stream asks for all output, as it comes: the answer is an Output on each line.
	Stream bool `json:"stream,omitempty"`
	// ParseJSON asks for Result.JSON. It is not for a stream.
	ParseJSON bool `json:"parse_json,omitempty"`
}

// Output is a part of what a command printed, or how it ended. The last one of an answer has a Result or an Error.
type Output struct {
	Stdout []byte  `json:"stdout_base64,omitempty"`
	Stderr []byte  `json:"stderr_base64,omitempty"`
	Result *Result `json:"result,omitempty"`
	Error  *Error  `json:"error,omitempty"`
}

// Result is how a command ended: one that fails is no error.
type Result struct {
	sandbox.ExitStatus
	Stdout string `json:"stdout"` // what is not UTF-8 is replaced
	Stderr string `json:"stderr"`
	// StdoutBytes and StderrBytes are Stdout and Stderr as they are, where those are not UTF-8.
	StdoutBytes []byte `json:"stdout_base64,omitempty"`
	StderrBytes []byte `json:"stderr_base64,omitempty"`
	DurationMS  int64  `json:"duration_ms"`
	// JSON is the last line of Stdout, if it is JSON and ExecRequest.ParseJSON asked for it.
	JSON json.RawMessage `json:"json,omitempty"`
}

// Output is what the command printed on standard output, as it is.
func (r Result) Output() []byte { return either(r.StdoutBytes, r.Stdout) }

// Errors is what the command printed on standard error, as it is.
func (r Result) Errors() []byte { return either(r.StderrBytes, r.Stderr) }

func either(exact []byte, valid string) []byte {
	if exact != nil {
		return exact
	}
	return []byte(valid)
}

func resultOf(r sandbox.RunResult) Result {
	exact := func(b []byte) []byte {
		if utf8.Valid(b) {
			return nil
		}
		return b
	}
	return Result{
		ExitStatus: r.ExitStatus, Stdout: string(r.Stdout), Stderr: string(r.Stderr),
		StdoutBytes: exact(r.Stdout), StderrBytes: exact(r.Stderr), DurationMS: r.Duration.Milliseconds(),
	}
}

// Kind says what kind of error an Error is.
type Kind string

// The kinds of errors.
const (
	KindInvalid     Kind = "invalid"     // 400
	KindNotFound    Kind = "not_found"   // 404: no such lease or image
	KindLimit       Kind = "limit"       // 429
	KindUnsupported Kind = "unsupported" // 501
	KindUnavailable Kind = "unavailable" // 503: the engine does not answer, or the pool ends
	KindFailed      Kind = "failed"      // 500
)

// Error is the document of an answer that is no success.
type Error struct {
	Kind Kind   `json:"kind"`
	Text string `json:"error"`
}

func (e *Error) Error() string { return e.Text }

// ErrNotServing means that no server listens on the socket.
var ErrNotServing = errors.New("no pool is served")

// Client asks the server at a socket.
type Client struct{ http *http.Client }

// Dial returns a client of the server at a socket. It contacts nothing.
func Dial(socket string) *Client {
	return &Client{http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
				return nil, fmt.Errorf("%w at %s", ErrNotServing, socket)
			}
			return conn, err
		},
		DisableKeepAlives: true,
	}}}
}

// How long answers may take. A server that is stopped takes connections and answers nothing.
const (
	askDeadline     = 2 * time.Minute
	acquireDeadline = 30 * time.Minute // the image may have to be fetched
	// execPatience comes on top of a command's own time, and of what the server adds to that.
	execPatience = 15 * time.Second
)

func (c *Client) do(ctx context.Context, within time.Duration, method, path string, request, answer any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("the server has not answered within %s", within))
	defer cancel()
	got, err := c.ask(ctx, method, path, "", request)
	if err != nil {
		return err
	}
	defer got.Body.Close()
	if err := json.NewDecoder(got.Body).Decode(answer); err != nil {
		return fmt.Errorf("ask the pool: read the answer: %w", errors.Join(context.Cause(ctx), err))
	}
	return nil
}

// ask sends a request and returns the response if it is a success; the caller closes its body.
func (c *Client) ask(ctx context.Context, method, path, accept string, request any) (*http.Response, error) {
	var body io.Reader
	if request != nil {
		b, err := json.Marshal(request)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://pool"+path, body)
	if err != nil {
		return nil, err
	}
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	got, err := c.http.Do(r)
	if errors.Is(err, ErrNotServing) {
		return nil, errors.Unwrap(err)
	}
	if err != nil {
		return nil, fmt.Errorf("ask the pool: %w", errors.Join(context.Cause(ctx), err))
	}
	if got.StatusCode >= http.StatusMultipleChoices {
		defer got.Body.Close()
		var e Error
		if err := json.NewDecoder(got.Body).Decode(&e); err != nil {
			return nil, fmt.Errorf("ask the pool: it answered %s", got.Status)
		}
		return nil, &e
	}
	return got, nil
}

// Stats are the pool's numbers.
func (c *Client) Stats(ctx context.Context) (s pool.Stats, err error) {
	return s, c.do(ctx, askDeadline, http.MethodGet, "/v1/stats", nil, &s)
}

// List is all that is lent.
func (c *Client) List(ctx context.Context) (all []LeaseInfo, err error) {
	return all, c.do(ctx, askDeadline, http.MethodGet, "/v1/leases", nil, &all)
}

// Acquire asks for a lease.
func (c *Client) Acquire(ctx context.Context, r Request) (l LeaseInfo, err error) {
	return l, c.do(ctx, acquireDeadline, http.MethodPost, "/v1/leases", r, &l)
}

// execWithin returns how long the answer to a command may take. Only the server knows the limit of a lease.
func (c *Client) execWithin(ctx context.Context, id string, e ExecRequest) time.Duration {
	limit := e.TimeoutSeconds
	if limit == 0 {
		limit = pool.DefaultTimeout.Seconds()
		all, _ := c.List(ctx) // the command's own request has the error
		for _, l := range all {
			if l.ID == id && l.TimeoutSeconds > 0 {
				limit = l.TimeoutSeconds
			}
		}
	}
	return seconds(limit) + execPatience
}

// Exec runs a command in a lease.
func (c *Client) Exec(ctx context.Context, id string, e ExecRequest) (r Result, err error) {
	return r, c.do(ctx, c.execWithin(ctx, id, e), http.MethodPost, execPath(id), e, &r)
}

func execPath(id string) string { return "/v1/leases/" + url.PathEscape(id) + "/exec" }

// ExecTo is Exec with all output, as it comes, in place of a part of it in the Result. An older server that does not
// stream returns its bounded output at the end.
func (c *Client) ExecTo(ctx context.Context, id string, e ExecRequest, stdout, stderr io.Writer) (Result, error) {
	within := c.execWithin(ctx, id, e)
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("the server has not answered within %s", within))
	defer cancel()
	got, err := c.ask(ctx, http.MethodPost, execPath(id), streamType, e)
	if err != nil {
		return Result{}, err
	}
	defer got.Body.Close()
	d := json.NewDecoder(got.Body)
	if got.Header.Get("Content-Type") != streamType {
		var r Result
		if err := d.Decode(&r); err != nil {
			return Result{}, fmt.Errorf("ask the pool: read the answer: %w", errors.Join(context.Cause(ctx), err))
		}
		_, err := stdout.Write(r.Output())
		_, eerr := stderr.Write(r.Errors())
		r.Stdout, r.StdoutBytes, r.Stderr, r.StderrBytes = "", nil, "", nil
		return r, errors.Join(err, eerr)
	}
	for {
		var o Output
		if err := d.Decode(&o); err != nil {
			return Result{}, fmt.Errorf("ask the pool: read the answer: %w", errors.Join(context.Cause(ctx), err))
		}
		_, err := stdout.Write(o.Stdout)
		if _, eerr := stderr.Write(o.Stderr); err == nil {
			err = eerr
		}
		switch {
		case err != nil:
			return Result{}, err
		case o.Error != nil:
			return Result{}, o.Error
		case o.Result != nil:
			return *o.Result, nil
		}
	}
}

// End gives a lease back, or destroys it.
func (c *Client) End(ctx context.Context, id string, destroy bool) (s pool.Stats, err error) {
	path := "/v1/leases/" + url.PathEscape(id)
	if destroy {
		path += "?destroy=1"
	}
	return s, c.do(ctx, askDeadline, http.MethodDelete, path, nil, &s)
}

// DestroyAll removes all sandboxes.
func (c *Client) DestroyAll(ctx context.Context) (s pool.Stats, err error) {
	return s, c.do(ctx, askDeadline, http.MethodDelete, "/v1/leases", nil, &s)
}

// Source is a directory or file of this machine that leases may mount, with everything below it.
type Source struct {
	// Path is absolute and has no symbolic link in it.
	Path     string
	ReadOnly bool
}

// NewSource reads DIR or DIR:ro. Symbolic links in DIR are resolved now, once.
func NewSource(text string) (Source, error) {
	dir, ro := strings.CutSuffix(text, ":ro")
	if !filepath.IsAbs(dir) {
		return Source{}, fmt.Errorf("%q must be an absolute path", dir)
	}
	p, err := filepath.EvalSymlinks(dir)
	return Source{p, ro}, err
}

// permit returns the spec with symbolic links in its paths resolved, or an error that names each path that no source covers.
func permit(s pool.Spec, sources []Source) (pool.Spec, error) {
	var errs []error
	resolve := func(path string, readOnly bool) string {
		p, err := filepath.EvalSymlinks(path)
		if err != nil {
			errs = append(errs, err)
			return path
		}
		for _, src := range sources {
			if (p == src.Path || strings.HasPrefix(p, strings.TrimSuffix(src.Path, "/")+"/")) && (readOnly || !src.ReadOnly) {
				return p
			}
		}
		flag := p
		if readOnly {
			flag += ":ro"
		}
		errs = append(errs, fmt.Errorf("the pool does not allow %s in a lease: serve it with --allow-mount %s", p, flag))
		return path
	}
	s.Mounts = append([]sandbox.Mount(nil), s.Mounts...)
	for i, m := range s.Mounts {
		s.Mounts[i].Source = resolve(m.Source, m.ReadOnly)
	}
	if s.Root != "" {
		s.Root = resolve(s.Root, true)
	}
	if err := errors.Join(errs...); err != nil {
		return s, fmt.Errorf("pool: %w: %w", sandbox.ErrInvalidSpec, err)
	}
	return s, nil
}
