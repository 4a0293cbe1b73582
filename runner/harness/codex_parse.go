package harness

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// maxOpenItems bounds how many started, unfinished items are remembered.
const maxOpenItems = 1024

// codexParser reads the lines of "codex exec --json", version 0.169.
type codexParser struct {
	session *conversation
	now     func() time.Time // in the CLI's time zone
	version string
	model   string

	turns   int
	denied  int
	over    bool   // the last turn was completed
	failed  string // why the last turn failed
	lastErr string
	final   string
	begun   map[string]bool // items whose tool call has been reported
	// before and total are the session's usage before this process, and including it.
	before, total workorder.Usage

	halt    string
	limited *limit
}

func (p *codexParser) Line(line []byte) ([]workorder.Event, bool) {
	o, ok := object(line)
	if !ok {
		return nil, false
	}
	switch typ := field[string](o, "type"); typ {
	case "thread.started":
		p.session.named(field[string](o, "thread_id"))
		return nil, true
	case "turn.started":
		p.turns++
		p.over, p.failed = false, ""
		return nil, true
	case "turn.completed":
		p.over = true
		return p.account(o), true
	case "turn.failed":
		e := field[map[string]json.RawMessage](o, "error")
		p.failed = codexMessage(field[string](e, "message"))
		p.failed = cmp.Or(p.failed, "the turn failed without a message")
		return p.problem(p.failed), true
	case "error":
		return p.problem(codexMessage(field[string](o, "message"))), true
	case "item.started", "item.updated", "item.completed":
		return p.item(typ, field[map[string]json.RawMessage](o, "item"))
	}
	return nil, false
}

func (p *codexParser) account(o map[string]json.RawMessage) []workorder.Event {
	type tokens struct {
		Input      int64 `json:"input_tokens"` // includes cached ones of both kinds
		CacheRead  int64 `json:"cached_input_tokens"`
		CacheWrite int64 `json:"cache_write_input_tokens"`
		Output     int64 `json:"output_tokens"` // includes reasoning
	}
	t := field[tokens](o, "usage")
	u := workorder.Usage{InputTokens: t.Input, OutputTokens: t.Output, CacheReadTokens: t.CacheRead, CacheWriteTokens: t.CacheWrite}
	if sane(u) {
		u.InputTokens = max(0, u.InputTokens-u.CacheReadTokens-u.CacheWriteTokens)
		p.total = u
		p.session.setUsed(u)
	}
	u = p.usage()
	return []workorder.Event{{Type: workorder.EventAgentUsage, Usage: &u}}
}

// usage is this process's share: the CLI's totals are those of the session.
func (p *codexParser) usage() workorder.Usage {
	return workorder.Usage{
		InputTokens:      max(0, p.total.InputTokens-p.before.InputTokens),
		OutputTokens:     max(0, p.total.OutputTokens-p.before.OutputTokens),
		CacheReadTokens:  max(0, p.total.CacheReadTokens-p.before.CacheReadTokens),
		CacheWriteTokens: max(0, p.total.CacheWriteTokens-p.before.CacheWriteTokens),
	}
}

// problem reports an error, once, and decides whether continuing is pointless.
func (p *codexParser) problem(text string) []workorder.Event {
	if p.halt != "" || text == p.lastErr {
		return nil
	}
	p.lastErr = text
	switch l := codexLimit(text, p.now()); {
	case l != nil:
		p.limited = l
		p.halt = l.reason()
		text = p.halt
	case strings.Contains(text, "unexpected status 401"):
		p.halt = refusedKey(401) // five retries of a wrong key cannot succeed
		text = p.halt
	}
	return []workorder.Event{{Type: workorder.EventAgentError, Text: text}}
}

func codexMessage(s string) string {
	o, ok := object([]byte(s))
	if !ok {
		return s
	}
	if m := field[string](field[map[string]json.RawMessage](o, "error"), "message"); m != "" {
		return m
	}
	return s
}

// codexUnknownModel matches the CLI's report that the server does not offer the model.
var codexUnknownModel = lazyregexp.New(`unexpected status 404|[Mm]odel .{1,100}(does not exist|is not supported|not found)`)

// codexTime matches the CLI's format of a limit's reset time; a time of today has no date.
var codexTime = lazyregexp.New(`try again at (?:([A-Z][a-z]{2} \d{1,2})(?:st|nd|rd|th), (\d{4}) )?(\d{1,2}:\d{2} [AP]M)`)

