package harness

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func newOpencodeParser() *opencodeParser { return &opencodeParser{session: &conversation{}} }

// opencodeRecorded are streams of the real CLI with the exit they had, and what must come of them.
var opencodeRecorded = map[string]struct {
	exit    Exit
	verdict Verdict
	code    workorder.ReasonCode
	reason  string // of its own words, or how it ended
	input   int64
	cost    float64 // -1: unknown
}{
	"opencode-1.18.18/api_400":       {Exit{Code: 1}, Failed, "", "max_budget_usd is spent", 0, -1},
	"opencode-1.18.18/api_401":       {Exit{Code: 1}, Failed, workorder.ReasonModelKey, "401", 0, -1},
	"opencode-1.18.18/commit":        {Exit{}, Succeeded, "", "", 1800, 0.0008165},
	"opencode-1.18.18/resume":        {Exit{}, Succeeded, "", "", 310, 0.0001865},
	"opencode-1.18.18/unknown_model": {Exit{}, Succeeded, "", "", 10, -1},
	"opencode-1.18.33/api_401":       {Exit{Code: 1}, Failed, workorder.ReasonModelKey, "401", 0, -1},
	"opencode-1.18.33/commit":        {Exit{}, Succeeded, "", "", 2500, 0.00422},
	"opencode-1.18.33/sigint":        {Exit{Code: 130}, Failed, "", "SIGINT", 0, -1},
}

func TestOpencodeRecordings(t *testing.T) {
	files, err := filepath.Glob("testdata/opencode-*/*.jsonl")
	if err != nil || len(files) != len(opencodeRecorded) {
		t.Fatalf("%d recordings, %d expected (%v)", len(files), len(opencodeRecorded), err)
	}
	for name, c := range opencodeRecorded {
		t.Run(name, func(t *testing.T) {
			p := newOpencodeParser()
			golden(t, "testdata/"+name+".golden", replay(t, p, "testdata/"+name+".jsonl", c.exit))
			o := p.End(c.exit)
			cost := -1.0
			if o.Usage.CostUSD != nil {
				cost = *o.Usage.CostUSD
			}
			if o.Verdict != c.verdict || o.Code != c.code || !strings.Contains(o.Reason, c.reason) || (o.Verdict == Succeeded) != (o.Reason == "") ||
				o.Usage.InputTokens != c.input || cost-c.cost > 1e-9 || c.cost-cost > 1e-9 || !sessionID.MatchString(o.SessionID) {
				t.Errorf("got %+v, want %+v", o, c)
			}
		})
	}
}

// TestOpencodeEndings: there is no last event, so the last step has to say that it was the last.
func TestOpencodeEndings(t *testing.T) {
	step := func(reason string) string {
		return `{"type":"step_finish","sessionID":"ses_1","part":{"reason":"` + reason + `","tokens":{"input":1}}}`
	}
	for name, c := range map[string]struct {
		lines []string
		exit  Exit
		want  Verdict
	}{
		"stop":            {[]string{step("tool-calls"), step("stop")}, Exit{}, Succeeded},
		"in the middle":   {[]string{step("stop"), step("tool-calls")}, Exit{}, Failed},
		"cut off":         {[]string{step("length")}, Exit{}, Failed},
		"nothing":         {nil, Exit{}, Failed},
		"error only":      {[]string{`{"type":"error","sessionID":"ses_1","error":{"name":"UnknownError"}}`}, Exit{}, Failed},
		"a later failure": {[]string{step("stop")}, Exit{Code: 1}, Failed},
		"recovered":       {[]string{`{"type":"error","error":{"name":"APIError","data":{"message":"x","statusCode":500}}}`, step("stop")}, Exit{}, Succeeded},
	} {
		p := newOpencodeParser()
		feed(t, p, c.lines...)
		if o := p.End(c.exit); o.Verdict != c.want {
			t.Errorf("%s: %s, %q", name, o.Verdict, o.Reason)
		}
	}
}

