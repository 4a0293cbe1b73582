package harness

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/pattern"
)

// limit is a usage limit of the model's provider.
type limit struct {
	text  string     // what the agent says of it
	until *time.Time // nil means not said
}

func (l *limit) reason() string {
	return because("a usage limit of the model's provider was reached", l.text)
}

// usageLimit is how the CLI (2.1.329) names the refusal by a limit of the
// account: a plan's session or weekly limit, or a spend cap. A 429 without it, which is what an
// API key gets, is a short throttle or somebody's decision, and does not end by waiting.
const usageLimit = "usage_limit_reached"

// claudeLimit reads rate_limit_info: nil when the limit does not refuse calls.
func claudeLimit(info map[string]json.RawMessage) *limit {
	if field[string](info, "status") != "rejected" || field[bool](info, "isUsingOverage") {
		return nil
	}
	l := &limit{}
	if kind := field[string](info, "rateLimitType"); kind != "" {
		l.text = strings.ReplaceAll(kind, "_", " ")
	}
	at := field[int64](info, "resetsAt")
	if at == 0 {
		at = field[int64](info, "overageResetsAt")
	}
	l.until = epoch(at)
	return l
}

// epoch is a time in seconds, or in milliseconds as some versions write it.
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

// limitOf takes a limit out of the message that stands for the refused call. In a
// sub-agent it ends that one only; the conversation meets the limit itself when it goes on.
func (p *claudeParser) limitOf(o map[string]json.RawMessage) {
	if field[string](o, "api_error") != usageLimit || field[string](o, "parent_tool_use_id") != "" {
		return
	}
	params := field[map[string]json.RawMessage](o, "api_error_params")
	if l := claudeLimit(field[map[string]json.RawMessage](params, "rate_limit_info")); l != nil {
		p.rejected = l
	}
}

// oldLimit is how versions before 2.1 end their result: the words, and the
// time of the reset in seconds.
var oldLimit = pattern.New(`usage limit reached(?:\|(\d{9,13}))?`)

// limitAt is the limit that a result ended at; nil means it did not.
func (p *claudeParser) limitAt(o map[string]json.RawMessage) *limit {
	if !p.last.isError {
		return nil
	}
	l := limit{text: p.last.text}
	old := oldLimit.FindStringSubmatch(p.last.text)
	switch {
	case old != nil:
		at, _ := strconv.ParseInt(old[1], 10, 64) // without a number: 0, not known
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
