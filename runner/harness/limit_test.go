package harness

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func TestClaudeLimits(t *testing.T) {
	for name, want := range map[string]time.Time{
		"limit_five_hour": time.Unix(1795230000, 0), "limit_weekly": time.Unix(1795622802, 0),
	} {
		for kind, p := range map[string]Parser{"claude-code": &claudeParser{}, "command": &commandParser{}} {
			replay(t, p, "testdata/"+name+".jsonl", Exit{Code: 1})
			o := p.End(Exit{Code: 1})
			if o.Verdict != Limited || o.ResumeAt == nil || !o.ResumeAt.Equal(want) {
				t.Errorf("%s, %s: %s, resume at %v, want %v", name, kind, o.Verdict, o.ResumeAt, want)
			}
			if p.StopReason() == "" {
				t.Errorf("%s, %s: it is left waiting", name, kind)
			}
		}
	}
	// Messages that are no limit stop no run.
	for _, name := range []string{"limit_near", "rate_limit_api_key", "rate_limit_recovered", "api_400"} {
		p := &claudeParser{}
		replay(t, p, "testdata/"+name+".jsonl", Exit{Code: 1})
		if o := p.End(Exit{Code: 1}); p.StopReason() != "" || o.Verdict == Limited || o.ResumeAt != nil {
			t.Errorf("%s: %+v, halt %q", name, o, p.StopReason())
		}
	}
}

func TestClaudeLimitsOfOtherVersions(t *testing.T) {
	const rejected = `{"type":"rate_limit_event","session_id":"s","rate_limit_info":{"status":"rejected","resetsAt":1795230000}}`
	for name, c := range map[string]struct {
		lines []string
		at    int64 // 0: not known; -1: no limit
	}{
		"words and a time": {[]string{`{"type":"result","is_error":true,"session_id":"s","result":"Claude AI usage limit reached|1795230000"}`}, 1795230000},
		"milliseconds":     {[]string{`{"type":"result","is_error":true,"session_id":"s","result":"Claude AI usage limit reached|1795230000000"}`}, 1795230000},
		"words":            {[]string{`{"type":"result","is_error":true,"session_id":"s","result":"Claude usage limit reached."}`}, 0},
		"said by the model": {[]string{
			`{"type":"result","subtype":"success","session_id":"s","result":"I fixed the text 'usage limit reached|1795230000'"}`,
		}, -1},
		"retries": {[]string{
			rejected, `{"type":"system","subtype":"api_retry","attempt":1,"error_status":429,"error":"rate_limit","session_id":"s"}`,
			`{"type":"result","subtype":"error_during_execution","is_error":true,"session_id":"s"}`,
		}, 1795230000},
		"status only": {[]string{rejected, `{"type":"result","is_error":true,"api_error_status":429,"session_id":"s","result":"Limit"}`}, 1795230000},
		"other error": {[]string{rejected, `{"type":"result","is_error":true,"api_error_status":400,"session_id":"s","result":"no"}`}, -1},
		"paid overage": {[]string{
			`{"type":"rate_limit_event","session_id":"s","rate_limit_info":{"status":"rejected","isUsingOverage":true}}`,
			`{"type":"system","subtype":"api_retry","error_status":429,"session_id":"s"}`,
		}, -1},
		"over again": {[]string{
			rejected, `{"type":"rate_limit_event","session_id":"s","rate_limit_info":{"status":"allowed"}}`,
			`{"type":"system","subtype":"api_retry","error_status":429,"session_id":"s"}`,
		}, -1},
		"in a sub-agent": {[]string{
			`{"type":"assistant","session_id":"s","parent_tool_use_id":"t","api_error":"usage_limit_reached","api_error_params":{"rate_limit_info":{"status":"rejected","resetsAt":1795230000}}}`,
			`{"type":"result","subtype":"success","session_id":"s","result":"done without it"}`,
		}, -1},
		"a later success": {[]string{
			`{"type":"result","is_error":true,"api_error":"usage_limit_reached","session_id":"s","result":"x"}`,
			`{"type":"result","subtype":"success","session_id":"s","result":"done"}`,
		}, -1},
		"wrong types": {[]string{`{"type":"rate_limit_event","session_id":"s","rate_limit_info":7}`, `{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":"x"}}`}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			p := &claudeParser{}
			for _, l := range c.lines {
				if _, ok := p.Line([]byte(l)); !ok {
					t.Errorf("not understood: %s", l)
				}
			}
			o := p.End(Exit{Code: 1})
			if (o.Verdict == Limited) != (c.at >= 0) {
				t.Fatalf("got %+v", o)
			}
			if at := o.ResumeAt; (at != nil) != (c.at > 0) || at != nil && at.Unix() != c.at {
				t.Errorf("resume at %v, want %d", at, c.at)
			}
		})
	}
}

