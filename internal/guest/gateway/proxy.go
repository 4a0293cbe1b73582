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
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// abortGrace is how long an answer is still read when the client has gone in the middle of it: an
	// agent that hangs up at the last event must not get around its count.
	abortGrace = time.Second
	// maxErrorBody bounds what passes of a server's error, in bytes.
	maxErrorBody = 1 << 20
	// chunk is how much of an answer is read at once, in bytes.
	chunk = 32 << 10
)

func (m *Models) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.busy.Add(1)
	defer m.busy.Done()
	raw, _, _ := strings.Cut(r.RequestURI, "?")
	c := &call{m: m, w: w, r: r, line: line{Time: time.Now(), Method: clean(r.Method), Path: clean(raw)}}
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

// answer passes the server's answer on.
func (c *call) answer(resp *http.Response) *refusal {
	c.line.Status = resp.StatusCode
	c.line.Upstream = clean(c.m.mask.String(firstOf(resp.Header, "Request-Id", "X-Request-Id")))
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		at := "elsewhere"
		if u, err := url.Parse(resp.Header.Get("Location")); err == nil && u.Host != "" {
			at = "to " + clean(c.m.mask.String(u.Host))
		}
		return &refusal{
			status: http.StatusBadGateway, kind: "redirect",
			text: fmt.Sprintf("the model's server %s answers with a redirect %s, which is not followed: set base_url to the right server", c.route.base.Host, at),
		}
	}
	h := c.w.Header()
	for name, values := range resp.Header {
		if slices.Contains(hop, name) || name == "Set-Cookie" || name == "Alt-Svc" {
			continue
		}
		for _, v := range values {
			h.Add(name, c.m.mask.String(v))
		}
	}
	switch {
	case resp.StatusCode >= 400:
		return c.passError(resp)
	case c.entry == nil:
		c.w.WriteHeader(resp.StatusCode)
		c.stream(resp.Body, nil)
		return nil
	}
	meter := newMeter(newShape(c.route.api), resp.Header)
	if !meter.stream && !meter.off {
		return c.passWhole(resp, meter)
	}
	c.w.WriteHeader(resp.StatusCode)
	if c.stream(resp.Body, meter) {
		c.settle(meter)
	} else {
		c.cutOff(&meter.reading)
	}
	return nil
}

func newShape(api workorder.ModelAPI) shape {
	if api == workorder.APIOpenAI {
		return openaiShape{}
	}
	return &anthropicShape{}
}

func firstOf(h http.Header, names ...string) string {
	for _, n := range names {
		if v := h.Get(n); v != "" {
			return v
		}
	}
	return ""
}

// passError passes an error on, which costs nothing. It may repeat the key.
func (c *call) passError(resp *http.Response) *refusal {
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err != nil {
		c.broken = true
	}
	if resp.Header.Get("Content-Encoding") == "" && c.r.Method != http.MethodHead {
		b = []byte(c.m.mask.String(string(b)))
		c.w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	}
	c.w.WriteHeader(resp.StatusCode)
	c.put(b)
	return nil
}

// passWhole reads an answer in one piece and counts it before the client has it, so that
// nobody has an answer that is not counted.
func (c *call) passWhole(resp *http.Response, meter *meter) *refusal {
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxJSON+1))
	if err != nil {
		c.cutOff(&meter.reading)
		if c.r.Context().Err() != nil {
			c.broken = true
			return nil
		}
		clear(c.w.Header())
		return &refusal{status: http.StatusBadGateway, kind: "broken", text: "the answer of the model's server broke off"}
	}
	if len(b) > maxJSON {
		meter.off = true
	} else {
		meter.whole(b, resp.Header.Get("Content-Encoding"))
	}
	c.settle(meter)
	c.w.WriteHeader(resp.StatusCode)
	c.put(b)
	if meter.off {
		c.stream(resp.Body, nil)
	}
	return nil
}

func (c *call) put(b []byte) bool {
	n, err := c.w.Write(b)
	c.line.BytesOut += int64(n)
	return err == nil
}

// stream copies an answer piece by piece, each flushed and, before the client has it, counted.
// It reports whether the whole arrived.
func (c *call) stream(body io.Reader, meter *meter) (whole bool) {
	flush := http.NewResponseController(c.w)
	buf := make([]byte, chunk)
	gone := flush.Flush() != nil
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if meter != nil {
				c.count(meter, buf[:n])
			}
			if !gone {
				gone = !c.put(buf[:n]) || flush.Flush() != nil
			}
			if gone && meter == nil {
				c.broken = true
				return false
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			if meter != nil {
				meter.end()
			}
			return true
		case err != nil:
			c.broken = true
			return false
		}
	}
}

// count feeds the meter and takes its news into the ledger.
func (c *call) count(meter *meter, b []byte) {
	before := meter.tokens
	meter.write(b)
	if meter.tokens != before {
		c.record(&meter.reading)
	}
}

// record takes the counts so far into the ledger and the audit.
func (c *call) record(r *reading) {
	price, ok := c.m.prices.find(r.model, c.ask.model)
	var cost *float64
	why := fmt.Sprintf("the price of the model %q is not known", clean(firstText(r.model, c.ask.model)))
	if ok {
		if usd, all := price.cost(r.tokens); all {
			cost = &usd
		} else {
			why = fmt.Sprintf("a call of %q used something whose price is not known (faster service, or a tool of the provider)", clean(c.ask.model))
		}
	}
	c.entry.update(r.tokens, cost, why)
	c.line.Input, c.line.Output, c.line.Read, c.line.Write, c.line.CostUSD = r.input, r.output, r.cacheRead, r.cacheWrite, cost
	if r.model != "" {
		c.line.Model = clean(r.model)
	}
}

func firstText(list ...string) string {
	for _, s := range list {
		if s != "" {
			return s
		}
	}
	return ""
}

// settle takes a complete answer into the ledger.
func (c *call) settle(meter *meter) {
	switch {
	case meter.final && !meter.bad:
		c.record(&meter.reading)
	case meter.prompt && !meter.bad: // it ended with an error in its middle
		c.cutOff(&meter.reading)
	default:
		c.entry.update(meter.tokens, nil, fmt.Sprintf("an answer of the model %q did not say what it used", clean(c.ask.model)))
		c.line.CostUSD = nil
		c.m.log.Warn("a model's answer cannot be metered", "api", c.route.api, "path", c.ask.path, "model", c.line.Model)
	}
}

// cutOff takes an answer that broke off into the ledger. The provider bills what was read and
// written by then; what it did not come to say is estimated.
func (c *call) cutOff(r *reading) {
	if c.entry == nil {
		return
	}
	if r.final && !r.bad {
		c.record(r)
		return
	}
	c.line.Estimate = true
	if !r.prompt && c.ask.linked || r.bad {
		c.entry.update(r.tokens, nil, "an answer broke off before it said what it used")
		return
	}
	if !r.prompt {
		r.input = c.promptTokens()
	}
	r.output = max(r.output, min(r.said/bytesPerToken, maxTokens))
	c.record(r)
}
