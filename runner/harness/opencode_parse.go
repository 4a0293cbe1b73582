package harness

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// opencodeLines parses "opencode run --format json", version 1.18. Some programs print the fields next to "type",
// without "part".
type opencodeLines struct {
	session   string
	steps     int
	usage     workorder.Usage // sum of the steps
	noPrice   bool            // a step used tokens at no cost
	reason    string          // reason of the end of the last step
	final     string
	lastError string
	status    int // HTTP status of the last error
}

func (p *opencodeLines) object(typ string, o map[string]json.RawMessage) ([]workorder.Event, bool) {
	part := o
	if inner := field[map[string]json.RawMessage](o, "part"); inner != nil {
		part = inner
	}
	var events []workorder.Event
	switch typ {
	case "step_start", "reasoning": // irrelevant to a person who follows the run
	case "text":
		p.final = field[string](part, "text")
		events = []workorder.Event{{Type: workorder.EventAgentText, Text: p.final}}
	case "tool_use":
		events = opencodeTool(part)
	case "step_finish":
		p.addStep(part)
		u := p.usage
		events = []workorder.Event{{Type: workorder.EventAgentUsage, Usage: &u}}
	case "error":
		p.lastError, p.status = opencodeError(o)
		events = []workorder.Event{{Type: workorder.EventAgentError, Text: p.lastError}}
	default:
		return nil, false
	}
	if s := field[string](o, "sessionID"); s != "" {
		p.session = s
	}
	return events, true
}

func opencodeTool(part map[string]json.RawMessage) []workorder.Event {
	state := field[map[string]json.RawMessage](part, "state")
	id := field[string](part, "callID")
	input := state["input"]
	if input == nil {
		input = part["input"]
	}
	ev := []workorder.Event{{Type: workorder.EventAgentTool, ID: id, Name: field[string](part, "tool"), Text: toolText(input)}}
	switch field[string](state, "status") {
	case "completed":
		// A failed command is "completed" as well.
		status := "ok"
		if field[int](field[map[string]json.RawMessage](state, "metadata"), "exit") != 0 || field[string](part, "tool") == "invalid" {
			status = "error"
		}
		ev = append(ev, workorder.Event{Type: workorder.EventAgentToolResult, ID: id, Status: status, Text: field[string](state, "output")})
	case "error":
		ev = append(ev, workorder.Event{Type: workorder.EventAgentToolResult, ID: id, Status: "error", Text: field[string](state, "error")})
	}
	return ev
}

func opencodeError(o map[string]json.RawMessage) (text string, status int) {
	e := field[map[string]json.RawMessage](o, "error")
	data := field[map[string]json.RawMessage](e, "data")
	for _, s := range []string{
		field[string](data, "message"), field[string](e, "message"), field[string](e, "name"),
		field[string](o, "error"), field[string](o, "message"), field[string](o, "text"),
	} {
		if s != "" {
			return s, field[int](data, "statusCode")
		}
	}
	return "error without a message", field[int](data, "statusCode")
}

func (p *opencodeLines) addStep(part map[string]json.RawMessage) {
	p.steps++
	p.reason = field[string](part, "reason")
	type tokens struct {
		Input, Output, Reasoning int64
		Cache                    struct{ Read, Write int64 }
	}
	t := field[tokens](part, "tokens")
	step := workorder.Usage{
		InputTokens: t.Input, OutputTokens: t.Output + t.Reasoning,
		CacheReadTokens: t.Cache.Read, CacheWriteTokens: t.Cache.Write,
		CostUSD: field[*float64](part, "cost"),
	}
	// The parts of a sum are checked, too: two huge numbers overflow to a negative sum.
	if !sane(step) || !sane(workorder.Usage{InputTokens: t.Output, OutputTokens: t.Reasoning}) {
		return
	}
	if step.CostUSD != nil && *step.CostUSD == 0 && step.InputTokens+step.OutputTokens > 0 {
		p.noPrice = true
	}
	p.usage = Add(p.usage, step)
}

type opencodeParser struct {
	session *conversation
	version string
	model   string
	lines   opencodeLines
	halt    string
}

func (p *opencodeParser) Line(line []byte) ([]workorder.Event, bool) {
	o, ok := object(line)
	if !ok {
		return nil, false
	}
	events, ok := p.lines.object(field[string](o, "type"), o)
	if !ok {
		return nil, false
	}
	p.session.named(p.lines.session)
	if p.lines.status == 401 {
		p.halt = refusedKey(p.lines.status)
	}
	for i := range events {
		if events[i].Usage != nil {
			u := p.usage()
			events[i].Usage = &u
		}
		if events[i].Type == workorder.EventAgentError && p.halt != "" {
			events[i].Text = p.halt
		}
	}
	return events, true
}

// usage has no cost if one step had none: the CLI counts a model with an unknown price as free.
func (p *opencodeParser) usage() workorder.Usage {
	u := p.lines.usage
	if p.lines.noPrice {
		u.CostUSD = nil
	}
	if u.CostUSD != nil {
		u.CostUSD, u.CostSource = new(*u.CostUSD), workorder.CostByHarness
	}
	return u
}

func (p *opencodeParser) StopReason() string { return p.halt }

func (p *opencodeParser) End(e Exit) Outcome {
	out := Outcome{
		Verdict: Failed, Final: p.lines.final, SessionID: p.session.name(), Version: p.version, Model: p.model,
		Turns: p.lines.steps, Usage: p.usage(),
	}
	switch {
	case p.halt != "":
		out.Reason, out.Code = p.halt, workorder.ReasonModelKey
	case e.Code != 0 || e.Signal != "":
		out.Reason = because("opencode "+howItEnded(e), p.lines.lastError, lastLine(e.Stderr))
		if p.lines.status == http.StatusNotFound || opencodeUnknownModel.MatchString(p.lines.lastError+"\n"+e.Stderr) {
			out.Code = unknownModel(out.Usage)
		}
	case p.lines.reason == "stop":
		out.Verdict = Succeeded
	case p.lines.reason == "":
		out.Reason = because("opencode ended without an answer", p.lines.lastError, lastLine(e.Stderr))
	default:
		// The exit code is also 0 if the model hit a limit in the middle of an answer.
		out.Reason = because(
			fmt.Sprintf("opencode ended before the task was done: the last step ended with %.40q", p.lines.reason), p.lines.lastError,
		)
	}
	return out
}

// opencodeUnknownModel matches the CLI's error for a model that is not in its own list.
var opencodeUnknownModel = lazyregexp.New(`ProviderModelNotFoundError|Model not found`)

// refusedKey explains why it is pointless to continue with a refused key.
func refusedKey(status int) string {
	return fmt.Sprintf("the model API refused the key (HTTP %d): check the secret the project names for it", status)
}
