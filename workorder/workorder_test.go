package workorder

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

func validOrder() Order {
	return Order{
		Version: Version, TaskID: "T-A1B2C3D4", Mode: ModeCreate, Project: "p", Task: "do it",
		Repo: "https://example.org/a.git", CloneURL: "https://example.org/a.git", Branch: "main",
		AttemptID: "0123456789abcdef", TargetBranch: "agent/T-A1B2C3D4-do-it", Harness: Harness{Name: "command", Command: []string{"true"}},
		TimeoutMinutes: 0.5, BoxSpec: BoxSpec{Network: NetworkPolicy{Mode: NetworkFull}},
	}
}

func TestOrderRoundTrip(t *testing.T) {
	t.Parallel()
	o := validOrder()
	o.Task = "$(touch /tmp/pwn) \"x\"\n-é\t\u2028 </script>"
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeOrder(b)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(*got, o) {
		t.Errorf("got %+v, want %+v", *got, o)
	}
}

// TestOlderOrder reads an order with every key, as the CLI wrote it before orders said how a box is held.
func TestOlderOrder(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("testdata/order-of-older-cli.json")
	if err != nil {
		t.Fatal(err)
	}
	o, err := DecodeOrder(b)
	if err != nil {
		t.Fatal(err)
	}
	if o.Isolation != "" || o.Image != "" || len(o.Services) == 0 || len(o.Validate) == 0 || o.Network.Mode == "" || o.PR == nil {
		t.Errorf("got %+v", o)
	}
	again, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var was, is any
	if err := errors.Join(json.Unmarshal(b, &was), json.Unmarshal(again, &is)); err != nil || !reflect.DeepEqual(was, is) {
		t.Errorf("%v: it is written as\n%s", err, again)
	}
}

func TestDecodeIsStrict(t *testing.T) {
	t.Parallel()
	b, err := json.Marshal(validOrder())
	if err != nil {
		t.Fatal(err)
	}
	for name, doc := range map[string]string{
		"unknown field": strings.Replace(string(b), `"task":`, `"tusk":1,"task":`, 1),
		"second doc":    string(b) + "{}",
		"truncated":     string(b[:len(b)/2]),
		"other version": strings.Replace(string(b), `"version":1`, `"version":2`, 1),
		"empty":         "",
	} {
		if _, err := DecodeOrder([]byte(doc)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestCheckReportsEveryMistake(t *testing.T) {
	t.Parallel()
	o := validOrder()
	o.TaskID, o.Task, o.TargetBranch, o.Harness.Name = "T-x", "a\x00b", "-x", ""
	o.Network.Mode, o.TimeoutMinutes, o.Mode, o.Isolation = "some", -1, "fix", "loose"
	o.SecretUses = map[string]SecretUse{"NOT_A_SECRET": "x"}
	o.Gateway = Gateway{Routes: []ModelRoute{{API: "other", BaseURL: "ftp://x", Keys: []string{"K"}}}, RequestsPerMinute: -1}
	budget := 0.0
	o.MaxBudgetUSD = &budget
	o.Services = []Service{{Name: "Redis", Image: ""}, {Name: "a", Image: "i", Volumes: []string{"/etc:/x"}}, {Name: "a", Image: "i"}}
	o.Env = map[string]string{"A-B": ""}
	o.SpentUSDByAttempt = map[string]float64{"0123456789abcdef": -1}
	err := o.Check()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"task_id", "NUL", "target_branch", "harness", "network", "timeout_minutes", "mode", `isolation "loose"`, "max_budget_usd",
		"spent_usd_by_attempt",
		"NOT_A_SECRET", `api "other"`, "ftp://x", "key K is not a secret", "requests_per_minute -1", `service name "Redis"`,
		"has no image", "/etc:/x", `service "a" is given twice`, "A-B",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not mention %q:\n%v", want, err)
		}
	}
}

func TestEnvelopeNeedsItsSecrets(t *testing.T) {
	t.Parallel()
	e := Envelope{Order: validOrder()}
	e.Order.SecretNames = []string{"API_KEY"}
	b, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := DecodeEnvelope(strings.NewReader(string(b))); err == nil || !strings.Contains(err.Error(), "API_KEY") {
		t.Errorf("lost secret: got %v", err)
	}
	e.Secrets = map[string]string{"API_KEY": "s"}
	if b, err = json.Marshal(e); err != nil {
		t.Fatal(err)
	}
	if _, err := DecodeEnvelope(strings.NewReader(string(b))); err != nil {
		t.Error(err)
	}
}

func TestBranch(t *testing.T) {
	t.Parallel()
	for task, want := range map[string]string{
		"Add pagination to the users API endpoint": "agent/T-A1B2C3D4-add-pagination-to-the",
		"日本語のみ":                                    "agent/T-A1B2C3D4",
		"  --fix: it's (now)":                      "agent/T-A1B2C3D4-fix-it-s-now",
		strings.Repeat("x", 100):                   "agent/T-A1B2C3D4-" + strings.Repeat("x", maxSlug),
		"naïve":                                    "agent/T-A1B2C3D4-na-ve",
		"a" + strings.Repeat("/", 9):               "agent/T-A1B2C3D4-a",
	} {
		got := Branch("T-A1B2C3D4", task)
		if got != want || !ValidRefName(got) {
			t.Errorf("Branch(%q) = %q, want %q", task, got, want)
		}
	}
}

func TestTaskIDsDiffer(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 1000 {
		id := NewTaskID()
		if !ValidTaskID(id) || seen[id] {
			t.Fatalf("id %q is invalid or comes twice", id)
		}
		seen[id] = true
	}
}

func TestRefNames(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"main", "feature/x", "agent/T-A1B2C3D4-x", "é", "a.b"} {
		if !ValidRefName(s) {
			t.Errorf("%q refused", s)
		}
	}
	for _, s := range []string{
		"", "-x", "/x", "x/", "a..b", "a//b", "a b", "a~b", "a^b", "a:b", "a\\b", "a*", "a.lock", ".a", "a/.b",
		"a.", "@", "a@{b", "a\x7f", "a[b",
	} {
		if ValidRefName(s) {
			t.Errorf("%q accepted", s)
		}
	}
}

