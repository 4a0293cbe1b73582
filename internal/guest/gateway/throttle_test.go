package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestLimitedUntil reads what providers say of their limits.
func TestLimitedUntil(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	in := func(d time.Duration) string { return fmt.Sprint(now.Add(d).Unix()) }
	for name, c := range map[string]struct {
		status int
		header string // name: value, by line
		body   string
		want   time.Duration // 0: nothing is said
	}{
		"a plan's":                      {429, "anthropic-ratelimit-unified-status: rejected\nanthropic-ratelimit-unified-reset: " + in(5*time.Hour) + "\nretry-after: 30", "", 5 * time.Hour},
		"a plan's, by its window":       {429, "anthropic-ratelimit-unified-5h-status: allowed\nanthropic-ratelimit-unified-5h-reset: " + in(time.Hour) + "\nanthropic-ratelimit-unified-7d-status: rejected\nanthropic-ratelimit-unified-7d-reset: " + in(70*time.Hour), "", 70 * time.Hour},
		"a plan's reset alone":          {429, "anthropic-ratelimit-unified-reset: " + in(time.Hour), "", time.Hour},
		"not the plan's":                {429, "anthropic-ratelimit-unified-status: allowed\nanthropic-ratelimit-unified-reset: " + in(5*time.Hour) + "\nretry-after: 20", "", 20 * time.Second},
		"seconds":                       {429, "retry-after: 600", "", 10 * time.Minute},
		"milliseconds":                  {529, "retry-after-ms: 1500", "", 1500 * time.Millisecond},
		"a date":                        {503, "retry-after: Sun, 22 Nov 2026 12:30:00 GMT", "", 30 * time.Minute},
		"a key's, of Anthropic":         {429, "anthropic-ratelimit-requests-remaining: 5\nanthropic-ratelimit-requests-reset: 2026-11-22T20:00:00Z\nanthropic-ratelimit-tokens-remaining: 0\nanthropic-ratelimit-tokens-reset: 2026-11-22T12:01:00Z", "", time.Minute},
		"a key's, of OpenAI":            {429, "x-ratelimit-remaining-requests: 0\nx-ratelimit-reset-requests: 6m0s\nx-ratelimit-remaining-tokens: 10\nx-ratelimit-reset-tokens: 8h0m0s", "", 6 * time.Minute},
		"OpenRouter's":                  {429, "x-ratelimit-remaining: 0\nx-ratelimit-reset: " + fmt.Sprint(now.Add(time.Hour).UnixMilli()), "", time.Hour},
		"the draft's":                   {429, "ratelimit-remaining: 0\nratelimit-reset: 90", "", 90 * time.Second},
		"ChatGPT's":                     {429, "", `{"error":{"type":"usage_limit_reached","resets_in_seconds":7200}}`, 2 * time.Hour},
		"ChatGPT's, by the clock":       {429, "retry-after: 1", `{"error":{"type":"usage_limit_reached","resets_at":` + in(3*time.Hour) + `}}`, 3 * time.Hour},
		"nothing":                       {429, "", `{"error":{"type":"rate_limit_error"}}`, 0},
		"what is over":                  {429, "retry-after: Sun, 22 Nov 2026 11:30:00 GMT", "", 0},
		"zero":                          {429, "retry-after: 0", "", 0},
		"nonsense":                      {429, "retry-after: -5\nx-ratelimit-reset: NaN\nanthropic-ratelimit-unified-reset: soon\nratelimit-reset: 1e300", `{"error":{"resets_in_seconds":-1}}`, 0},
		"no limit":                      {500, "retry-after: 600", "", 0},
		"a limit that is far from here": {429, "retry-after: 999999999", "", 0},
	} {
		h := http.Header{}
		for line := range strings.SplitSeq(c.header, "\n") {
			if name, value, ok := strings.Cut(line, ": "); ok {
				h.Set(name, value)
			}
		}
		until, ok := limitedUntil(c.status, h, []byte(c.body), now)
		if ok != (c.want > 0) || ok && !until.Equal(now.Add(c.want)) {
			t.Errorf("%s: %v %v, want %v", name, until.Sub(now), ok, c.want)
		}
	}
}

