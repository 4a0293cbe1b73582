package harness

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// claudeParser reads stream-json. Fields differ between versions of the CLI, so each is optional.
type claudeParser struct {
	session string
	model   string
	version string

	results int // several in one process if a background task wakes the session up
	last    claudeResult
	turns   int
	denied  int // permission_denied events

	// Totals of the run: the sum of the results' increments, where the CLI reports them, otherwise the last result's totals.
	added     workorder.Usage
	inAll     workorder.Usage
	cannotAdd bool
	// live sums the usage of finished model calls until a result arrives; needs --include-partial-messages.
	live      workorder.Usage
	estimated map[string]bool // models with a price estimated by the CLI

	halt string
	// rejected is the limit of the API's last refusal; limited is the limit that ended the conversation.
	rejected, limited *limit
}

type claudeResult struct {
	isError   bool
	subtype   string
	terminal  string
	apiStatus int
	text      string
	errors    []string
	denials   int
}

func (p *claudeParser) Line(line []byte) ([]workorder.Event, bool) {
	o, ok := object(line)
	if !ok {
		return nil, false
	}
	return p.object(field[string](o, "type"), o)
}

func (p *claudeParser) object(typ string, o map[string]json.RawMessage) ([]workorder.Event, bool) {
	if s := field[string](o, "session_id"); s != "" {
		p.session = s
	}
	switch typ {
	case "system":
		return p.system(o), true
	case "assistant":
		p.limitOf(o)
		return assistant(o), true
	case "user":
		return toolResults(o), true
	case "stream_event":
		return p.streamEvent(o), true
	case "result":
		return p.result(o), true
	case "rate_limit_event":
		p.rejected = claudeLimit(field[map[string]json.RawMessage](o, "rate_limit_info"))
		return nil, true
	case "control_response", "keep_alive", "tool_progress":
		return nil, true // irrelevant to a person who follows the run
	}
	return nil, false
}

func (p *claudeParser) system(o map[string]json.RawMessage) []workorder.Event {
	switch field[string](o, "subtype") {
	case "init": // repeated for every later turn
		if m := field[string](o, "model"); m != "" {
			p.model = m
		}
		if v := field[string](o, "claude_code_version"); v != "" {
			p.version = v
		}
	case "api_retry":
		status, what := field[int](o, "error_status"), field[string](o, "error")
		text := fmt.Sprintf(
			"model call failed (%s), retry %d of %d", errorName(what, status), field[int](o, "attempt"), field[int](o, "max_retries"),
		)
		if status == 401 || status == 403 || what == "authentication_failed" {
			// Ten retries of a wrong key take minutes and cannot succeed.
			p.halt = fmt.Sprintf("the model API refused the key (%s): check the secret the project names for it", errorName(what, status))
			text = p.halt
		}
		if status == 429 && p.rejected != nil {
			// It lasts for hours; retries cannot succeed.
			p.limited = p.rejected
			p.halt = p.limited.reason()
			text = p.halt
		}
		return []workorder.Event{{Type: workorder.EventAgentError, Text: text}}
	case "permission_denied":
		p.denied++
		return []workorder.Event{{
			Type: workorder.EventAgentError, Name: field[string](o, "tool_name"), ID: field[string](o, "tool_use_id"),
			Text: "permission denied: " + field[string](o, "message"),
		}}
	}
	return nil
}

func errorName(what string, status int) string {
	switch {
	case status == 0:
		return what
	case what == "":
		return fmt.Sprintf("HTTP %d", status)
	}
	return fmt.Sprintf("HTTP %d %s", status, what)
}

type claudeBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
}

func blocks(o map[string]json.RawMessage) []claudeBlock {
	return field[[]claudeBlock](field[map[string]json.RawMessage](o, "message"), "content")
}

// assistant reports text and tool calls. The usage in these events is of the call's start, so it is never summed.
func assistant(o map[string]json.RawMessage) []workorder.Event {
	var ev []workorder.Event
	for _, b := range blocks(o) {
		switch b.Type {
		case "text":
			ev = append(ev, workorder.Event{Type: workorder.EventAgentText, Text: b.Text})
		case "tool_use":
			ev = append(ev, workorder.Event{Type: workorder.EventAgentTool, Name: b.Name, ID: b.ID, Text: toolText(b.Input)})
		}
	}
	return ev
}

func toolResults(o map[string]json.RawMessage) []workorder.Event {
	var ev []workorder.Event
	for _, b := range blocks(o) {
		if b.Type != "tool_result" {
			continue
		}
		status := "ok"
		if b.IsError {
			status = "error"
		}
		ev = append(ev, workorder.Event{Type: workorder.EventAgentToolResult, ID: b.ToolUseID, Status: status, Text: contentText(b.Content)})
	}
	return ev
}

func contentText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var list []claudeBlock
	if json.Unmarshal(raw, &list) != nil {
		return ""
	}
	var parts []string
	for _, b := range list {
		if b.Type == "text" {
			parts = append(parts, b.Text)
		} else {
			parts = append(parts, "["+b.Type+"]")
		}
	}
	return strings.Join(parts, "\n")
}

type claudeTokens struct {
	Input      int64 `json:"input_tokens"`
	Output     int64 `json:"output_tokens"`
	CacheRead  int64 `json:"cache_read_input_tokens"`
	CacheWrite int64 `json:"cache_creation_input_tokens"`
}

func (t claudeTokens) usage() workorder.Usage {
	return workorder.Usage{InputTokens: t.Input, OutputTokens: t.Output, CacheReadTokens: t.CacheRead, CacheWriteTokens: t.CacheWrite}
}

