package harness

import (
	"cmp"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type command struct{}

var _ Notifier = command{}

func (command) Name() string { return workorder.HarnessCommand }

func (command) Command(in Input) (Invocation, error) {
	spec := in.Order.Harness
	argv := append([]string(nil), spec.Command...)
	switch {
	case spec.Version != "":
		return Invocation{}, errors.New(
			"harness command: harness.version cannot be checked for an unknown program: remove it, or let the command check it",
		)
	case len(argv) == 0 || strings.TrimSpace(argv[0]) == "":
		return Invocation{}, errors.New("harness command: harness.command is empty: give the program to run")
	case len(argv) == 1 && len(spec.Args) == 0:
		argv = []string{"sh", "-c", argv[0]}
	case len(argv) == 1:
		argv = append([]string{"sh", "-c", argv[0] + ` "$@"`, "sh"}, spec.Args...)
	default:
		argv = append(argv, spec.Args...)
	}
	env := []string{
		"SANDBOX_AGENT_NOTICE_FILE=" + in.NoticeFile,
		"SANDBOX_AGENT_PROMPT_FILE=" + in.PromptFile,
		"SANDBOX_AGENT_TASK_ID=" + in.Order.TaskID,
		"SANDBOX_AGENT_MODE=" + string(in.Order.Mode),
		"SANDBOX_AGENT_WORKSPACE=" + in.Workspace,
	}
	if d := in.Order.Dev; d != nil {
		env = append(env, "SANDBOX_AGENT_DEV_COMMAND="+d.Command, "SANDBOX_AGENT_DEV_PORT="+strconv.Itoa(d.Port))
	}
	if spec.Model != "" {
		env = append(env, "SANDBOX_AGENT_MODEL="+spec.Model)
	}
	return Invocation{Argv: argv, Env: env, Stop: []syscall.Signal{syscall.SIGTERM}}, nil
}

// Notice returns the plain text: the program reads the file when it chooses.
func (command) Notice(_ Input, text string) ([]byte, error) { return []byte(text + "\n"), nil }

func (command) Parser(Input) Parser { return &commandParser{} }

// commandParser reads the protocol in docs/harnesses.md.
type commandParser struct {
	usage     workorder.Usage // last agent.usage
	lastError string
	final     string
	limit     *limit
	claude    claudeParser  // for scripts around the Claude Code CLI
	opencode  opencodeLines // for scripts around the opencode CLI
}

func (p *commandParser) Line(line []byte) ([]workorder.Event, bool) {
	o, ok := object(line)
	if !ok {
		return nil, false
	}
	typ := field[string](o, "type")
	switch typ {
	case "system", "assistant", "user", "result", "stream_event", "rate_limit_event":
		if field[string](o, "session_id") == "" {
			return nil, false
		}
		ev, ok := p.claude.object(typ, o)
		return p.withTotal(ev), ok
	case "limit":
		p.limit = &limit{text: field[string](o, "text")}
		if at, err := time.Parse(time.RFC3339, field[string](o, "resume_at")); err == nil {
			p.limit.until = &at
		}
		return []workorder.Event{{Type: workorder.EventAgentError, Text: p.limit.reason()}}, true
	case "step_start", "text", "tool_use", "step_finish", "error":
		ev, ok := p.opencode.object(typ, o)
		if typ == "text" {
			p.final = p.opencode.final
		}
		if typ == "error" {
			p.lastError = p.opencode.lastError
		}
		return p.withTotal(ev), ok
	case string(workorder.EventAgentText), string(workorder.EventAgentTool), string(workorder.EventAgentToolResult),
		string(workorder.EventAgentUsage), string(workorder.EventAgentError):
		return p.own(workorder.EventType(typ), o), true
	}
	return nil, false
}

// withTotal replaces the usage of one source with the total of all sources.
func (p *commandParser) withTotal(events []workorder.Event) []workorder.Event {
	for i := range events {
		if events[i].Usage != nil {
			events[i].Usage = p.total()
		}
	}
	return events
}

func (p *commandParser) own(typ workorder.EventType, o map[string]json.RawMessage) []workorder.Event {
	e := workorder.Event{Type: typ, Text: field[string](o, "text")}
	switch typ {
	case workorder.EventAgentText:
		p.final = e.Text
	case workorder.EventAgentTool:
		e.Name, e.ID = field[string](o, "name"), field[string](o, "id")
		e.Text = cmp.Or(e.Text, toolText(o["input"]))
	case workorder.EventAgentToolResult:
		e.ID, e.Status = field[string](o, "id"), "ok"
		if field[string](o, "status") == "error" {
			e.Status = "error"
		}
	case workorder.EventAgentError:
		p.lastError = e.Text
	case workorder.EventAgentUsage:
		// Decode over the previous totals, so that absent fields keep their value; over a copy of the cost, because
		// sent events share it.
		u := p.usage
		if u.CostUSD != nil {
			u.CostUSD = new(*u.CostUSD)
		}
		if raw, ok := o["usage"]; ok && json.Unmarshal(raw, &u) == nil && sane(u) {
			p.usage = u
		}
		e.Usage = p.total()
	}
	return []workorder.Event{e}
}

// No run can use more. The bounds keep sums finite: an infinite cost has no JSON form.
const (
	maxCost   = 1e9     // dollars
	maxTokens = 1 << 50 // exact in floating-point numbers, too
)

// sane rejects negative numbers, because a shrinking total would let an agent exceed its budget, and impossible ones.
func sane(u workorder.Usage) bool {
	if u.CostUSD != nil && !(*u.CostUSD >= 0 && *u.CostUSD <= maxCost) { // this form also rejects NaN
		return false
	}
	for _, n := range []int64{u.InputTokens, u.OutputTokens, u.CacheReadTokens, u.CacheWriteTokens} {
		if n < 0 || n > maxTokens {
			return false
		}
	}
	return true
}

func (p *commandParser) total() *workorder.Usage {
	u := Add(Add(p.usage, p.opencode.usage), p.claude.usage())
	u.CostSource = ""
	if u.CostUSD != nil {
		u.CostSource = workorder.CostByHarness
	}
	return &u
}

func (p *commandParser) StopReason() string {
	if p.limit != nil {
		return p.limit.reason()
	}
	return p.claude.StopReason()
}

func (p *commandParser) End(e Exit) Outcome {
	out := Outcome{Verdict: Succeeded}
	if p.claude.results > 0 || p.claude.limited != nil {
		out = p.claude.End(Exit{})
	}
	out.Usage = *p.total()
	out.Final = cmp.Or(out.Final, p.final)
	out.SessionID = cmp.Or(out.SessionID, p.opencode.session)
	out.Turns += p.opencode.steps
	if (e.Code != 0 || e.Signal != "") && out.Verdict == Succeeded {
		out.Verdict = Failed
		out.Reason = because("the agent's command "+howItEnded(e), p.lastError, lastLine(e.Stderr))
	}
	if p.limit != nil {
		out.Verdict, out.Reason, out.ResumeAt = Limited, p.limit.reason(), p.limit.until
	}
	return out
}

// Add sums two sane usages; the sum stays sane. The cost is unknown only if both are unknown.
func Add(a, b workorder.Usage) workorder.Usage {
	a.InputTokens = min(a.InputTokens+b.InputTokens, maxTokens)
	a.OutputTokens = min(a.OutputTokens+b.OutputTokens, maxTokens)
	a.CacheReadTokens = min(a.CacheReadTokens+b.CacheReadTokens, maxTokens)
	a.CacheWriteTokens = min(a.CacheWriteTokens+b.CacheWriteTokens, maxTokens)
	a.ReservedUSD, a.Estimated = a.ReservedUSD+b.ReservedUSD, a.Estimated || b.Estimated
	switch {
	case a.CostUSD == nil:
		a.CostUSD = b.CostUSD
	case b.CostUSD != nil:
		sum := min(*a.CostUSD+*b.CostUSD, maxCost)
		a.CostUSD = &sum
	}
	return a
}
