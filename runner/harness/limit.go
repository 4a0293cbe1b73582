package harness

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

type limit struct {
	text  string     // the agent's message about it
	until *time.Time // nil if not reported
}

func (l *limit) reason() string {
	return because("a usage limit of the model's provider was reached", l.text)
}

// usageLimit is the CLI's name (2.1.329) for an account limit. A 429 without it is a short throttle or an administrative limit.
const usageLimit = "usage_limit_reached"

// claudeLimit reads rate_limit_info: nil if the limit does not refuse calls.
func claudeLimit(info map[string]json.RawMessage) *limit {
	if field[string](info, "status") != "rejected" || field[bool](info, "isUsingOverage") {
		return nil
	}
	l := &limit{}
	if kind := field[string](info, "rateLimitType"); kind != "" {
		l.text = strings.ReplaceAll(kind, "_", " ")
	}
	at := cmp.Or(field[int64](info, "resetsAt"), field[int64](info, "overageResetsAt"))
	l.until = epoch(at)
	return l
}

// epoch converts a time in seconds, or in milliseconds as some versions write it.
func epoch(at int64) *time.Time {
	const year5000 = 95617584000 // in seconds; a time in milliseconds is beyond it
	switch {
	case at <= 0:
		return nil
	case at > year5000:
		at /= 1000
	}
	t := time.Unix(at, 0).UTC()
	return &t
}

// limitOf reads a limit from the message for the refused call. In a sub-agent it ends only that sub-agent.
func (p *claudeParser) limitOf(o map[string]json.RawMessage) {
	if field[string](o, "api_error") != usageLimit || field[string](o, "parent_tool_use_id") != "" {
		return
	}
	params := field[map[string]json.RawMessage](o, "api_error_params")
	if l := claudeLimit(field[map[string]json.RawMessage](params, "rate_limit_info")); l != nil {
		p.rejected = l
	}
}

// oldLimit matches the result of versions before 2.1: the message, and the reset time in seconds.
var oldLimit = lazyregexp.New(`usage limit reached(?:\|(\d{9,13}))?`)

// limitAt returns the limit at which a result ended; nil if none.
func (p *claudeParser) limitAt(o map[string]json.RawMessage) *limit {
	if !p.last.isError {
		return nil
	}
	l := limit{text: p.last.text}
	old := oldLimit.FindStringSubmatch(p.last.text)
	switch {
	case old != nil:
		at, _ := strconv.ParseInt(old[1], 10, 64) // without a number: 0, unknown
		l.until = epoch(at)
		l.text = strings.TrimSuffix(l.text, "|"+old[1])
	case field[string](o, "api_error") == usageLimit, p.last.apiStatus == 429 && p.rejected != nil:
	default:
		return nil
	}
	if p.rejected != nil && p.rejected.until != nil {
		l.until = p.rejected.until
	}
	return &l
}