func (p *claudeParser) streamEvent(o map[string]json.RawMessage) []workorder.Event {
	e := field[map[string]json.RawMessage](o, "event")
	if field[string](e, "type") != "message_delta" {
		return nil
	}
	if u := field[claudeTokens](e, "usage").usage(); sane(u) {
		p.live = Add(p.live, u)
	}
	u := p.usage()
	return []workorder.Event{{Type: workorder.EventAgentUsage, Usage: &u}}
}

type claudeModel struct {
	Input      int64   `json:"inputTokens"`
	Output     int64   `json:"outputTokens"`
	CacheRead  int64   `json:"cacheReadInputTokens"`
	CacheWrite int64   `json:"cacheCreationInputTokens"`
	Cost       float64 `json:"costUSD"`
	CostBasis  string  `json:"costBasis"`
}

func (p *claudeParser) result(o map[string]json.RawMessage) []workorder.Event {
	p.results++
	p.turns += field[int](o, "num_turns")
	p.last = claudeResult{
		isError: field[bool](o, "is_error"), subtype: field[string](o, "subtype"),
		terminal: field[string](o, "terminal_reason"), apiStatus: field[int](o, "api_error_status"),
		text: field[string](o, "result"), errors: slices.DeleteFunc(field[[]string](o, "errors"), internalNote),
		denials: len(field[[]json.RawMessage](o, "permission_denials")),
	}
	said := p.halt != "" // the reason of the stop has been reported already
	if l := p.limitAt(o); l != nil || !p.last.isError {
		p.limited = l
	}
	why := p.last.reason()
	if p.limited != nil {
		why = p.limited.reason()
		p.halt = why // it would wait for its background tasks, and fail again
	}
	p.account(o)
	u := p.usage()
	ev := []workorder.Event{{Type: workorder.EventAgentUsage, Usage: &u}}
	if p.last.isError && !said {
		ev = append(ev, workorder.Event{Type: workorder.EventAgentError, Text: why})
	}
	return ev
}

// internalNote matches the CLI's notes for its own developers.
func internalNote(s string) bool { return strings.HasPrefix(s, "[ede_diagnostic]") }

// account reads tokens from the per-model tables: the plain usage omits sub-agents.
func (p *claudeParser) account(o map[string]json.RawMessage) {
	perModel := func(key string) (u workorder.Usage, ok bool) {
		table := field[map[string]claudeModel](o, key)
		u.CostUSD = new(float64)
		for name, m := range table {
			one := workorder.Usage{
				InputTokens: m.Input, OutputTokens: m.Output, CacheReadTokens: m.CacheRead, CacheWriteTokens: m.CacheWrite, CostUSD: &m.Cost,
			}
			if !sane(one) {
				continue
			}
			u = Add(u, one)
			if m.CostBasis == "unknown" {
				if p.estimated == nil {
					p.estimated = map[string]bool{}
				}
				p.estimated[name] = true
			}
		}
		return u, table != nil
	}
	all, ok := perModel("modelUsage")
	if !ok {
		all = field[claudeTokens](o, "usage").usage()
	}
	all.CostUSD = field[*float64](o, "total_cost_usd")
	if sane(all) {
		p.inAll = all
	}

	since, ok := perModel("model_usage_since_last_result")
	if !ok {
		p.cannotAdd = true
		return
	}
	p.added = Add(p.added, since)
}

func (p *claudeParser) usage() workorder.Usage {
	u := p.added
	switch {
	case p.results == 0:
		u = p.live
	case p.cannotAdd:
		u = p.inAll
	}
	if u.CostUSD != nil {
		u.CostSource = workorder.CostByHarness
	}
	return u
}

func (p *claudeParser) StopReason() string { return p.halt }

func (p *claudeParser) End(e Exit) Outcome {
	out := Outcome{
		Verdict: Failed, Final: p.last.text, SessionID: p.session, Version: p.version, Model: p.model,
		Turns: p.turns, Denials: max(p.last.denials, p.denied), Usage: p.usage(), InSession: p.inAll, Warnings: p.warnings(),
	}
	switch {
	case p.limited != nil:
		out.Verdict, out.Reason, out.ResumeAt = Limited, p.limited.reason(), p.limited.until
	case p.halt != "" && (p.results == 0 || p.last.isError):
		out.Reason, out.Code = p.halt, workorder.ReasonModelKey
	case p.results == 0:
		out.Reason = because("claude "+howItEnded(e)+" without a result", lastLine(e.Stderr))
	case p.last.subtype == "error_max_budget_usd" || p.last.terminal == "budget_exhausted":
		out.Verdict, out.Reason = Budget, p.last.reason()
	case p.last.isError || p.last.subtype != "success":
		out.Reason = p.last.reason()
		if p.last.apiStatus == http.StatusNotFound {
			out.Code = unknownModel(out.Usage)
		}
	case e.Code != 0 || e.Signal != "":
		out.Reason = because("claude reported success and then "+howItEnded(e), lastLine(e.Stderr))
	default:
		out.Verdict = Succeeded
	}
	return out
}

func (p *claudeParser) warnings() []string {
	var w []string
	for name := range p.estimated {
		w = append(w, fmt.Sprintf("the cost is an estimate: claude-code has no price for model %q", name))
	}
	return w
}

// reason returns the CLI's own explanation of an unsuccessful result.
func (r claudeResult) reason() string {
	s := "claude-code: " + r.subtype
	switch {
	case len(r.errors) > 0:
		s = "claude-code: " + strings.Join(r.errors, "; ")
	case r.text != "":
		s = "claude-code: " + r.text
	}
	if r.apiStatus != 0 {
		s += fmt.Sprintf(" (HTTP %d from the model API)", r.apiStatus)
	}
	if r.apiStatus == 401 || r.apiStatus == 403 || strings.Contains(r.text, "/login") {
		s += ": check the secret the project names for the model key"
	}
	return s
}
