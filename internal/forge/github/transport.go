package github

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"
)

// maxAnswer bounds an answer; the longest is a page of 100 comments of 65536 characters.
const maxAnswer = 32 << 20

// maxRedirects within one host; GitHub uses one, for renamed repositories.
const maxRedirects = 5

type authKey struct{}

func withAuth(ctx context.Context, token string) context.Context {
	return context.WithValue(ctx, authKey{}, token)
}

// transport sends the token only to the API and limits answers.
type transport struct{ api *url.URL }

// guarded is an HTTP client that never leaves the API's scheme, host and port.
func guarded(api *url.URL) *http.Client {
	return &http.Client{Transport: &transport{api: api}, CheckRedirect: func(req *http.Request, via []*http.Request) error {
		if !same(req.URL, api) || len(via) > maxRedirects {
			return &movedError{to: req.URL.Scheme + "://" + req.URL.Host}
		}
		if req.Method != via[0].Method {
			// 301 and 302 turn a POST into a GET: the creation would be lost silently.
			return http.ErrUseLastResponse
		}
		return nil
	}}
}

func same(a, b *url.URL) bool { return a.Scheme == b.Scheme && a.Host == b.Host }

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if !same(req.URL, t.api) {
		return nil, &movedError{to: req.URL.Scheme + "://" + req.URL.Host}
	}
	if token, _ := req.Context().Value(authKey{}).(string); token != "" {
		req = req.Clone(req.Context())
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	resp.Body = &limited{ReadCloser: resp.Body, left: maxAnswer}
	return resp, nil
}

// limited returns an error instead of a cut answer.
type limited struct {
	io.ReadCloser
	left int64
}

func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
	}
	n, err := l.ReadCloser.Read(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	return n, err
}

// jitter spreads pauses over 50 to 150 %, so that boxes that failed together retry apart.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d) // no secret, only spread
}
