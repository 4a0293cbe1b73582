package gateway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/connowner"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func (m *Models) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !m.begin() {
		panic(http.ErrAbortHandler)
	}
	defer m.busy.Done()
	raw, _, _ := strings.Cut(r.RequestURI, "?")
	c := &call{
		m: m, r: r, body: memoryShare{room: m.room, over: m.over.Done()},
		line: line{Time: time.Now(), Method: clean(r.Method), Path: clean(raw), CostUSD: new(0.0)},
	}
	c.client = client{w: w, conn: http.NewResponseController(w), limit: m.limits.write}
	c.client.masked = m.mask.Load().Writer(&c.client)
	defer func() {
		c.line.BytesOut = c.client.sent
		m.audit.write(&c.line)
	}()
	defer c.body.release()
	if no := c.serve(raw); no != nil {
		c.refuse(no)
	}
	if c.broken {
		panic(http.ErrAbortHandler) // the client must not take the part for the whole answer
	}
}

type call struct {
	m      *Models
	r      *http.Request
	route  *route
	ask    ask
	cost   *callCost // nil if it is not metered
	line   line
	body   memoryShare // the memory of the request's body
	client client
	unread bool
	// broken means that the answer is incomplete although its header was sent.
	broken bool
}

func (c *call) refuse(no *refusal) {
	c.line.Status, c.line.Refused = no.status, no.kind
	api := workorder.APIAnthropic
	if c.route != nil {
		api = c.route.api
	}
	c.client.patience()
	no.write(c.client.w, api)
}

func (c *call) serve(raw string) *refusal {
	name, rest := strings.TrimPrefix(raw, "/"), ""
	if i := strings.IndexByte(name, '/'); i >= 0 {
		name, rest = name[:i], name[i:]
	}
	if c.route = c.m.routes[name]; c.route == nil || !strings.HasPrefix(raw, "/") {
		return c.notFound("this gateway does not offer this API")
	}
	c.line.API = name
	if c.r.Header.Get("Upgrade") != "" {
		return &refusal{status: http.StatusUpgradeRequired, kind: "upgrade", text: "WebSockets are not supported here: use HTTP"}
	}
	op, path, ok := resolve(c.route.api, c.r.Method, rest)
	if !ok {
		return c.notFound("only model requests are allowed here")
	}
	c.ask = ask{api: c.route.api, op: op, path: path}
	header := forwarded(c.r.Header, c.secret)
	if !op.open {
		if err := c.route.keys.Load().put(c.r.Header, header); err != nil {
			return &refusal{status: http.StatusUnauthorized, kind: "no_key", text: err.Error()}
		}
	}
	if wait := c.m.rate.take(time.Now()); wait > 0 {
		return &refusal{
			status: http.StatusTooManyRequests, kind: "rate_limit",
			text: "the project allows no more requests per minute (gateway.requests_per_minute)", after: int(math.Ceil(wait.Seconds())),
		}
	}
	if no := c.readBody(); no != nil {
		return no
	}
	if !op.metered {
		if no := c.police(); no != nil {
			return no
		}
		return c.forward(header)
	}
	if no := c.prepare(); no != nil {
		return no
	}
	if no := c.police(); no != nil {
		return no
	}
	price, priced := c.m.prices.find(c.ask.model)
	most := price.most(c.promptTokens(), c.ask.most, c.ask.fast, c.ask.hour)
	entry, no := c.m.budget.enter(c.r.Context(), c.ask.model, most, priced)
	if no != nil {
		return no
	}
	c.cost = entry
	defer c.cost.leave()
	return c.forward(header)
}

func (c *call) secret(s string) bool {
	return strings.Contains(s, placeholderPrefix) || c.m.mask.Load().String(s) != s
}

func (c *call) notFound(why string) *refusal {
	return &refusal{status: http.StatusNotFound, kind: "no_route", text: fmt.Sprintf("%s %s: %s", clean(c.r.Method), c.line.Path, why)}
}

var errBusy = &refusal{status: http.StatusTooManyRequests, kind: "busy", text: "too many large requests at the same time", after: 1}