func TestCommandLimit(t *testing.T) {
	for line, want := range map[string]string{
		`{"type":"limit","resume_at":"2026-11-21T03:00:00Z","text":"five hours are over"}`: "2026-11-21T03:00:00Z",
		`{"type":"limit","text":"five hours are over"}`:                                    "",
		`{"type":"limit","text":"five hours are over","resume_at":"soon"}`:                 "",
		`{"type":"limit","text":"five hours are over","resume_at":7}`:                      "",
	} {
		p, events := run(t, line)
		o := p.End(Exit{Code: 75})
		at := ""
		if o.ResumeAt != nil {
			at = o.ResumeAt.Format(time.RFC3339)
		}
		if o.Verdict != Limited || at != want || !strings.Contains(o.Reason, "five hours are over") || p.StopReason() != o.Reason {
			t.Errorf("%s: %+v, at %q, halt %q", line, o, at, p.StopReason())
		}
		if len(events) != 1 || events[0].Type != workorder.EventAgentError {
			t.Errorf("%s: events %+v", line, events)
		}
	}
	p, _ := run(t, `{"type":"agent.text","text":"x"}`)
	if o := p.End(Exit{Code: 75}); o.Verdict != Failed || p.StopReason() != "" {
		t.Errorf("an exit code alone is no limit: %+v", o)
	}
}

// TestClaudeNoticeHook runs the hook as the CLI does: after every tool call, with
// its input on standard input.
func TestClaudeNoticeHook(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "it's a folder")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r := claudeRun("ANTHROPIC_API_KEY=sk")
	r.NoticeFile, r.Home = filepath.Join(dir, "notice"), t.TempDir()
	hook := func(input string) string {
		out, err := proc.Output(t.Context(), proc.Spec{Argv: []string{"sh", "-c", noticeHook(r)}, Stdin: strings.NewReader(input)})
		if err != nil {
			t.Error(err) // an exit code of a hook can stop the agent
		}
		return string(out)
	}
	tell := func(text string) string {
		b, err := claude{}.Notice(r, text)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(r.NoticeFile, b, 0o644); err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	const call, subagent = `{"session_id":"s","tool_input":{"command":"echo '\"agent_id\":'"}}`, `{"session_id":"s","agent_id":"a1"}`
	if got := hook(call); got != "" {
		t.Errorf("without a notice: %q", got)
	}
	for _, text := range []string{"80 % of the time\nis used up", "80 % of the money"} {
		want := tell(text)
		if got := hook(subagent); got != "" {
			t.Errorf("a sub-agent received %q", got)
		}
		told := make([]string, 8) // parallel tool calls
		var all sync.WaitGroup
		for i := range told {
			all.Go(func() { told[i] = hook(call) })
		}
		all.Wait()
		if got := strings.Join(told, ""); got != want {
			t.Errorf("told %q, want %q once", got, want)
		}
	}
	r.Order.Harness.Args = []string{"--settings={}"}
	if _, err := (claude{}).Notice(r, "x"); err == nil {
		t.Error("the user's own settings replace the runner's hook")
	}
}

func TestClaudeResume(t *testing.T) {
	r := claudeRun("ANTHROPIC_API_KEY=sk")
	c, err := claude{}.Resume(r)
	if err != nil {
		t.Fatal(err)
	}
	argv := strings.Join(c.Argv, " ")
	if !strings.Contains(argv, "--resume u-u-i-d") || strings.Contains(argv, "--session-id") {
		t.Errorf("argv %q", argv)
	}
}
