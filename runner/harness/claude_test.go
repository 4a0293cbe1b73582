package harness

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

var update = flag.Bool("update", false, "write the golden files")

// replay feeds a recorded stream to a parser and prints all that comes out.
func replay(t *testing.T, p Parser, path string, e Exit) string {
	t.Helper()
	stream, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for line := range bytes.Lines(stream) {
		events, ok := p.Line(bytes.TrimSpace(line))
		if !ok {
			fmt.Fprintf(&out, "not understood: %.80s\n", line)
		}
		for _, e := range events {
			b, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			var m map[string]any
			if err := json.Unmarshal(b, &m); err != nil {
				t.Fatal(err)
			}
			delete(m, "seq")
			delete(m, "time")
			if b, err = json.Marshal(m); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&out, "%s\n", b)
		}
	}
	if h := p.StopReason(); h != "" {
		fmt.Fprintf(&out, "halt: %s\n", h)
	}
	b, err := json.MarshalIndent(p.End(e), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&out, "exit %+v\n%s\n", e, b)
	return out.String()
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got):\n%s", path, d)
	}
}

// recorded are streams of the real CLI with the exit they had.
var recorded = map[string]Exit{
	"api_400": {Code: 1}, "api_401_retries": {Code: 143, Signal: "SIGTERM"}, "api_529_recovered": {},
	"background_two_results": {}, "budget": {Code: 1}, "commit": {}, "hooks": {}, "max_turns": {Code: 1},
	"no_key": {Code: 1}, "partial_messages": {}, "permission_denied": {}, "resume_cumulative": {},
	"limit_five_hour": {Code: 1}, "limit_near": {}, "limit_weekly": {Code: 1}, "rate_limit_api_key": {Code: 1}, "rate_limit_recovered": {},
	"sigint": {}, "sigterm": {Code: 143}, "subagent": {}, "unknown_model": {},
}

func TestClaudeRecordings(t *testing.T) {
	files, err := filepath.Glob("testdata/*.jsonl")
	if err != nil || len(files) != len(recorded) {
		t.Fatalf("%d recordings, %d expected (%v)", len(files), len(recorded), err)
	}
	for name, exit := range recorded {
		t.Run(name, func(t *testing.T) {
			got := replay(t, &claudeParser{}, "testdata/"+name+".jsonl", exit)
			golden(t, "testdata/"+name+".golden", got)
		})
	}
}

// TestClaudeVerdicts states what the golden files must say, so that updating
// them cannot turn a failure into a success unseen.
func TestClaudeVerdicts(t *testing.T) {
	for name, want := range map[string]struct {
		verdict Verdict
		code    workorder.ReasonCode
		reason  string  // of its own words, or how it ended
		cost    float64 // -1: unknown
		turns   int
	}{
		"api_400":                {Failed, "", "Credit balance is too low", 0, 1},
		"api_401_retries":        {Failed, workorder.ReasonModelKey, "401", -1, 0},
		"api_529_recovered":      {Succeeded, "", "", 0.0008, 1},
		"background_two_results": {Succeeded, "", "", 0.0024, 3},
		"budget":                 {Budget, "", "maximum budget", 0.015, 1},
		"commit":                 {Succeeded, "", "", 0.01876, 3},
		"max_turns":              {Failed, "", "maximum number of turns", 0.015, 2},
		"no_key":                 {Failed, "", "Not logged in", 0, 1},
		"permission_denied":      {Succeeded, "", "", 0.01876, 3},
		"resume_cumulative":      {Succeeded, "", "", 0.0008, 1},
		"sigint":                 {Failed, "", "", 0.005, 3},
		"sigterm":                {Failed, "", "SIGTERM", -1, 0},
		"subagent":               {Succeeded, "", "", 0.4124, 2},
		"limit_five_hour":        {Limited, "", "You've hit your 5-hour limit", 0.0025, 2},
		"limit_near":             {Succeeded, "", "", 0.0025, 1},
		"limit_weekly":           {Limited, "", "You've hit your weekly limit", 0, 1},
		"rate_limit_api_key":     {Failed, "", "429", 0.005, 2},
		"rate_limit_recovered":   {Succeeded, "", "", 0.0025, 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := &claudeParser{}
			replay(t, p, "testdata/"+name+".jsonl", recorded[name])
			o := p.End(recorded[name])
			cost := -1.0
			if o.Usage.CostUSD != nil {
				cost = *o.Usage.CostUSD
			}
			if o.Verdict != want.verdict || o.Code != want.code || !strings.Contains(o.Reason, want.reason) || o.Turns != want.turns || cost-want.cost > 1e-9 || want.cost-cost > 1e-9 {
				t.Errorf("got %s, %q, $%v, %d turns; want %+v", o.Verdict, o.Reason, cost, o.Turns, want)
			}
			if (o.Verdict == Succeeded) != (o.Reason == "") {
				t.Errorf("verdict %s has reason %q", o.Verdict, o.Reason)
			}
		})
	}
}