func TestOpencodeCommand(t *testing.T) {
	r := codexRun("OPENAI_API_KEY=o", "OPENAI_BASE_URL=http://gw:1/openai/v1", "ANTHROPIC_API_KEY=a", "ANTHROPIC_BASE_URL=http://gw:1/anthropic")
	r.Order.Harness = workorder.Harness{Model: "claude-sonnet-4-5", Args: []string{"--variant", "high"}}
	h := &opencode{}
	c, err := h.Command(r)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"opencode", "run", "--format", "json", "--auto", "--title", "T-AAAAAAAA",
		"--model", "anthropic/claude-sonnet-4-5", "--variant", "high",
	}
	if d := cmp.Diff(want, c.Argv); d != "" {
		t.Error(d)
	}
	var config map[string]any
	if err := json.Unmarshal([]byte(envValue(c.Env, opencodeConfig)), &config); err != nil {
		t.Fatal(err)
	}
	wantConfig := map[string]any{
		"autoupdate": false, "share": "disabled", "enabled_providers": []any{"openai", "anthropic"}, "instructions": []any{"/tmp/notices/notice"},
		"provider": map[string]any{
			"openai": map[string]any{"options": map[string]any{"baseURL": "http://gw:1/openai/v1"}},
			"anthropic": map[string]any{
				"options": map[string]any{"baseURL": "http://gw:1/anthropic/v1"}, "models": map[string]any{"claude-sonnet-4-5": map[string]any{}},
			},
		},
	}
	if d := cmp.Diff(wantConfig, config); d != "" {
		t.Error(d)
	}
	if _, err := h.Resume(r); err == nil {
		t.Error("there is no session to go on with")
	}
	feed(t, h.Parser(r), `{"type":"step_start","sessionID":"ses_1"}`, `{"type":"step_start","sessionID":"-x"}`)
	if c, err = h.Resume(r); err != nil || !strings.Contains(strings.Join(c.Argv, " "), "--session ses_1 ") {
		t.Errorf("%q, %v", c.Argv, err)
	}
}

func TestOpencodeModels(t *testing.T) {
	for name, c := range map[string]struct {
		env        []string
		spec       workorder.Harness
		model, err string
	}{
		"of the one key":   {[]string{"ANTHROPIC_API_KEY=x"}, workorder.Harness{Model: "some-model"}, "anthropic/some-model", ""},
		"by its name":      {[]string{"ANTHROPIC_API_KEY=x", "OPENAI_API_KEY=x"}, workorder.Harness{Model: "claude-x"}, "anthropic/claude-x", ""},
		"the other":        {[]string{"ANTHROPIC_API_KEY=x", "OPENAI_API_KEY=x"}, workorder.Harness{Model: "gpt-x"}, "openai/gpt-x", ""},
		"Codex's key":      {[]string{"CODEX_API_KEY=x"}, workorder.Harness{Model: "openai/gpt-x"}, "openai/gpt-x", ""},
		"its choice":       {[]string{"OPENAI_API_KEY=x"}, workorder.Harness{}, "", ""},
		"another provider": {nil, workorder.Harness{Model: "ollama/qwen3"}, "ollama/qwen3", ""},
		"no key":           {nil, workorder.Harness{}, "", "OPENAI_API_KEY"},
		"another's key":    {[]string{"OPENAI_API_KEY=x"}, workorder.Harness{Model: "anthropic/x"}, "", "ANTHROPIC_API_KEY"},
		"our flag":         {[]string{"OPENAI_API_KEY=x"}, workorder.Harness{Args: []string{"--model=x"}}, "", "--model"},
		"our variable":     {[]string{"OPENAI_API_KEY=x", opencodeConfig + "={}"}, workorder.Harness{}, "", "opencode.json"},
		"command's flag":   {[]string{"OPENAI_API_KEY=x"}, workorder.Harness{Command: []string{"x"}}, "", "harness.command"},
	} {
		t.Run(name, func(t *testing.T) {
			r := codexRun(c.env...)
			r.Order.Harness = c.spec
			got, err := (&opencode{}).Command(r)
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Fatalf("got %v, want %q", err, c.err)
			}
			if argv := strings.Join(got.Argv, " "); c.model != "" && !strings.HasSuffix(argv, "--model "+c.model) || c.model == "" && strings.Contains(argv, "--model") {
				t.Errorf("argv %q", argv)
			}
			if strings.Contains(strings.Join(c.env, " "), "CODEX") && envValue(got.Env, "OPENAI_API_KEY") != "x" {
				t.Errorf("env %q", got.Env)
			}
		})
	}
}

// The CPU time of opencode alone is no sign of life.
func TestRestless(t *testing.T) {
	for _, n := range workorder.Harnesses() {
		h, err := For(n)
		if err != nil {
			t.Fatal(err)
		}
		want := ""
		if n == workorder.HarnessOpencode {
			want = "opencode"
		}
		got := ""
		if r, ok := h.(BusyIdler); ok {
			got = r.BusyProcess()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", n, got, want)
		}
	}
}