// codexLimit parses the message of an account limit; nil for any other error.
func codexLimit(text string, now time.Time) *limit {
	if !strings.Contains(text, "hit your usage limit") {
		return nil
	}
	l := &limit{text: text}
	if m := codexTime.FindStringSubmatch(text); m != nil {
		day := now.Format("Jan 2 2006")
		if m[1] != "" {
			day = m[1] + " " + m[2]
		}
		if at, err := time.ParseInLocation("Jan 2 2006 3:04 PM", day+" "+m[3], now.Location()); err == nil {
			at = at.Add(time.Minute).UTC() // it omits the seconds
			l.until = &at
		}
	}
	return l
}

func (p *codexParser) item(typ string, o map[string]json.RawMessage) ([]workorder.Event, bool) {
	kind, done := field[string](o, "type"), typ == "item.completed"
	switch kind {
	case "reasoning", "todo_list":
		return nil, true // irrelevant to a person who follows the run
	case "agent_message":
		if !done {
			return nil, true
		}
		p.final = field[string](o, "text")
		return []workorder.Event{{Type: workorder.EventAgentText, Text: p.final}}, true
	case "error": // a warning, such as for a model that it does not know
		text := field[string](o, "message")
		if !done || strings.Contains(text, "--dangerously-bypass-hook-trust") { // which is for the notice hook
			return nil, true
		}
		return []workorder.Event{{Type: workorder.EventAgentError, Text: text}}, true
	case "command_execution", "file_change", "mcp_tool_call", "web_search", "collab_tool_call":
		return p.tool(kind, done, o), true
	}
	return nil, false
}

func (p *codexParser) tool(kind string, done bool, o map[string]json.RawMessage) []workorder.Event {
	id := field[string](o, "id")
	var events []workorder.Event
	if !p.begun[id] {
		name, text := codexCall(kind, o)
		events = append(events, workorder.Event{Type: workorder.EventAgentTool, ID: id, Name: name, Text: text})
	}
	if !done {
		if p.begun == nil || len(p.begun) >= maxOpenItems {
			p.begun = map[string]bool{}
		}
		p.begun[id] = true
		return events
	}
	delete(p.begun, id)
	result := workorder.Event{Type: workorder.EventAgentToolResult, ID: id, Status: "ok", Text: codexResult(o)}
	switch field[string](o, "status") {
	case "failed":
		result.Status = "error"
	case "declined":
		result.Status = "error"
		p.denied++
	}
	return append(events, result)
}

func codexCall(kind string, o map[string]json.RawMessage) (name, text string) {
	switch kind {
	case "command_execution":
		return kind, strings.TrimPrefix(field[string](o, "command"), "/bin/bash -lc ")
	case "file_change":
		type change struct{ Path, Kind string }
		var all []string
		for _, c := range field[[]change](o, "changes") {
			all = append(all, c.Kind+" "+c.Path)
		}
		return kind, strings.Join(all, ", ")
	case "mcp_tool_call":
		return field[string](o, "server") + "." + field[string](o, "tool"), toolText(o["arguments"])
	case "collab_tool_call":
		return field[string](o, "tool"), field[string](o, "prompt")
	}
	return kind, field[string](o, "query")
}

func codexResult(o map[string]json.RawMessage) string {
	if out := field[string](o, "aggregated_output"); out != "" {
		return out
	}
	if m := field[string](field[map[string]json.RawMessage](o, "error"), "message"); m != "" {
		return m
	}
	return contentText(field[map[string]json.RawMessage](o, "result")["content"])
}

func (p *codexParser) StopReason() string { return p.halt }

func (p *codexParser) End(e Exit) Outcome {
	out := Outcome{
		Verdict: Failed, Final: p.final, SessionID: p.session.name(), Version: p.version, Model: p.model,
		Turns: p.turns, Denials: p.denied, Usage: p.usage(), InSession: p.total,
	}
	switch {
	case p.limited != nil:
		out.Verdict, out.Reason, out.ResumeAt = Limited, p.limited.reason(), p.limited.until
	case p.halt != "":
		out.Reason, out.Code = p.halt, workorder.ReasonModelKey
	case p.failed != "":
		out.Reason = "codex: " + p.failed
		if codexUnknownModel.MatchString(p.failed) {
			out.Code = unknownModel(out.Usage)
		}
	case !p.over:
		out.Reason = because("codex "+howItEnded(e)+" before the end of its turn", p.lastErr, lastLine(e.Stderr))
	case e.Code != 0 || e.Signal != "":
		out.Reason = because("codex finished its turn and then "+howItEnded(e), lastLine(e.Stderr))
	default:
		out.Verdict = Succeeded
	}
	return out
}