func TestClaudeCountsSubAgents(t *testing.T) {
	p := &claudeParser{}
	replay(t, p, "testdata/subagent.jsonl", Exit{})
	if u := p.usage(); u.InputTokens != 102000 || u.OutputTokens != 220 {
		t.Errorf("got %+v", u)
	}
}

func TestClaudeDenials(t *testing.T) {
	p := &claudeParser{}
	replay(t, p, "testdata/permission_denied.jsonl", Exit{})
	if o := p.End(Exit{}); o.Denials != 2 {
		t.Errorf("%d denials, want 2", o.Denials)
	}
}

// TestClaudeOlderVersions: 2.1.197 has no terminal_reason, no costBasis and no
// usage since the last result.
func TestClaudeOlderVersions(t *testing.T) {
	p := &claudeParser{}
	for _, line := range []string{
		`{"type":"result","subtype":"success","is_error":false,"num_turns":1,"total_cost_usd":0.1,"session_id":"s","result":"a","modelUsage":{"m":{"inputTokens":1}}}`,
		`{"type":"result","subtype":"success","is_error":false,"num_turns":2,"total_cost_usd":0.3,"session_id":"s","result":"b","modelUsage":{"m":{"inputTokens":5}}}`,
	} {
		if _, ok := p.Line([]byte(line)); !ok {
			t.Fatal("not understood")
		}
	}
	o := p.End(Exit{})
	if *o.Usage.CostUSD != 0.3 || o.Usage.InputTokens != 5 || o.Turns != 3 || o.Final != "b" {
		t.Errorf("got %+v", o)
	}
}

func TestClaudeSuccessNeedsACleanExit(t *testing.T) {
	for _, e := range []Exit{{Code: 3}, {Code: 139, Signal: "SIGSEGV"}} {
		p := &claudeParser{}
		replay(t, p, "testdata/commit.jsonl", e)
		if o := p.End(e); o.Verdict != Failed {
			t.Errorf("%+v: %s", e, o.Verdict)
		}
	}
	if o := (&claudeParser{}).End(Exit{}); o.Verdict != Failed {
		t.Error("exit 0 without a result is no success")
	}
	if o := (&claudeParser{}).End(Exit{Code: 1, Stderr: "boo\n--dangerously-skip-permissions cannot be used with root\n"}); !strings.Contains(o.Reason, "root") {
		t.Errorf("the reason is hidden: %q", o.Reason)
	}
}

func claudeRun(env ...string) Input {
	return Input{Order: &workorder.Order{TaskID: "T-AAAAAAAA", Mode: workorder.ModeCreate}, SessionID: "u-u-i-d", Home: "/home/sandbox", Env: env}
}

func TestClaudeCommand(t *testing.T) {
	r := claudeRun("ANTHROPIC_API_KEY=sk", "ANTHROPIC_BASE_URL=http://gw:1", "CLAUDE_CONFIG_DIR=/workspace", "CLAUDE_CODE_MAX_RETRIES=2")
	budget := 2.5
	r.Order.MaxBudgetUSD = &budget
	r.Order.Harness = workorder.Harness{Model: "opus", Args: []string{"--max-turns", "3"}}
	c, err := claude{}.Command(r)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"claude", "-p", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions",
		"--session-id", "u-u-i-d", "--model", "opus", "--max-budget-usd", "2.5",
		"--settings", `{"env":{"ANTHROPIC_BASE_URL":"http://gw:1"}}`, "--max-turns", "3",
	}
	if d := cmp.Diff(want, c.Argv); d != "" {
		t.Error(d)
	}
	wantEnv := []string{"CLAUDE_CONFIG_DIR=/home/sandbox/.claude", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1"}
	if d := cmp.Diff(wantEnv, c.Env); d != "" {
		t.Error(d)
	}
	if slices.ContainsFunc(c.Argv, func(s string) bool { return strings.Contains(s, "sk") && !strings.Contains(s, "skip") }) {
		t.Error("the key is in the argument list")
	}
}

