package harness

import (
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// recordedAt is when the streams of limits were recorded.
var recordedAt = time.Date(2026, 11, 21, 8, 28, 17, 0, time.UTC)

func newCodexParser() *codexParser {
	return &codexParser{session: &conversation{}, now: func() time.Time { return recordedAt }}
}

const codexTestdata = "testdata/codex-0.169.0/"

// codexRecorded are streams of the real CLI with the exit they had, and what must come of them.
var codexRecorded = map[string]struct {
	exit    Exit
	verdict Verdict
	code    workorder.ReasonCode
	reason  string // of its own words, or how it ended
	usage   workorder.Usage
}{
	"api_400":           {Exit{Code: 1}, Failed, "", "bad request", workorder.Usage{}},
	"api_401":           {Exit{Code: 1}, Failed, workorder.ReasonModelKey, "401", workorder.Usage{}},
	"commit_codemode":   {Exit{}, Succeeded, "", "", codexCommit},
	"commit_patch":      {Exit{}, Succeeded, "", "", codexCommit},
	"commit_shell":      {Exit{}, Succeeded, "", "", codexCommit},
	"hook":              {Exit{}, Succeeded, "", "", workorder.Usage{InputTokens: 3000, OutputTokens: 150}},
	"limit_days":        {Exit{Code: 1}, Limited, "", "usage limit", workorder.Usage{}},
	"limit_today":       {Exit{Code: 1}, Limited, "", "usage limit", workorder.Usage{}},
	"limit_unknown":     {Exit{Code: 1}, Limited, "", "usage limit", workorder.Usage{}},
	"quota":             {Exit{Code: 1}, Failed, "", "Quota exceeded", workorder.Usage{}},
	"rate_limit":        {Exit{Code: 1}, Failed, "", "429 Too Many Requests", workorder.Usage{}},
	"resume_cumulative": {Exit{}, Succeeded, "", "", workorder.Usage{InputTokens: 5000, OutputTokens: 250}},
	"sigint":            {Exit{Code: 1}, Failed, "", " 1 ", workorder.Usage{}},
	"sigterm":           {Exit{Code: 143, Signal: "SIGTERM"}, Failed, "", "SIGTERM", workorder.Usage{}},
}

var codexCommit = workorder.Usage{InputTokens: 3500, CacheReadTokens: 6000, OutputTokens: 102}

func TestCodexRecordings(t *testing.T) {
	files, err := filepath.Glob(codexTestdata + "*.jsonl")
	if err != nil || len(files) != len(codexRecorded) {
		t.Fatalf("%d recordings, %d expected (%v)", len(files), len(codexRecorded), err)
	}
	for name, c := range codexRecorded {
		t.Run(name, func(t *testing.T) {
			p := newCodexParser()
			golden(t, codexTestdata+name+".golden", replay(t, p, codexTestdata+name+".jsonl", c.exit))
			o := p.End(c.exit)
			if o.Verdict != c.verdict || o.Code != c.code || !strings.Contains(o.Reason, c.reason) || (o.Verdict == Succeeded) != (o.Reason == "") {
				t.Errorf("%s, %q; want %+v", o.Verdict, o.Reason, c)
			}
			if o.Usage != c.usage || !sessionID.MatchString(o.SessionID) || o.Turns != 1 {
				t.Errorf("got %+v, want %+v", o, c)
			}
			if (p.StopReason() != "") != (name == "api_401" || o.Verdict == Limited) {
				t.Errorf("halt %q", p.StopReason())
			}
		})
	}
}

// TestCodexLimits: the words of a limit have the time of its end in the zone of the CLI.
func TestCodexLimits(t *testing.T) {
	for name, want := range map[string]string{
		"limit_today": "2026-11-21T11:21:00Z", "limit_days": "2026-11-25T16:07:00Z", "limit_unknown": "",
	} {
		p := newCodexParser()
		replay(t, p, codexTestdata+name+".jsonl", Exit{Code: 1})
		if got := stamp(p.End(Exit{Code: 1}).ResumeAt); got != want {
			t.Errorf("%s: resume at %q, want %q", name, got, want)
		}
	}
	tokyo := time.FixedZone("Tokyo", 9*3600)
	for text, want := range map[string]string{
		"You've hit your usage limit. Upgrade to Pro or try again at 8:20 PM.":                  "2026-11-21T11:21:00Z",
		"You've hit your usage limit. Try again later, or try again at Dec 1st, 2026 12:00 AM.": "2026-11-30T15:01:00Z",
		"You've hit your usage limit or try again at Foo 99th, 2026 12:00 AM.":                  "",
		"You've hit your usage limit or try again at 25:00 PM.":                                 "",
	} {
		l := codexLimit(text, recordedAt.In(tokyo))
		if l == nil || stamp(l.until) != want {
			t.Errorf("%s: %+v, want %q", text, l, want)
		}
	}
	if l := codexLimit("Quota exceeded. Check your plan and billing details.", recordedAt); l != nil {
		t.Errorf("a quota does not come back by waiting: %+v", l)
	}
}

func stamp(at *time.Time) string {
	if at == nil {
		return ""
	}
	return at.Format(time.RFC3339)
}

// TestCodexSession: totals of a resumed session are not counted twice, whatever the first process said.
func TestCodexSession(t *testing.T) {
	h := &codex{}
	r := codexRun("OPENAI_API_KEY=sk")
	if _, err := h.Resume(r); err == nil {
		t.Error("there is no session to go on with")
	}
	first := h.Parser(r)
	feed(t, first, `{"type":"thread.started","thread_id":"01a1fd38-7376-7001-a564-88eeb4efa353"}`, `{"type":"turn.started"}`,
		`{"type":"turn.completed","usage":{"input_tokens":2000,"cached_input_tokens":500,"output_tokens":100}}`)
	one := first.End(Exit{Code: 143, Signal: "SIGTERM"}).Usage
	c, err := h.Resume(r)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(c.Argv[len(c.Argv)-3:], " "); got != "resume 01a1fd38-7376-7001-a564-88eeb4efa353 -" {
		t.Errorf("argv %q", c.Argv)
	}
	second := h.Parser(r)
	replay(t, second, codexTestdata+"resume_cumulative.jsonl", Exit{})
	o := second.End(Exit{})
	want := workorder.Usage{InputTokens: 5000, OutputTokens: 250}
	if sum := Add(one, o.Usage); sum.InputTokens < 4500 || sum.OutputTokens != want.OutputTokens || o.InSession != want {
		t.Errorf("first %+v, second %+v, session %+v", one, o.Usage, o.InSession)
	}
	if ok, err := path.Match(h.Transcript(r), ".codex/sessions/2026/11/21/rollout-2026-11-21T08-28-17-01a1fd38-7376-7001-a564-88eeb4efa353.jsonl"); !ok || err != nil {
		t.Errorf("transcript %q", h.Transcript(r))
	}
	feed(t, second, `{"type":"thread.started","thread_id":"--last"}`, `{"type":"thread.started","thread_id":"../../*"}`)
	if id := h.session.name(); !strings.HasPrefix(id, "01a1fd38") {
		t.Errorf("id %q", id)
	}
}

func feed(t *testing.T, p Parser, lines ...string) (all []workorder.Event) {
	t.Helper()
	for _, l := range lines {
		events, ok := p.Line([]byte(l))
		if !ok {
			t.Errorf("not understood: %.100s", l)
		}
		all = append(all, events...)
	}
	return all
}

// TestCodexItems: what no recording has.
func TestCodexItems(t *testing.T) {
	p := newCodexParser()
	got := feed(t, p,
		`{"type":"item.started","item":{"id":"1","type":"mcp_tool_call","server":"docs","tool":"find","arguments":{"query":"x"},"status":"in_progress"}}`,
		`{"type":"item.completed","item":{"id":"1","type":"mcp_tool_call","server":"docs","tool":"find","arguments":{"query":"x"},"result":{"content":[{"type":"text","text":"found"}]},"status":"completed"}}`,
		`{"type":"item.completed","item":{"id":"2","type":"mcp_tool_call","server":"docs","tool":"find","error":{"message":"no"},"status":"failed"}}`,
		`{"type":"item.completed","item":{"id":"3","type":"command_execution","command":"/bin/bash -lc 'rm x'","status":"declined"}}`,
		`{"type":"item.completed","item":{"id":"4","type":"web_search","query":"go"}}`,
		`{"type":"item.updated","item":{"id":"5","type":"todo_list","items":[]}}`,
		`{"type":"item.completed","item":{"id":"6","type":"reasoning","text":"hm"}}`,
	)
	want := []workorder.Event{
		{Type: "agent.tool", ID: "1", Name: "docs.find", Text: "x"},
		{Type: "agent.tool_result", ID: "1", Status: "ok", Text: "found"},
		{Type: "agent.tool", ID: "2", Name: "docs.find"},
		{Type: "agent.tool_result", ID: "2", Status: "error", Text: "no"},
		{Type: "agent.tool", ID: "3", Name: "command_execution", Text: "'rm x'"},
		{Type: "agent.tool_result", ID: "3", Status: "error"},
		{Type: "agent.tool", ID: "4", Name: "web_search", Text: "go"},
		{Type: "agent.tool_result", ID: "4", Status: "ok"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if o := p.End(Exit{}); o.Denials != 1 {
		t.Errorf("%d denials", o.Denials)
	}
}

// TestTextStaysText: what is no event of the CLI is kept as text, and hostile lines do no harm.
func TestTextStaysText(t *testing.T) {
	for _, line := range []string{
		"", "hello", "{", "[1]", "null", `{"type":1}`, `{"type":"thread.archived"}`, `{"type":"item.completed"}`, `{"type":"turn.paused","x":1}`,
		`{"type":"item.completed","item":{"id":"1","type":"hologram"}}`, "\x00\xff{", `{"type":"session.idle"}`, `{"type":"assistant","session_id":"s"}`,
	} {
		for _, p := range []Parser{newCodexParser(), newOpencodeParser()} {
			if ev, ok := p.Line([]byte(line)); ok || ev != nil {
				t.Errorf("%T: %q was understood as %v", p, line, ev)
			}
		}
	}
	huge := strings.Repeat("x", 8<<20)
	p := newCodexParser()
	feed(t, p, `{"type":"item.completed","item":{"id":"1","type":"agent_message","text":"`+huge+`"}}`, `{"type":"turn.completed","usage":7}`,
		`{"type":"turn.failed","error":"x"}`, `{"type":"error","message":{}}`, `{"type":"turn.completed","usage":{"input_tokens":-5}}`,
		`{"type":"turn.completed","usage":{"input_tokens":9223372036854775807,"output_tokens":9223372036854775807}}`)
	for i := range 3 * maxOpenItems {
		feed(t, p, `{"type":"item.started","item":{"id":"i`+strconv.Itoa(i)+`","type":"command_execution"}}`)
	}
	if o := p.End(Exit{}); o.Usage != (workorder.Usage{}) || len(p.begun) > maxOpenItems {
		t.Errorf("usage %+v, %d items", o.Usage, len(p.begun))
	}
	if o := newCodexParser().End(Exit{}); o.Verdict != Failed {
		t.Error("exit 0 without the end of a turn is no success")
	}
	if _, ok := newOpencodeParser().Line([]byte(`{"type":"text","part":{"text":"` + huge + `"}}`)); !ok {
		t.Error("a huge line is not understood")
	}
}

func codexRun(env ...string) Input {
	r := claudeRun(env...)
	r.NoticeFile = "/tmp/notices/notice"
	r.Order.Network.Mode = workorder.NetworkFull
	return r
}

func TestCodexCommand(t *testing.T) {
	r := codexRun("OPENAI_API_KEY=sk", "OPENAI_BASE_URL=http://127.0.0.1:1/openai/v1", "CODEX_HOME=/workspace")
	r.Order.Harness = workorder.Harness{Model: "gpt-6.1-sol", Args: []string{"-c", "model_reasoning_effort=high"}}
	c, err := (&codex{}).Command(r)
	if err != nil {
		t.Fatal(err)
	}
	hook := slices.IndexFunc(c.Argv, func(s string) bool { return strings.HasPrefix(s, "hooks.") })
	if hook < 0 || !strings.Contains(c.Argv[hook], "/tmp/notices/notice") {
		t.Fatalf("no hook in %q", c.Argv)
	}
	c.Argv[hook] = "HOOK"
	want := []string{
		"codex", "exec", "--json", "--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check",
		"-c", "analytics.enabled=false", "--disable", "plugins", "--disable", "apps", "--disable", "unbounded_connection_retries",
		"-c", `openai_base_url="http://127.0.0.1:1/openai/v1"`, "--dangerously-bypass-hook-trust", "-c", "HOOK",
		"--model", "gpt-6.1-sol", "-c", "model_reasoning_effort=high", "-",
	}
	if d := cmp.Diff(want, c.Argv); d != "" {
		t.Error(d)
	}
	r.Order.Network.Mode = workorder.NetworkNone
	if c, err := (&codex{}).Command(r); err != nil || !slices.Contains(c.Argv, `web_search="disabled"`) {
		t.Errorf("%v: searches of the provider are on in %q", err, c.Argv)
	}
	if d := cmp.Diff([]string{"CODEX_HOME=", "CODEX_API_KEY=sk"}, c.Env); d != "" {
		t.Error(d)
	}
	for name, c := range map[string]struct {
		env  []string
		spec workorder.Harness
		want string // empty: no error
	}{
		"no key":         {nil, workorder.Harness{}, "OPENAI_API_KEY"},
		"its own key":    {[]string{"CODEX_API_KEY=x"}, workorder.Harness{}, ""},
		"own provider":   {nil, workorder.Harness{Args: []string{"-c", "model_provider=mine"}}, ""},
		"our flag":       {[]string{"CODEX_API_KEY=x"}, workorder.Harness{Args: []string{"--sandbox=read-only"}}, "--sandbox"},
		"elsewhere":      {[]string{"CODEX_API_KEY=x"}, workorder.Harness{Args: []string{"--worktree"}}, "--worktree"},
		"command's flag": {[]string{"CODEX_API_KEY=x"}, workorder.Harness{Command: []string{"x"}}, "harness.command"},
	} {
		t.Run(name, func(t *testing.T) {
			r := codexRun(c.env...)
			r.Order.Harness = c.spec
			_, err := (&codex{}).Command(r)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	r.Order.Harness.Args = []string{"-c", "hooks.PostToolUse=[]"}
	if _, err := (&codex{}).Notice(r, "x"); err == nil {
		t.Error("the user's own hooks replace the runner's")
	}
}
