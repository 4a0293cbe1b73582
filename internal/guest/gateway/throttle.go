package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// statusOverloaded is Anthropic's status for overloaded servers.
const statusOverloaded = 529

// maxModels bounds the models with limits of their own, because the client chooses the names.
const maxModels = 64

// modelKey is a model of a route as a call names it, with the size of the call's body.
type modelKey struct {
	api   workorder.ModelAPI
	model string
	bytes int
}

func (c *call) modelKey() modelKey { return modelKey{c.route.api, c.ask.model, len(c.ask.body)} }

// throttle records, for each model, the provider's limit at which its calls are refused, until one is answered.
type throttle struct {
	mu     sync.Mutex
	models map[modelKey]*limited // the key's bytes are zero
	last   time.Time             // the last answer of any model
}

type limited struct {
	told  int64                 // size of its requests, in bytes
	limit *workorder.ModelLimit // nil if no limit is known
}

// of returns the state of a requested model. t.mu is held.
func (t *throttle) of(a modelKey) *limited {
	if t.models == nil {
		t.models = map[modelKey]*limited{}
	}
	key := modelKey{api: a.api, model: a.model}
	if t.models[key] == nil && len(t.models) >= maxModels {
		key = modelKey{} // shared by all further models
	}
	l := t.models[key]
	if l == nil {
		l = &limited{}
		t.models[key] = l
	}
	l.told += int64(a.bytes)
	return l
}

func (t *throttle) answered(a modelKey, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.of(a).limit, t.last = nil, now
}

// refused records the refusal of a call. The last refusal determines the limit's end.
func (t *throttle) refused(a modelKey, status int, h http.Header, body []byte, now time.Time) {
	until, ok := limitedUntil(status, h, body, now)
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.of(a)
	if !ok {
		return
	}
	since := now
	if l.limit != nil {
		since = l.limit.Since
	}
	l.limit = &workorder.ModelLimit{Since: since, At: now, Until: until, Text: fmt.Sprintf("HTTP status %d", status)}
}

// stands returns the limit at which calls are refused: that of the model with the most input, which is assumed to be
// the agent's, otherwise another's. Any model's answer after the last refusal means that the agent continues.
func (t *throttle) stands() *workorder.ModelLimit {
	t.mu.Lock()
	defer t.mu.Unlock()
	var found *limited
	var most int64
	for _, l := range t.models {
		most = max(most, l.told)
		if l.limit != nil && l.limit.At.After(t.last) && (found == nil || l.told > found.told) {
			found = l
		}
	}
	if found == nil {
		return nil
	}
	limit := *found.limit
	limit.Side = found.told < most
	return &limit
}

// Limit returns the provider's limit at which calls are refused; nil if there is none, its end is unknown, or calls go on.
func (m *Models) Limit() *workorder.ModelLimit {
	if m.budget.waitedFor() {
		return nil
	}
	return m.throttle.stands()
}

func (b *budget) waitedFor() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.running {
		if !c.left {
			return true
		}
	}
	return false
}

// limitedUntil reads how long an answer asks the client to wait, limits of the whole account first.
func limitedUntil(status int, h http.Header, body []byte, now time.Time) (until time.Time, ok bool) {
	switch status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, statusOverloaded:
	default:
		return until, false
	}
	for _, read := range []func() (time.Time, bool){
		func() (time.Time, bool) { return unified(h, now) },
		func() (time.Time, bool) { return plan(body, now) },
		func() (time.Time, bool) { return retryAfter(h, now) },
		func() (time.Time, bool) { return exhausted(h, now) },
	} {
		if until, ok = read(); ok {
			return until, until.After(now)
		}
	}
	return until, false
}

// unified reads Anthropic's plan limits: the one that refuses, else the one that is named first.
func unified(h http.Header, now time.Time) (time.Time, bool) {
	const prefix = "Anthropic-Ratelimit-Unified-"
	switch h.Get(prefix + "Status") {
	case "", "rejected":
	default:
		return time.Time{}, false // another limit refuses
	}
	if t, ok := moment(h.Get(prefix+"Reset"), now); ok {
		return t, true
	}
	var last time.Time
	for name := range h {
		window, ok := strings.CutSuffix(name, "-Reset")
		if !ok || !strings.HasPrefix(name, prefix) || h.Get(window+"-Status") != "rejected" {
			continue
		}
		if t, ok := moment(h.Get(name), now); ok && t.After(last) {
			last = t
		}
	}
	return last, !last.IsZero()
}