func TestClaudeCommandErrors(t *testing.T) {
	for name, c := range map[string]struct {
		env  []string
		spec workorder.Harness
		want string // empty: no error
	}{
		"no key":         {nil, workorder.Harness{}, "ANTHROPIC_API_KEY"},
		"empty key":      {[]string{"ANTHROPIC_API_KEY="}, workorder.Harness{}, "ANTHROPIC_API_KEY"},
		"oauth":          {[]string{"CLAUDE_CODE_OAUTH_TOKEN=t"}, workorder.Harness{}, ""},
		"bedrock":        {[]string{"CLAUDE_CODE_USE_BEDROCK=1"}, workorder.Harness{}, ""},
		"own settings":   {nil, workorder.Harness{Args: []string{"--settings", "{}"}}, ""},
		"our flag":       {[]string{"ANTHROPIC_API_KEY=x"}, workorder.Harness{Args: []string{"--output-format=text"}}, "--output-format"},
		"command's flag": {[]string{"ANTHROPIC_API_KEY=x"}, workorder.Harness{Command: []string{"x"}}, "harness.command"},
	} {
		t.Run(name, func(t *testing.T) {
			r := claudeRun(c.env...)
			r.Order.Harness = c.spec
			_, err := claude{}.Command(r)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestClaudeTranscriptCost(t *testing.T) {
	type cost struct {
		usd           float64
		ofSession, ok bool
	}
	for line, want := range map[string]cost{
		`{"type":"cost-state","totalCostUSD":0.25}`:                                     {0.25, true, true},
		`{"type":"attachment","attachment":{"type":"budget_usd","used":0.5,"total":5}}`: {0.5, false, true},
		`{"type":"attachment","attachment":{"type":"budget_usd","used":-1}}`:            {},
		`{"type":"attachment","attachment":{"type":"date","used":1}}`:                   {},
		`{"type":"cost-state","totalCostUSD":-1}`:                                       {},
		`{"type":"cost-state"}`:                                                         {},
		`{"type":"user","totalCostUSD":3}`:                                              {},
		`nonsense`:                                                                      {},
	} {
		usd, ofSession, ok := claude{}.Cost([]byte(line))
		if got := (cost{usd, ofSession, ok}); got != want {
			t.Errorf("%s: %v, want %v", line, got, want)
		}
	}
}

// TestClaudeAfterAWrongKey: after we stopped it, the CLI writes a result of its
// own, with notes for its developers. Who follows the run has read the reason by then.
func TestClaudeAfterAWrongKey(t *testing.T) {
	p := &claudeParser{}
	var errs []string
	for _, line := range []string{
		`{"type":"system","subtype":"api_retry","attempt":1,"max_retries":8,"error_status":401,"error":"authentication_failed","session_id":"s"}`,
		`{"type":"result","subtype":"error_during_execution","is_error":true,"session_id":"s","errors":["[ede_diagnostic] result_type=user"]}`,
	} {
		events, _ := p.Line([]byte(line))
		for _, e := range events {
			if e.Type == workorder.EventAgentError {
				errs = append(errs, e.Text)
			}
		}
	}
	if len(errs) != 1 || p.End(Exit{}).Code != workorder.ReasonModelKey || p.End(Exit{}).Reason != errs[0] {
		t.Errorf("errors %q, reason %q", errs, p.End(Exit{}).Reason)
	}
}

func TestNetworksAreToldApart(t *testing.T) {
	t.Parallel()
	if networkBriefing(workorder.NetworkPolicy{Mode: workorder.NetworkNone}) == networkBriefing(workorder.NetworkPolicy{Mode: workorder.NetworkRestricted}) {
		t.Error("a restricted network is described as none")
	}
	if told := networkBriefing(workorder.NetworkPolicy{Mode: workorder.NetworkRestricted, Learn: true}); told != "" {
		t.Errorf("a network that is only watched is described: %q", told)
	}
}

// An agent knows what network it has, unless the project speaks to it itself.
func TestClaudeKnowsItsNetwork(t *testing.T) {
	for _, mode := range []workorder.NetworkMode{workorder.NetworkFull, workorder.NetworkRestricted, workorder.NetworkNone} {
		r := claudeRun("ANTHROPIC_API_KEY=sk")
		r.Order.Network.Mode = mode
		c, err := claude{}.Command(r)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.Index(c.Argv, "--append-system-prompt")
		told := ""
		if i >= 0 {
			told = c.Argv[i+1]
		}
		if (told != "") != (mode != workorder.NetworkFull) || told != networkBriefing(workorder.NetworkPolicy{Mode: mode}) {
			t.Errorf("%s: %q", mode, c.Argv)
		}
		r.Order.Harness.Args = []string{"--append-system-prompt", "mine"}
		if c, err := (claude{}).Command(r); err != nil || strings.Count(strings.Join(c.Argv, " "), "--append-system-prompt") != 1 {
			t.Errorf("%s: %v %q", mode, err, c.Argv)
		}
	}
}
