package harness

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func TestFor(t *testing.T) {
	for _, n := range workorder.Harnesses() {
		h, err := For(n)
		if err != nil || h.Name() != n {
			t.Errorf("%s: %v", n, err)
		}
	}
	_, err := For("clippy")
	if err == nil {
		t.Fatal("an unknown harness was found")
	}
	for _, n := range append(workorder.Harnesses(), "clippy") {
		if !strings.Contains(err.Error(), n) {
			t.Errorf("an unknown harness must list the known ones, not %s: %v", n, err)
		}
	}
}

func TestCommandArgv(t *testing.T) {
	for name, c := range map[string]struct {
		spec workorder.Harness
		want []string
	}{
		"string":           {workorder.Harness{Command: []string{"echo $X | cat"}}, []string{"sh", "-c", "echo $X | cat"}},
		"string with args": {workorder.Harness{Command: []string{"run.sh"}, Args: []string{"a b"}}, []string{"sh", "-c", `run.sh "$@"`, "sh", "a b"}},
		"list":             {workorder.Harness{Command: []string{"a", "$X"}, Args: []string{"b"}}, []string{"a", "$X", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := command{}.Command(Input{Order: &workorder.Order{Harness: c.spec}})
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got.Argv); d != "" {
				t.Error(d)
			}
		})
	}
	if _, err := (command{}).Command(Input{Order: &workorder.Order{Harness: workorder.Harness{Command: []string{" "}}}}); err == nil {
		t.Error("an empty command must be refused")
	}
}

// run feeds lines and returns the parser and the events.
func run(t *testing.T, lines ...string) (*commandParser, []workorder.Event) {
	t.Helper()
	p := &commandParser{}
	var all []workorder.Event
	for _, l := range lines {
		ev, _ := p.Line([]byte(l))
		all = append(all, ev...)
	}
	return p, all
}

func TestCommandOwnEvents(t *testing.T) {
	p, ev := run(t,
		`{"type":"agent.text","text":"hello"}`,
		`{"type":"agent.tool","id":"1","name":"Bash","input":{"command":"ls -l"}}`,
		`  {"type":"agent.tool_result","id":"1","status":"error","text":"no"}`,
		`{"type":"agent.usage","usage":{"cost_usd":0.5,"input_tokens":10,"cost_source":"lies"}}`,
		`{"type":"agent.usage","usage":{"cost_usd":0.75,"output_tokens":3}}`,
		`{"type":"agent.error","text":"oops"}`,
	)
	half, threeQuarters := 0.5, 0.75
	want := []workorder.Event{
		{Type: "agent.text", Text: "hello"},
		{Type: "agent.tool", ID: "1", Name: "Bash", Text: "ls -l"},
		{Type: "agent.tool_result", ID: "1", Status: "error", Text: "no"},
		{Type: "agent.usage", Usage: &workorder.Usage{CostUSD: &half, CostSource: "harness", InputTokens: 10}},
		{Type: "agent.usage", Usage: &workorder.Usage{CostUSD: &threeQuarters, CostSource: "harness", InputTokens: 10, OutputTokens: 3}},
		{Type: "agent.error", Text: "oops"},
	}
	if d := cmp.Diff(want, ev); d != "" {
		t.Error(d)
	}
	if o := p.End(Exit{Code: 3}); o.Verdict != Failed || !strings.Contains(o.Reason, "3") || !strings.Contains(o.Reason, "oops") {
		t.Errorf("got %+v", o)
	}
	if o := p.End(Exit{}); o.Verdict != Succeeded || o.Final != "hello" {
		t.Errorf("got %+v", o)
	}
}

// TestCommandSteps: usage of steps adds up, with and without "part".
func TestCommandSteps(t *testing.T) {
	p, _ := run(t,
		`{"type":"step_finish","cost":0.25,"tokens":{"input":1,"output":2,"reasoning":3,"cache":{"read":4,"write":5}}}`,
		`{"type":"step_finish","sessionID":"ses","part":{"cost":0.5,"reason":"stop","tokens":{"input":10,"output":20,"reasoning":30,"cache":{"read":40,"write":50}}}}`,
		`{"type":"step_finish","part":{"cost":-100}}`,
	)
	cost := 0.75
	want := workorder.Usage{CostUSD: &cost, CostSource: "harness", InputTokens: 11, OutputTokens: 55, CacheReadTokens: 44, CacheWriteTokens: 55}
	o := p.End(Exit{})
	if d := cmp.Diff(want, o.Usage); d != "" {
		t.Error(d)
	}
	if o.SessionID != "ses" || o.Turns != 3 {
		t.Errorf("got %+v", o)
	}
}

func TestCommandTakesGarbageAsText(t *testing.T) {
	for _, line := range []string{
		"", "hello", "{", "{}", "[1]", "null", `{"type":1}`, `{"type":"result"}`, `{"type":"ready"}`, `{"type":"unknown","x":1}`,
		`{"type":"agent.text"} trailing`, "\x00\xff{", `{"type":"agent.finished"}`, `{"type":"push"}`,
	} {
		p := &commandParser{}
		if ev, ok := p.Line([]byte(line)); ok || ev != nil {
			t.Errorf("%q was understood as %v", line, ev)
		}
	}
	// Known types with fields of the wrong type must do no harm.
	p, _ := run(t, `{"type":"agent.usage","usage":"much"}`, `{"type":"agent.usage"}`, `{"type":"agent.usage","usage":{"cost_usd":-1}}`,
		`{"type":"step_finish","part":[],"cost":"x","tokens":3}`, `{"type":"tool_use","part":7}`, `{"type":"error","error":5}`,
		`{"type":"agent.text","text":{}}`, `{"type":"assistant","session_id":"s","message":"x"}`, `{"type":"user","session_id":"s","message":{"content":[{"type":"tool_result","content":7}]}}`)
	if o := p.End(Exit{}); o.Usage != (workorder.Usage{}) || o.Verdict != Succeeded {
		t.Errorf("got %+v", o)
	}
}