// plan reads a plan's limit from the body of ChatGPT's servers.
func plan(body []byte, now time.Time) (time.Time, bool) {
	var b struct {
		Error struct {
			At float64 `json:"resets_at"`
			In float64 `json:"resets_in_seconds"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &b) != nil {
		return time.Time{}, false
	}
	if b.Error.At > 0 {
		return moment(strconv.FormatFloat(b.Error.At, 'f', -1, 64), now)
	}
	return later(b.Error.In, now)
}

func retryAfter(h http.Header, now time.Time) (time.Time, bool) {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil {
		return later(ms/1000, now)
	}
	v := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(v, 64); err == nil {
		return later(s, now)
	}
	t, err := http.ParseTime(v)
	return t, err == nil
}

// exhausted reads the limits of a minute or a day. Of those with nothing remaining, it returns the one that renews last.
func exhausted(h http.Header, now time.Time) (last time.Time, ok bool) {
	for name := range h {
		lower := strings.ToLower(name)
		remaining := ""
		switch {
		case strings.HasPrefix(lower, "anthropic-ratelimit-") && strings.HasSuffix(lower, "-reset") && !strings.Contains(lower, "unified"):
			remaining = strings.TrimSuffix(lower, "-reset") + "-remaining"
		case strings.Contains(lower, "ratelimit-reset"): // x-ratelimit-reset, …-requests, …-tokens; ratelimit-reset
			remaining = strings.Replace(lower, "ratelimit-reset", "ratelimit-remaining", 1)
		default:
			continue
		}
		if left := h.Get(remaining); left != "" && left != "0" {
			continue
		}
		if t, read := moment(h.Get(name), now); read && t.After(last) {
			last, ok = t, true
		}
	}
	return last, ok
}

// moment reads a time: RFC 3339, seconds or milliseconds since 1970, seconds from now, or a duration such as 6m0s.
func moment(s string, now time.Time) (time.Time, bool) {
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, true
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 && strings.Trim(s, "0123456789.") != "" {
		return now.Add(d), true
	}
	n, err := strconv.ParseFloat(s, 64)
	const year2001, inMillis, never = 1e9, 1e12, 1e14
	switch {
	case err != nil || n < 0 || n > never:
		return time.Time{}, false
	case n >= inMillis:
		return time.UnixMilli(int64(n)), true
	case n >= year2001:
		return time.Unix(int64(n), 0), true
	}
	return later(n, now)
}

// later returns the time so many seconds from now; no limit is longer than a year.
func later(seconds float64, now time.Time) (time.Time, bool) {
	const year = 366 * 24 * 3600
	if !(seconds > 0) || seconds > year {
		return time.Time{}, false
	}
	return now.Add(time.Duration(seconds * float64(time.Second))), true
}

// againTime is the pause before the second try to reach a server: a flapping route or restarting resolver works again.
const againTime = 3 * time.Second

// outage records, for each API, why its server was never reached. A later outage is left to the agents' programs.
type outage struct {
	mu       sync.Mutex
	apis     map[workorder.ModelAPI]string // "" once it was reached
	failures int
}

func (o *outage) reached(api workorder.ModelAPI) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.set(api, "")
}

// failed records two failed tries, and reports whether the server was never reached.
func (o *outage) failed(api workorder.ModelAPI, why string) (never bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if before, called := o.apis[api]; called && before == "" {
		return false
	}
	o.failures++
	o.set(api, why)
	return true
}

func (o *outage) set(api workorder.ModelAPI, why string) {
	if o.apis == nil {
		o.apis = map[workorder.ModelAPI]string{}
	}
	o.apis[api] = why
}

// Unreachable returns why no model is available: for every called API, two tries to connect failed and none ever
// succeeded. failures counts these calls.
func (m *Models) Unreachable() (why string, failures int) {
	m.outage.mu.Lock()
	defer m.outage.mu.Unlock()
	for _, w := range m.outage.apis {
		if w == "" {
			return "", m.outage.failures
		}
		why = w
	}
	return why, m.outage.failures
}

// noRoute reports whether no connection was made, so that the request can be sent again.
func noRoute(err error) bool {
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return true
	}
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// roundTrip sends the request, and retries once if the server could not be reached.
func (c *call) roundTrip(ctx context.Context, req *http.Request) (*http.Response, error) {
	resp, err := c.m.client.RoundTrip(req)
	if err == nil || !noRoute(err) || c.left() {
		return resp, err
	}
	t := time.NewTimer(c.m.limits.again)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return nil, err
	case <-t.C:
	}
	if req.GetBody != nil {
		body, bodyErr := req.GetBody()
		if bodyErr != nil {
			return nil, err
		}
		req.Body = body
	}
	return c.m.client.RoundTrip(req)
}