// readBody reads the whole body, because the meter has to examine it.
func (c *call) readBody() *refusal {
	tooLarge := &refusal{
		status: http.StatusRequestEntityTooLarge, kind: "too_large", text: fmt.Sprintf("a request must not exceed %d bytes", maxRequest),
	}
	limit := int64(maxRequest)
	if c.r.ContentLength > limit {
		return tooLarge
	}
	if c.r.ContentLength >= 0 {
		limit = c.r.ContentLength
	}
	if e := c.r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return &refusal{
			status: http.StatusUnsupportedMediaType, kind: "encoding", text: "a compressed request cannot be metered: send it uncompressed",
		}
	}
	_ = c.client.conn.SetReadDeadline(time.Now().Add(bodyTime)) // a writer without deadlines has no slow client either
	b, err := c.body.fill(http.MaxBytesReader(c.client.w, c.r.Body, maxRequest), limit)
	_ = c.client.conn.SetReadDeadline(time.Time{})
	c.line.BytesIn = int64(len(b))
	_, large := errors.AsType[*http.MaxBytesError](err)
	switch {
	case large || errors.Is(err, errTooLong):
		return tooLarge
	case errors.Is(err, errNoRoom):
		return errBusy
	case err != nil:
		return &refusal{status: http.StatusBadRequest, kind: "bad_request", text: "the request's body did not arrive completely"}
	}
	c.ask.body = b
	return nil
}

// prepare examines the body of a metered request and makes the changes that the meter needs.
func (c *call) prepare() *refusal {
	change, err := c.ask.prepare()
	if err != nil {
		return &refusal{status: http.StatusBadRequest, kind: "bad_request", text: err.Error()}
	}
	c.line.Model, c.line.Stream = clean(c.ask.model), c.ask.stream
	if change == nil {
		return nil
	}
	held := c.body.size
	if !c.body.grow(int64(change.size(c.ask.body))) {
		return errBusy
	}
	c.ask.body = change.apply(c.ask.body)
	c.body.shrink(held) // the first body is no longer used
	return nil
}

// left reports whether the client, or the whole box, has stopped waiting for the answer.
func (c *call) left() bool {
	return c.client.gone.Load() || c.r.Context().Err() != nil || c.m.over.Err() != nil
}

// forward sends the request to the server and the answer back. A server bills a request even if no client waits, so a
// metered call is read to its end, and keeps its part of the budget until then.
func (c *call) forward(header http.Header) *refusal {
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.r.Context()))
	defer cancel()
	var sent atomic.Bool // a connection exists: the server may get the request
	c.client.hangUp = sync.OnceFunc(func() {
		c.client.gone.Store(true)
		if c.cost != nil {
			c.cost.abandon()
		}
		t := time.AfterFunc(c.m.limits.answer, cancel)
		context.AfterFunc(ctx, func() { t.Stop() })
	})
	defer context.AfterFunc(c.m.over, cancel)()
	defer context.AfterFunc(c.r.Context(), func() {
		if c.cost == nil || !sent.Load() {
			cancel()
			return
		}
		c.client.hangUp()
	})()
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
		sent.Store(true)
		c.m.outage.reached(c.route.api)
	}})
	base := c.route.base
	target := url.URL{Scheme: base.Scheme, Host: base.Host, Path: base.Path + c.ask.path, RawQuery: query(c.r.URL.RawQuery)}
	req, err := http.NewRequestWithContext(traced, c.r.Method, target.String(), bytes.NewReader(c.ask.body))
	if err != nil {
		return &refusal{status: http.StatusBadGateway, kind: "unreachable", text: "the request cannot be encoded for the server"}
	}
	req.Header = header
	if len(c.ask.body) == 0 {
		req.Body, req.ContentLength = http.NoBody, 0
	}
	resp, err := c.roundTrip(traced, req)
	if err != nil {
		if sent.Load() {
			c.cutOff(&usageState{})
		}
		if c.left() {
			c.line.Refused = "aborted"
			c.broken = true
			return nil
		}
		text := c.m.mask.Load().String(err.Error())
		c.m.log.Warn("forward to a model", "api", c.route.api, "error", text)
		no := &refusal{
			status: http.StatusBadGateway, kind: "unreachable", text: fmt.Sprintf("the model's server %s is unreachable: %s", base.Host, text),
		}
		if noRoute(err) {
			no.final = c.m.outage.failed(c.route.api, no.text)
		}
		return no
	}
	defer func() { _ = resp.Body.Close() }()
	return c.answer(resp)
}