// The parts of a stop have to fit into what the engine grants.
func TestShutdownBudget(t *testing.T) {
	t.Parallel()
	for name, parts := range map[string][]time.Duration{
		"a landing that cannot push, then the engine": {AgentGrace, LandGrace, BundleGrace, ReleaseGrace, EngineGrace, ExitReserve},
		"a boot that hangs, then rescue":              {AgentGrace, LandGrace, BundleGrace, BootReserve, RescueGrace, ExitReserve},
	} {
		var sum time.Duration
		for _, p := range parts {
			sum += p
		}
		if sum > StopGrace {
			t.Errorf("%s: %s make %s, more than the stop grace %s", name, parts, sum, StopGrace)
		}
	}
	if s := ShutdownIn(0); s.Land != LandGrace || s.Bundle != BundleGrace {
		t.Errorf("the least stop is divided as %+v", s)
	}
	for _, grace := range []time.Duration{StopGrace, LongStop} {
		s := ShutdownIn(grace)
		for name, sum := range map[string]time.Duration{
			"a landing that cannot push, then the engine": AgentGrace + s.Land + s.Bundle + ReleaseGrace + EngineGrace + ExitReserve,
			"a boot that hangs, then rescue":              s.Boot + RescueGrace + ExitReserve,
			"rescue alone":                                s.Rescue + ExitReserve,
		} {
			if sum > grace {
				t.Errorf("%s: %+v make %s, more than %s", name, s, sum, grace)
			}
		}
	}
}

func TestEveryStatusHasAnExitCode(t *testing.T) {
	t.Parallel()
	want := map[Status]int{
		StatusSuccess: 0, StatusNoChanges: 0, StatusPlanned: 0, StatusFailed: 10, StatusInterrupted: 11, StatusParked: 14,
		StatusTimeout: 12, StatusBudgetExceeded: 13, StatusError: 1, StatusLost: 5, StatusUnproven: 15,
	}
	for _, s := range Statuses() {
		if got := ExitCode(s, EndedByAgent); got != want[s] {
			t.Errorf("ExitCode(%s, agent) = %d, want %d", s, got, want[s])
		}
	}
	for by, code := range map[EndedBy]int{EndedByGit: 7, EndedByOrder: 6, EndedByBox: 5, EndedByHost: 5} {
		if got := ExitCode(StatusError, by); got != code {
			t.Errorf("ExitCode(error, %s) = %d, want %d", by, got, code)
		}
	}
	if got := ExitCode(StatusFailed, EndedByServices); got != 5 {
		t.Errorf("ExitCode(failed, services) = %d, want 5", got)
	}
}

func TestIfExistsIsChecked(t *testing.T) {
	t.Parallel()
	for exists, good := range map[IfExists]bool{"": true, IfExistsRefuse: true, IfExistsContinue: true, IfExistsReport: true, "perhaps": false} {
		o := validOrder()
		o.IfExists = exists
		if err := o.Check(); (err == nil) != good {
			t.Errorf("%q: %v", exists, err)
		}
	}
	o := validOrder()
	o.IfExists, o.Mode, o.Rebase = IfExistsReport, ModeRebase, &Rebase{}
	if o.Check() == nil {
		t.Error("a rebase is told in place of done")
	}
}

func TestResultListsAreNeverNull(t *testing.T) {
	t.Parallel()
	b, err := (&Result{Status: StatusSuccess}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"commits", "steps", "validation", "evidence", "services", "warnings"} {
		if _, ok := m[k].([]any); !ok {
			t.Errorf("%s is %v, want a list", k, m[k])
		}
	}
	if m["usage"].(map[string]any)["cost_usd"] != nil {
		t.Error("an unknown cost is not null")
	}
}

