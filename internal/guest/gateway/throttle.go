package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// statusOverloaded is Anthropic's for servers that have too much to do.
const statusOverloaded = 529

// throttle is the limit of a provider's at which calls were refused, until one is answered.
type throttle struct {
	mu    sync.Mutex
	limit *workorder.ModelLimit
}

// answered says that a model answered a call.
func (t *throttle) answered() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.limit = nil
}

// refused says how a call was refused. Of several refusals the last one says until when.
func (t *throttle) refused(status int, h http.Header, body []byte, now time.Time) {
	until, ok := limitedUntil(status, h, body, now)
	if !ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	since := now
	if t.limit != nil {
		since = t.limit.Since
	}
	t.limit = &workorder.ModelLimit{Since: since, At: now, Until: until, Text: fmt.Sprintf("HTTP status %d", status)}
}

// Limit is the limit of a provider's that calls are refused at; nil when there is none, no refusal said until when, or calls
// have been answered since or may be soon.
func (m *Models) Limit() *workorder.ModelLimit {
	if m.ledger.waitedFor() {
		return nil
	}
	m.throttle.mu.Lock()
	defer m.throttle.mu.Unlock()
	if m.throttle.limit == nil {
		return nil
	}
	return new(*m.throttle.limit)
}

// waitedFor reports whether a client waits for an answer.
func (l *ledger) waitedFor() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for e := range l.running {
		if !e.left {
			return true
		}
	}
	return false
}

// limitedUntil reads how long an answer asks to wait. What says so is tried from what is about the whole account to what is
// about the next moment; ok is false when nothing does.
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

// unified are Anthropic's limits of a plan: the one that refuses, else the one that is named first.
func unified(h http.Header, now time.Time) (time.Time, bool) {
	const prefix = "Anthropic-Ratelimit-Unified-"
	switch h.Get(prefix + "Status") {
	case "", "rejected":
	default:
		return time.Time{}, false // it is another limit that refuses
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

// plan is what ChatGPT's servers say in the body of a plan's limit.
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

// exhausted are the limits of a minute or a day, each with what remains of it: the last to be renewed of those of which nothing does.
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

// moment reads a time as providers write it: RFC 3339, seconds or milliseconds since 1970, seconds from now, or a
// duration such as 6m0s.
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

// later is so many seconds from now; no limit is longer than a year.
func later(seconds float64, now time.Time) (time.Time, bool) {
	const year = 366 * 24 * 3600
	if !(seconds > 0) || seconds > year {
		return time.Time{}, false
	}
	return now.Add(time.Duration(seconds * float64(time.Second))), true
}