// refusal is an answer that the gateway writes itself.
type refusal struct {
	status int
	kind   string
	text   string
	// after is Retry-After in seconds; 0 for none.
	after int
	// final means that retrying soon is pointless.
	final bool
}

// errorTypes are the providers' names for a status.
var errorTypes = map[workorder.ModelAPI]map[int]string{
	workorder.APIAnthropic: {
		http.StatusBadRequest: "invalid_request_error", http.StatusUnauthorized: "authentication_error", http.StatusNotFound: "not_found_error",
		http.StatusRequestEntityTooLarge: "request_too_large", http.StatusTooManyRequests: "rate_limit_error",
		http.StatusUpgradeRequired: "invalid_request_error", http.StatusUnsupportedMediaType: "invalid_request_error",
	},
	workorder.APIOpenAI: {
		http.StatusBadRequest:            "invalid_request_error",
		http.StatusUnauthorized:          "invalid_request_error",
		http.StatusNotFound:              "invalid_request_error",
		http.StatusRequestEntityTooLarge: "invalid_request_error",
		http.StatusTooManyRequests:       "requests",
		http.StatusUpgradeRequired:       "invalid_request_error",
		http.StatusUnsupportedMediaType:  "invalid_request_error",
	},
}

func (r *refusal) write(w http.ResponseWriter, api workorder.ModelAPI) {
	text := "sandbox-agent: " + r.text
	kind := errorTypes[api][r.status]
	var shape any
	if api == workorder.APIOpenAI {
		kind = cmp.Or(kind, "server_error")
		shape = map[string]any{"error": map[string]any{"message": text, "type": kind, "param": nil, "code": r.kind}}
	} else {
		kind = cmp.Or(kind, "api_error")
		shape = map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": text}}
	}
	b, err := json.Marshal(shape)
	if err != nil {
		b = []byte(`{}`)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if r.status == http.StatusBadRequest || r.final {
		h.Set("X-Should-Retry", "false") // the SDKs of both providers obey it
	}
	if r.after > 0 {
		h.Set("Retry-After", strconv.Itoa(r.after))
	}
	h.Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(r.status)
	_, _ = w.Write(b) // the client may be gone
}

// line is the audit record of one request: without body and key, and with the client's texts cut short.
type line struct {
	Time     time.Time `json:"time"`
	API      string    `json:"api,omitempty"`
	Method   string    `json:"method"`
	Path     string    `json:"path"`
	Status   int       `json:"status"` // 0 if there was no answer
	Model    string    `json:"model,omitempty"`
	Stream   bool      `json:"stream,omitempty"`
	Input    int64     `json:"input_tokens"`
	Output   int64     `json:"output_tokens"`
	Read     int64     `json:"cache_read_tokens"`
	Write    int64     `json:"cache_write_tokens"`
	CostUSD  *float64  `json:"cost_usd"`            // null if not known
	Estimate bool      `json:"estimated,omitempty"` // the answer broke off: part of it is estimated
	// ReservedUSD is the possible cost beyond that.
	ReservedUSD float64 `json:"reserved_usd,omitempty"`
	Millis      int64   `json:"duration_ms"`
	BytesIn     int64   `json:"bytes_in"`
	BytesOut    int64   `json:"bytes_out"`
	Upstream    string  `json:"upstream_request_id,omitempty"`
	Refused     string  `json:"refused,omitempty"`
	// Reaches names the first few things that the provider was to fetch or run for the agent, refused ones included.
	Reaches []string `json:"reaches,omitempty"`
}

// clean makes a client's or server's text safe for a log.
func clean(s string) string {
	if s == "" {
		return "" // there was none
	}
	return connowner.Clean(s)
}

type auditor struct {
	mu  sync.Mutex
	out io.Writer // nil to drop the lines
	log *slog.Logger
}

func (a *auditor) write(l *line) {
	if a.out == nil {
		return
	}
	l.Millis = time.Since(l.Time).Milliseconds()
	l.Time = l.Time.UTC()
	b, err := json.Marshal(l)
	if err == nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		_, err = a.out.Write(append(b, '\n'))
	}
	if err != nil {
		a.log.Warn("write the audit of the model gateway", "error", err)
	}
}
