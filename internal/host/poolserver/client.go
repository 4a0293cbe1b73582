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

// do asks, and reads the answer's document.
func (c *Client) do(ctx context.Context, method, path string, request, answer any) error {
	var body io.Reader
	if request != nil {
		b, err := json.Marshal(request)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://pool"+path, body)
	if err != nil {
		return err
	}
	got, err := c.http.Do(r)
	if errors.Is(err, ErrNone) {
		return errors.Unwrap(err)
	}
	if err != nil {
		return fmt.Errorf("ask the pool: %w", err)
	}
	defer got.Body.Close()
	if got.StatusCode >= http.StatusMultipleChoices {
		var e Error
		if err := json.NewDecoder(got.Body).Decode(&e); err != nil {
			return fmt.Errorf("ask the pool: it answered %s", got.Status)
		}
		return &e
	}
	if err := json.NewDecoder(got.Body).Decode(answer); err != nil {
		return fmt.Errorf("ask the pool: read the answer: %w", err)
	}
	return nil
}

// Stats are the pool's numbers.
func (c *Client) Stats(ctx context.Context) (s pool.Stats, err error) {
	return s, c.do(ctx, http.MethodGet, "/v1/stats", nil, &s)
}

// List is all that is lent.
func (c *Client) List(ctx context.Context) (all []Lease, err error) {
	return all, c.do(ctx, http.MethodGet, "/v1/leases", nil, &all)
}

// Acquire asks for a lease.
func (c *Client) Acquire(ctx context.Context, r Request) (l Lease, err error) {
	return l, c.do(ctx, http.MethodPost, "/v1/leases", r, &l)
}

// Exec runs a command in a lease.
func (c *Client) Exec(ctx context.Context, id string, e Exec) (r Result, err error) {
	return r, c.do(ctx, http.MethodPost, "/v1/leases/"+url.PathEscape(id)+"/exec", e, &r)
}

// End gives a lease back, or destroys it.
func (c *Client) End(ctx context.Context, id string, destroy bool) (s pool.Stats, err error) {
	path := "/v1/leases/" + url.PathEscape(id)
	if destroy {
		path += "?destroy=1"
	}
	return s, c.do(ctx, http.MethodDelete, path, nil, &s)
}

// DestroyAll removes all sandboxes.
func (c *Client) DestroyAll(ctx context.Context) (s pool.Stats, err error) {
	return s, c.do(ctx, http.MethodDelete, "/v1/leases", nil, &s)
}