// TestLimitStands from a refusal on until a call is answered, and not while one may be.
func TestLimitStands(t *testing.T) {
	t.Parallel()
	var serve http.HandlerFunc
	b := newBench(t, func(w http.ResponseWriter, r *http.Request) { serve(w, r) }, nil)
	refuse := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
	}
	ask := func() int { status, _, _ := b.post("/anthropic/v1/messages", ask1); return status }
	serve = dollar
	if ask(); b.Limit() != nil {
		t.Error("a limit at the beginning")
	}
	serve = refuse
	before := time.Now()
	if status := ask(); status != http.StatusTooManyRequests {
		t.Fatal(status)
	}
	first := b.Limit()
	if first == nil || first.Until.Before(before.Add(time.Hour-time.Second)) || first.Until.After(time.Now().Add(time.Hour)) {
		t.Fatalf("%+v", first)
	}
	ask()
	if again := b.Limit(); again == nil || again.Since != first.Since || !again.At.After(first.At) {
		t.Errorf("%+v after %+v", again, first)
	}
	if status, _, _ := b.post("/anthropic/v1/messages/count_tokens", ask1); status != http.StatusTooManyRequests || b.Limit() == nil {
		t.Error("what asks no model says nothing")
	}
	arrived, release := make(chan struct{}), make(chan struct{})
	serve = func(w http.ResponseWriter, r *http.Request) { close(arrived); <-release; dollar(w, r) }
	answer, _ := b.begin("/anthropic/v1/messages", ask1)
	<-arrived
	if b.Limit() != nil {
		t.Error("while a call is under way")
	}
	close(release)
	resp := <-answer
	resp.Body.Close()
	waitFor(t, "the end of the call", func() bool { return len(b.lines()) >= 5 })
	if l := b.Limit(); l != nil {
		t.Errorf("after an answer: %+v", l)
	}
}

// TestLimitOfAModel: the limit of one model is not another's, and an agent that is answered by any lives.
func TestLimitOfAModel(t *testing.T) {
	t.Parallel()
	const api = workorder.APIAnthropic
	own, small, fallback := modelKey{api, "own", 50_000}, modelKey{api, "small", 500}, modelKey{api, "fallback", 50_000}
	other := modelKey{workorder.APIOpenAI, "own", 500}
	begin := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	type event struct {
		of modelKey
		ok bool
	}
	for name, c := range map[string]struct {
		events      []event
		stands      bool
		side        bool
		since, last int // events
	}{
		"nothing":                                {},
		"an answer":                              {events: []event{{own, true}}},
		"its own":                                {events: []event{{small, true}, {own, false}, {own, false}}, stands: true, since: 1, last: 2},
		"a side call":                            {events: []event{{own, true}, {small, false}, {small, false}}, stands: true, side: true, since: 1, last: 2},
		"the same model of another server":       {events: []event{{own, true}, {other, false}}, stands: true, side: true, since: 1, last: 1},
		"a side call, then an answer":            {events: []event{{own, true}, {small, false}, {own, true}}},
		"a side call for long, then its own":     {events: []event{{own, true}, {small, false}, {own, true}, {own, false}}, stands: true, since: 3, last: 3},
		"both, which go on":                      {events: []event{{own, true}, {own, false}, {small, false}}, stands: true, since: 1, last: 1},
		"its own, then a model in its place":     {events: []event{{own, true}, {own, false}, {fallback, true}}},
		"refused, answered, refused once more":   {events: []event{{own, false}, {own, true}, {own, false}}, stands: true, since: 2, last: 2},
		"its own, side calls answered meanwhile": {events: []event{{own, true}, {own, false}, {small, true}, {own, false}}, stands: true, since: 1, last: 3},
	} {
		var th throttle
		at := func(i int) time.Time { return begin.Add(time.Duration(i) * time.Second) }
		for i, e := range c.events {
			if e.ok {
				th.answered(e.of, at(i))
			} else {
				th.refused(e.of, http.StatusTooManyRequests, http.Header{"Retry-After": {"3600"}}, nil, at(i))
			}
		}
		switch l := th.stands(); {
		case (l != nil) != c.stands:
			t.Errorf("%s: %+v", name, l)
		case l != nil && (l.Side != c.side || !l.Since.Equal(at(c.since)) || !l.At.Equal(at(c.last))):
			t.Errorf("%s: %+v, want side %v, since %d, at %d", name, l, c.side, c.since, c.last)
		}
	}
	var th throttle
	for i := range 10 * maxModels {
		th.refused(modelKey{api, fmt.Sprint(i), 1}, http.StatusTooManyRequests, http.Header{"Retry-After": {"3600"}}, nil, begin)
	}
	if len(th.models) > maxModels+1 {
		t.Errorf("%d models are kept", len(th.models))
	}
}
