package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// abortGrace is how long an answer is still read when the client has gone in the middle of it: an
// agent that hangs up at the last event must not get around its count.
const abortGrace = time.Second

func (m *Models) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.busy.Add(1)
	defer m.busy.Done()
	raw, _, _ := strings.Cut(r.RequestURI, "?")
	c := &call{m: m, w: w, r: r, line: line{Time: time.Now(), Method: clean(r.Method), Path: clean(raw), CostUSD: new(0.0)}}
	defer m.audit.write(&c.line)
	if no := c.serve(raw); no != nil {
		c.refuse(no)
	}
	if c.broken {
		panic(http.ErrAbortHandler) // the client must not take the half for the whole
	}
}

// call is one request on its way.
type call struct {
	m     *Models
	w     http.ResponseWriter
	r     *http.Request
	route *route
	ask   ask
	entry *entry // nil: it is not metered
	line  line
	// broken: the answer is not whole, and its header was sent as if it were.
	broken bool
}

func (c *call) refuse(no *refusal) {
	c.line.Status, c.line.Refused = no.status, no.kind
	api := workorder.APIAnthropic
	if c.route != nil {
		api = c.route.api
	}
	no.write(c.w, api)
}

func (c *call) serve(raw string) *refusal {
	name, rest := strings.TrimPrefix(raw, "/"), ""
	if i := strings.IndexByte(name, '/'); i >= 0 {
		name, rest = name[:i], name[i:]
	}
	if c.route = c.m.routes[name]; c.route == nil || !strings.HasPrefix(raw, "/") {
		return c.notFound("this gateway has no such API")
	}
	c.line.API = name
	if c.r.Header.Get("Upgrade") != "" {
		return &refusal{status: http.StatusUpgradeRequired, kind: "upgrade", text: "WebSockets are not possible here: use HTTP"}
	}
	op, path, ok := resolve(c.route.api, c.r.Method, rest)
	if !ok {
		return c.notFound("an agent can use models here, and nothing else of the API")
	}
	c.ask = ask{api: c.route.api, op: op, path: path}
	header := forwarded(c.r.Header)
	if !op.open {
		if err := c.route.keys.put(c.r.Header, header); err != nil {
			return &refusal{status: http.StatusUnauthorized, kind: "no_key", text: err.Error()}
		}
		if wait := c.m.rate.take(time.Now()); wait > 0 {
			return &refusal{
				status: http.StatusTooManyRequests, kind: "rate_limit", text: "the project allows no more requests per minute (gateway.requests_per_minute)",
				after: int(math.Ceil(wait.Seconds())),
			}
		}
	}
	body, release, no := c.readBody()
	defer release()
	if no != nil {
		return no
	}
	c.line.BytesIn = int64(len(body))
	c.ask.body = body
	if !op.metered {
		return c.forward(header)
	}
	if err := c.ask.prepare(body); err != nil {
		return &refusal{status: http.StatusBadRequest, kind: "bad_request", text: err.Error()}
	}
	c.line.Model, c.line.Stream = clean(c.ask.model), c.ask.stream
	price, priced := c.m.prices.find(c.ask.model)
	estimate, _ := price.cost(tokens{input: c.promptTokens(), output: usualOutput})
	if c.entry, no = c.m.ledger.enter(c.r.Context(), c.ask.model, estimate, priced); no != nil {
		return no
	}
	defer c.entry.leave()
	return c.forward(header)
}

func (c *call) notFound(why string) *refusal {
	return &refusal{status: http.StatusNotFound, kind: "no_route", text: fmt.Sprintf("%s %s: %s", clean(c.r.Method), c.line.Path, why)}
}

// promptTokens is what the prompt has at most, by its size.
func (c *call) promptTokens() int64 {
	return min(int64(len(c.ask.body)/bytesPerToken), maxTokens)
}

// readBody takes the whole body, because the meter has to look into it.
func (c *call) readBody() (b []byte, release func(), no *refusal) {
	tooLarge := func() ([]byte, func(), *refusal) {
		return nil, release, &refusal{status: http.StatusRequestEntityTooLarge, kind: "too_large", text: fmt.Sprintf("a request may have %d bytes", maxRequest)}
	}
	size := c.r.ContentLength
	if size < 0 {
		size = maxRequest
	}
	release = func() {}
	if size > maxRequest {
		return tooLarge()
	}
	if e := c.r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return nil, release, &refusal{
			status: http.StatusUnsupportedMediaType, kind: "encoding", text: "a compressed request cannot be metered: send it as it is",
		}
	}
	c.m.held.Add(size)
	release = func() { c.m.held.Add(-size) }
	if c.m.held.Load() > maxHeld {
		return nil, release, &refusal{status: http.StatusTooManyRequests, kind: "busy", text: "too many large requests at a time", after: 1}
	}
	conn := http.NewResponseController(c.w)
	_ = conn.SetReadDeadline(time.Now().Add(bodyTime)) // a writer that cannot do it has no slow client either
	b, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, maxRequest))
	_ = conn.SetReadDeadline(time.Time{})
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return tooLarge()
	}
	if err != nil {
		return nil, release, &refusal{status: http.StatusBadRequest, kind: "bad_request", text: "the request's body did not arrive"}
	}
	return b, release, nil
}

// forward sends the request on and the answer back.
func (c *call) forward(header http.Header) *refusal {
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.r.Context()))
	defer cancel()
	var began, sent atomic.Bool
	defer context.AfterFunc(c.m.over, cancel)()
	defer context.AfterFunc(c.r.Context(), func() {
		if began.Load() {
			time.AfterFunc(abortGrace, cancel)
			return
		}
		cancel()
	})()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }})
	base := c.route.base
	target := url.URL{Scheme: base.Scheme, Host: base.Host, Path: base.Path + c.ask.path, RawQuery: query(c.r.URL.RawQuery)}
	req, err := http.NewRequestWithContext(ctx, c.r.Method, target.String(), bytes.NewReader(c.ask.body))
	if err != nil {
		return &refusal{status: http.StatusBadGateway, kind: "unreachable", text: "the request cannot be written for the server"}
	}
	req.Header = header
	if len(c.ask.body) == 0 {
		req.Body, req.ContentLength = http.NoBody, 0
	}
	resp, err := c.m.client.RoundTrip(req)
	if err != nil {
		if sent.Load() {
			c.cutOff(&reading{})
		}
		if c.r.Context().Err() != nil {
			c.line.Refused = "aborted"
			c.broken = true
			return nil
		}
		text := c.m.mask.String(err.Error())
		c.m.log.Warn("forward to a model", "api", c.route.api, "error", text)
		return &refusal{status: http.StatusBadGateway, kind: "unreachable", text: fmt.Sprintf("the model's server %s cannot be reached: %s", base.Host, text)}
	}
	began.Store(true)
	defer func() { _ = resp.Body.Close() }()
	return c.answer(resp)
}