func TestCommandAroundClaude(t *testing.T) {
	p := &commandParser{}
	replay(t, p, "testdata/budget.jsonl", Exit{Code: 1})
	o := p.End(Exit{})
	if o.Verdict != Budget || o.Usage.CostUSD == nil || *o.Usage.CostUSD != 0.015 || o.SessionID == "" {
		t.Errorf("got %+v", o)
	}
}

// TestCommandAroundOpencode: a script around that CLI loses nothing.
func TestCommandAroundOpencode(t *testing.T) {
	p := &commandParser{}
	replay(t, p, "testdata/opencode-1.18.33/commit.jsonl", Exit{})
	o := p.End(Exit{})
	if o.Verdict != Succeeded || o.Usage.InputTokens != 2500 || o.Usage.CostUSD == nil || o.Turns != 3 || o.SessionID == "" || o.Final == "" {
		t.Errorf("got %+v", o)
	}
}

func TestHowItEnded(t *testing.T) {
	for want, e := range map[string]Exit{
		"ended by SIGSEGV":                {Code: 139, Signal: "SIGSEGV"},
		"exited with 139 (128 + SIGSEGV)": {Code: 139},
		"exited with 255":                 {Code: 255},
		"exited with 2":                   {Code: 2},
	} {
		if got := howItEnded(e); got != want {
			t.Errorf("%+v: %q, want %q", e, got, want)
		}
	}
}

func FuzzParsers(f *testing.F) {
	for _, s := range []string{
		`{"type":"result","session_id":"s"}`, `{"type":"step_finish","part":{}}`, `{"type":"agent.usage","usage":{}}`, "x",
		`{"type":"turn.completed","usage":{"input_tokens":1,"cached_input_tokens":2}}`, `{"type":"thread.started","thread_id":"-x"}`,
		`{"type":"item.completed","item":{"id":"1","type":"command_execution","status":"failed"}}`,
		`{"type":"error","message":"You've hit your usage limit. Try again at 3:00 PM."}`,
		`{"type":"error","error":{"data":{"statusCode":401}}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		for _, p := range []Parser{&claudeParser{}, &commandParser{}, newCodexParser(), newOpencodeParser()} {
			events, understood := p.Line(line)
			if !understood && len(events) > 0 {
				t.Errorf("%T: events %+v of a line that is text", p, events)
			}
			for _, e := range events {
				if e.Usage != nil && !sane(*e.Usage) {
					t.Errorf("%T: event with usage %+v", p, e.Usage)
				}
			}
			p.StopReason()
			o := p.End(Exit{})
			if !sane(o.Usage) || !sane(o.InSession) || o.SessionID != "" && strings.HasPrefix(o.SessionID, "-") && isNamed(p) {
				t.Errorf("%T: outcome %+v", p, o)
			}
			if (o.Verdict == Succeeded) != (o.Reason == "") {
				t.Errorf("%T: verdict %s has reason %q", p, o.Verdict, o.Reason)
			}
		}
	})
}

// isNamed reports whether the parser's session id becomes part of a command line.
func isNamed(p Parser) bool {
	switch p.(type) {
	case *codexParser, *opencodeParser:
		return true
	}
	return false
}

// TestUsageStaysEncodable: whatever an agent claims to have used, the result
// that carries it can be written.
func TestUsageStaysEncodable(t *testing.T) {
	claude := func(model string) string {
		return `{"type":"result","session_id":"s","total_cost_usd":1e308,"modelUsage":` + model + `,"model_usage_since_last_result":` + model + `}`
	}
	for name, line := range map[string]string{
		"cost of steps":    `{"type":"step_finish","part":{"cost":1e308}}`,
		"tokens of steps":  `{"type":"step_finish","part":{"tokens":{"input":9223372036854775807,"output":9223372036854775807,"reasoning":9223372036854775807}}}`,
		"largest steps":    `{"type":"step_finish","part":{"cost":1e9,"tokens":{"input":1125899906842624}}}`,
		"totals":           `{"type":"agent.usage","usage":{"cost_usd":1e308,"input_tokens":9223372036854775807}}`,
		"claude, a model":  claude(`{"m":{"inputTokens":9223372036854775807,"costUSD":1e308}}`),
		"claude, two":      claude(`{"m":{"outputTokens":1125899906842624,"costUSD":1e9},"n":{"outputTokens":1125899906842624,"costUSD":1e9}}`),
		"claude, a stream": `{"type":"stream_event","session_id":"s","event":{"type":"message_delta","usage":{"output_tokens":9223372036854775807}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			p, events := run(t, line, line, line)
			for _, e := range events {
				if _, err := json.Marshal(e); err != nil || e.Usage != nil && !sane(*e.Usage) {
					t.Errorf("event %+v: %v", e, err)
				}
			}
			out := p.End(Exit{})
			res := workorder.Result{Usage: out.Usage}
			if _, err := res.Encode(); err != nil || !sane(out.Usage) {
				t.Errorf("usage %+v: %v", out.Usage, err)
			}
		})
	}
}
