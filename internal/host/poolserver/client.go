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
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/sandbox/pool"
)

// ErrNone means that no server has the socket.
var ErrNone = errors.New("no pool is served")

// Client asks the server at a socket.
type Client struct{ http *http.Client }

// Dial returns a client of the server at a socket. It contacts nothing.
func Dial(socket string) *Client {
	return &Client{http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
				return nil, fmt.Errorf("%w at %s", ErrNone, socket)
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

// do asks, and reads the answer's document within the time.
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
	if errors.Is(err, ErrNone) {
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
func (c *Client) List(ctx context.Context) (all []Lease, err error) {
	return all, c.do(ctx, askDeadline, http.MethodGet, "/v1/leases", nil, &all)
}

// Acquire asks for a lease.
func (c *Client) Acquire(ctx context.Context, r Request) (l Lease, err error) {
	return l, c.do(ctx, acquireDeadline, http.MethodPost, "/v1/leases", r, &l)
}

// execWithin is how long the answer to a command may take.
func execWithin(e Exec) time.Duration {
	limit := pool.DefaultTimeout
	if e.TimeoutSeconds > 0 {
		limit = time.Duration(e.TimeoutSeconds * float64(time.Second))
	}
	return limit + execPatience
}

// Exec runs a command in a lease.
func (c *Client) Exec(ctx context.Context, id string, e Exec) (r Result, err error) {
	return r, c.do(ctx, execWithin(e), http.MethodPost, execPath(id), e, &r)
}

func execPath(id string) string { return "/v1/leases/" + url.PathEscape(id) + "/exec" }

// ExecTo is Exec with all output, as it comes, in place of a part of it in the Result. An older server that does not
// stream returns its bounded output at the end.
func (c *Client) ExecTo(ctx context.Context, id string, e Exec, stdout, stderr io.Writer) (Result, error) {
	within := execWithin(e)
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