func TestStepNamesOfOlderVersions(t *testing.T) {
	t.Parallel()
	for old, want := range map[string]StepName{
		"box": StepPrepare, "ground": StepBaseline, "answers": StepReply, "setup": StepSetup, "of a newer one": "of a newer one",
	} {
		r, err := DecodeResult([]byte(`{"version":1,"steps":[{"name":"` + old + `","status":"done"}]}`))
		if err != nil || len(r.Steps) != 1 || r.Step(want) == nil {
			t.Errorf("%s: result %+v, %v", old, r, err)
		}
		e, err := DecodeEvent([]byte(`{"seq":1,"type":"step.finished","name":"` + old + `"}`))
		if err != nil || e.Step() != want || e.Name != string(want) {
			t.Errorf("%s: event %+v, %v", old, e, err)
		}
	}
	if e, err := DecodeEvent([]byte(`{"seq":1,"type":"validate.finished","name":"box"}`)); err != nil || e.Name != "box" {
		t.Errorf("a check named box: %+v, %v", e, err)
	}
}

func FuzzDecodeEnvelope(f *testing.F) {
	b, err := json.Marshal(Envelope{Order: validOrder()})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"order":{"version":1}}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		e, err := DecodeEnvelope(strings.NewReader(string(doc)))
		if err == nil && e.Order.Check() != nil {
			t.Errorf("accepted an order that does not pass its own check: %q", doc)
		}
	})
}

// A state that was written can be read again, whatever was added to the task.
func TestStateStaysReadable(t *testing.T) {
	t.Parallel()
	s := State{TaskID: "T-A1B2C3D4", TargetBranch: "agent/T-A1B2C3D4", Task: "x"}
	for range MaxAdded + 10 {
		s.Added = append(s.Added, strings.Repeat("y", MaxTask/20))
	}
	s.Added = append(s.Added, "the last")
	s.Attempts = make([]Attempt, MaxAttempts+5)
	b, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeState(b, s.TaskID)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(got.Added); n == 0 || n > MaxAdded || got.Added[n-1] != "the last" || len(got.Attempts) != MaxAttempts {
		t.Errorf("%d additions, %d attempts", n, len(got.Attempts))
	}
	for name, change := range map[string]func(*State){
		"another task":       func(s *State) { s.TaskID = "T-00000000" },
		"another branch":     func(s *State) { s.TargetBranch = "main" },
		"a longer task id":   func(s *State) { s.TargetBranch = "agent/T-A1B2C3D45" },
		"a base of its own":  func(s *State) { s.BaseBranch = "-x" },
		"NUL in the task":    func(s *State) { s.Task = "a\x00b" },
		"NUL in an addition": func(s *State) { s.Added = []string{"a\x00b"} },
	} {
		bad := State{TaskID: "T-A1B2C3D4", TargetBranch: "agent/T-A1B2C3D4", Task: "x"}
		change(&bad)
		if b, err = bad.Encode(); err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeState(b, "T-A1B2C3D4"); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestLeaveOut: an order without the secrets that turned out not to be there is whole.
func TestLeaveOut(t *testing.T) {
	t.Parallel()
	spec := func() BoxSpec {
		return BoxSpec{
			Network:     NetworkPolicy{Mode: NetworkFull},
			SecretNames: []string{"ANTHROPIC_API_KEY", "K", "OPENAI_API_KEY", "S"},
			SecretUses:  map[string]SecretUse{"ANTHROPIC_API_KEY": SecretForGateway, "K": SecretForGateway, "OPENAI_API_KEY": SecretForGateway},
			Gateway: Gateway{Routes: []ModelRoute{
				{API: APIAnthropic, BaseURL: APIAnthropic.DefaultBaseURL(), Keys: []string{"ANTHROPIC_API_KEY"}},
				{API: APIOpenAI, BaseURL: "http://own.example", Keys: []string{"K", "OPENAI_API_KEY"}},
			}},
		}
	}
	for _, c := range []struct {
		gone   []string
		routes string
	}{
		{nil, "anthropic[ANTHROPIC_API_KEY] openai[K OPENAI_API_KEY]"},
		{[]string{"S"}, "anthropic[ANTHROPIC_API_KEY] openai[K OPENAI_API_KEY]"},
		{[]string{"ANTHROPIC_API_KEY", "K"}, "openai[OPENAI_API_KEY]"},
		{[]string{"K", "OPENAI_API_KEY"}, "anthropic[ANTHROPIC_API_KEY] openai[]"},
	} {
		s, was := spec(), spec()
		given := s
		s.LeaveOut(c.gone)
		var routes []string
		for _, r := range s.Gateway.Routes {
			routes = append(routes, fmt.Sprintf("%s%v", r.API, r.Keys))
		}
		var bad problems
		s.checkSpec(&bad)
		if got := strings.Join(routes, " "); got != c.routes || len(bad.errs) > 0 || len(s.SecretNames) != len(was.SecretNames)-len(c.gone) {
			t.Errorf("without %v: %s, secrets %v, %v", c.gone, got, s.SecretNames, bad.errs)
		}
		if !reflect.DeepEqual(was, given) {
			t.Errorf("without %v: what was given has changed: %+v", c.gone, given)
		}
	}
}
