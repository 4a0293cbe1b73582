package runner

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/runner/harness"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// fakeMeter is a meter that a test moves by hand.
type fakeMeter struct {
	mu       sync.Mutex
	route    string // Unreachable
	looks    int    // at it: each finds one failure more
	earlier  bool   // the only failure was before the agent
	used     workorder.Usage
	requests int64
	budget   *float64
	over     chan struct{}
	limit    *workorder.ModelLimit
	open     float64 // by calls that go on behind the agent
}

func (m *fakeMeter) Usage() (workorder.Usage, int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used, m.requests
}

func (m *fakeMeter) Settle(context.Context) (workorder.Usage, int64) {
	u, n := m.Usage()
	u.ReservedUSD += m.open
	return u, n
}

func (m *fakeMeter) SetBudget(usd *float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.budget = usd
}

func (m *fakeMeter) Limit() *workorder.ModelLimit {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.limit
}

func (m *fakeMeter) Unreachable() (why string, failures int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.looks++; m.earlier {
		return m.route, 1
	}
	return m.route, m.looks
}

func (m *fakeMeter) OverBudget() <-chan struct{} { return m.over }

func (m *fakeMeter) set(requests int64, u workorder.Usage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests, m.used = requests, u
}

// whileWorking runs the agent and calls then when it has begun.
func whileWorking(t *testing.T, b *box, then func()) AgentOutcome {
	t.Helper()
	var once sync.WaitGroup
	once.Go(func() {
		waitFor(t, "the agent's first word", func() bool { return exists(b.Workspace + "/begun") })
		then()
	})
	out := Agent(t.Context(), b.Config)
	once.Wait()
	return out
}

func usageOf(in, out int64, usd float64) workorder.Usage {
	return workorder.Usage{InputTokens: in, OutputTokens: out, CostUSD: &usd, CostSource: workorder.CostByGateway}
}

const (
	untilGo    = `touch begun; while ! [ -e ../go ]; do sleep 0.01; done; `
	saysItself = `echo '{"type":"agent.usage","usage":{"cost_usd":0.5,"input_tokens":10,"output_tokens":20}}'; `
)

func TestUsageOnTheWire(t *testing.T) {
	t.Parallel()
	unpriced := workorder.Usage{InputTokens: 1100, OutputTokens: 220}
	for name, c := range map[string]struct {
		script string
		after  workorder.Usage
		asked  int64
		want   workorder.Usage
		usd    float64
	}{
		"silent agent":        {"", usageOf(1100, 220, 0.75), 3, usageOf(100, 20, 0), 0.5},
		"agent that errs":     {saysItself, usageOf(1100, 220, 0.85), 3, usageOf(100, 20, 0), 0.6},
		"agent confirmed":     {saysItself, usageOf(1010, 220, 0.75), 3, workorder.Usage{InputTokens: 10, OutputTokens: 20, CostSource: workorder.CostByHarness}, 0.5},
		"no known price":      {saysItself, unpriced, 3, workorder.Usage{InputTokens: 100, OutputTokens: 20, CostSource: workorder.CostByHarness}, 0.5},
		"nothing asked":       {saysItself, usageOf(1000, 200, 0.25), 2, workorder.Usage{InputTokens: 10, OutputTokens: 20, CostSource: workorder.CostByHarness}, 0.5},
		"the cost is unknown": {"", unpriced, 3, workorder.Usage{InputTokens: 100, OutputTokens: 20}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, untilGo+c.script)
			m := &fakeMeter{over: make(chan struct{}), requests: 2, used: usageOf(1000, 200, 0.25)} // by setup
			b.Meter, b.Order.MaxBudgetUSD = m, new(5.0)
			out := whileWorking(t, b, func() {
				m.set(c.asked, c.after)
				touch(t, b.Workspace+"/../go")
			})
			check(t, out, workorder.StatusSuccess, workorder.EndedByAgent, "")
			got, want := out.Usage, c.want
			if (got.CostUSD == nil) != (c.usd < 0) || got.CostUSD != nil && (*got.CostUSD-c.usd > 1e-9 || c.usd-*got.CostUSD > 1e-9) {
				t.Errorf("cost %+v, want %v", got.CostUSD, c.usd)
			}
			if got.CostUSD = nil; got.CostUSD == nil {
				want.CostUSD = nil
			}
			if got != want {
				t.Errorf("usage %+v, want %+v", got, want)
			}
			if m.budget == nil || *m.budget != 5 {
				t.Errorf("the meter's budget is %v", m.budget)
			}
			if warned := strings.Contains(strings.Join(out.Warnings, " "), "max_budget_usd"); warned != (c.usd < 0) {
				t.Errorf("warnings %q", out.Warnings)
			}
		})
	}
}

func TestRefusedForTheBudget(t *testing.T) {
	t.Parallel()
	t.Run("ends by itself", func(t *testing.T) {
		t.Parallel()
		b := newBox(t, untilGo+`echo my last word; exit 1`)
		m := &fakeMeter{over: make(chan struct{})}
		b.Meter, b.Order.MaxBudgetUSD = m, new(0.5)
		out := whileWorking(t, b, func() {
			m.set(4, usageOf(1, 1, 0.5))
			close(m.over)
			touch(t, b.Workspace+"/../go")
		})
		check(t, out, workorder.StatusBudgetExceeded, workorder.EndedByBudget, workorder.ReasonBudget, overspent(0.5, 0.5, 0))
		if got := b.of(workorder.EventAgentOutput); len(got) != 1 || got[0].Text != "my last word" {
			t.Errorf("its last word: %+v", got)
		}
	})
	t.Run("goes on", func(t *testing.T) {
		t.Parallel()
		b := newBox(t, untilGo)
		lim := b.limits()
		lim.lastWord = time.Millisecond
		b.bounds = &lim
		m := &fakeMeter{over: make(chan struct{})}
		b.Meter, b.Order.MaxBudgetUSD = m, new(0.5)
		out := whileWorking(t, b, func() { close(m.over) }) // setup spent it
		check(t, out, workorder.StatusBudgetExceeded, workorder.EndedByBudget, workorder.ReasonBudget, overspent(0, 0.5, 0))
		if out.Reasons.String() == overspent(0, 0.5, 0) {
			t.Errorf("it does not tell who spent the rest: %q", out.Reasons)
		}
	})
}

// TestWireIsWatched: what the wire tells is reported while the agent works, and ends it.
func TestWireIsWatched(t *testing.T) {
	t.Parallel()
	b := newBox(t, untilGo)
	m := &fakeMeter{over: make(chan struct{})}
	b.Meter, b.Order.MaxBudgetUSD = m, new(0.5)
	out := whileWorking(t, b, func() {
		m.set(1, usageOf(10, 5, 0.45))
		waitFor(t, "a usage event", func() bool { return len(b.of(workorder.EventAgentUsage)) > 0 })
		m.set(2, usageOf(20, 5, 0.51))
	})
	check(t, out, workorder.StatusBudgetExceeded, workorder.EndedByBudget, workorder.ReasonBudget, "$0.51")
	u := b.of(workorder.EventAgentUsage)[0].Usage
	if u.InputTokens != 10 || *u.CostUSD != 0.45 || u.CostSource != workorder.CostByGateway {
		t.Errorf("event %+v", u)
	}
	if n := b.of(workorder.EventNotice); len(n) != 1 {
		t.Errorf("it received %+v", n)
	}
}

// TestUnreachableModel: the agent is stopped at once, with the host and the cause; one that is done does not mind.
func TestUnreachableModel(t *testing.T) {
	t.Parallel()
	const why = "the model's server models.invalid cannot be reached: no such host"
	b := newBox(t, untilGo)
	m := &fakeMeter{over: make(chan struct{})}
	b.Meter = m
	out := whileWorking(t, b, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.route = why
	})
	check(t, out, workorder.StatusFailed, workorder.EndedByAgent, workorder.ReasonRoute, why)
	setups := newBox(t, "exit 1")
	setups.Meter = &fakeMeter{over: make(chan struct{}), route: why, earlier: true}
	if out := Agent(t.Context(), setups.Config); out.Reasons.Code() != workorder.ReasonAgent {
		t.Errorf("a failure of setup: %+v", out.Reasons)
	}
	for _, c := range []struct {
		script string
		code   workorder.ReasonCode
	}{{"exit 0", ""}, {"exit 1", workorder.ReasonRoute}, {"kill -KILL $$", workorder.ReasonAgent}, {"exit 127", workorder.ReasonNoAgent}} {
		b := newBox(t, c.script)
		b.Meter = &fakeMeter{over: make(chan struct{}), route: why}
		if out := Agent(t.Context(), b.Config); out.Reasons.Code() != c.code {
			t.Errorf("%s: %+v", c.script, out.Reasons)
		}
	}
}

func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Error(err)
	}
}

// TestResultAndEventsAgree: a call that hangs is still open when its agent has been stopped, and what it may cost is known
// only then. The last event of the usage and the outcome have the same numbers.
func TestResultAndEventsAgree(t *testing.T) {
	t.Parallel()
	b := newBox(t, "touch begun; sleep 3600")
	b.Hang = time.Second
	m := &fakeMeter{over: make(chan struct{}), open: 2.5}
	b.Meter = m
	out := whileWorking(t, b, func() { m.set(1, usageOf(100, 20, 0.5)) })
	check(t, out, workorder.StatusFailed, workorder.EndedByHang, workorder.ReasonHang)
	events := b.of(workorder.EventAgentUsage)
	if len(events) == 0 {
		t.Fatal("no event tells of the usage")
	}
	last := *events[len(events)-1].Usage
	if out.Usage.ReservedUSD != 2.5 || out.Usage.CostUSD == nil || *out.Usage.CostUSD != 0.5 {
		t.Errorf("outcome %+v", out.Usage)
	}
	if *last.CostUSD != *out.Usage.CostUSD || last.ReservedUSD != out.Usage.ReservedUSD || !sameTokens(last, out.Usage) {
		t.Errorf("the events end with %+v, the outcome has %+v", last, out.Usage)
	}
}

// TestProviderLimit: whatever an agent makes of a limit of its provider's, the gateway sees it, and the task is parked until then.
func TestProviderLimit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script string
		wait   time.Duration // that the provider asks for
		status workorder.Status
		by     workorder.EndedBy
		reason workorder.ReasonCode
	}{
		"an agent that waits without a word":   {"sleep 3600", time.Hour, workorder.StatusParked, workorder.EndedByLimit, workorder.ReasonProviderLimit},
		"one that gives up":                    {"while ! [ -e ../go ]; do sleep 0.01; done; exit 1", time.Hour, workorder.StatusParked, workorder.EndedByLimit, workorder.ReasonProviderLimit},
		"one that gives up at a short one":     {"while ! [ -e ../go ]; do sleep 0.01; done; exit 1", 50 * time.Second, workorder.StatusFailed, workorder.EndedByAgent, workorder.ReasonAgent},
		"one that crashes":                     {"while ! [ -e ../go ]; do sleep 0.01; done; kill -SEGV $$", time.Hour, workorder.StatusFailed, workorder.EndedByAgent, workorder.ReasonAgent},
		"one that rides a short one out":       {"while ! [ -e ../go ]; do sleep 0.01; done", 50 * time.Second, workorder.StatusSuccess, workorder.EndedByAgent, ""},
		"one that was done without more calls": {"while ! [ -e ../go ]; do sleep 0.01; done", time.Hour, workorder.StatusSuccess, workorder.EndedByAgent, ""},
		"an implausible limit":                 {"while ! [ -e ../go ]; do sleep 0.01; done; exit 1", 365 * 24 * time.Hour, workorder.StatusFailed, workorder.EndedByAgent, workorder.ReasonAgent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, "touch begun; "+c.script)
			lim := b.limits()
			lim.limitWord = time.Millisecond
			if c.status == workorder.StatusSuccess || c.script != "sleep 3600" {
				lim.limitWord = time.Hour // it ends by itself
			}
			b.bounds = &lim
			m := &fakeMeter{over: make(chan struct{})}
			b.Meter = m
			now := time.Now()
			out := whileWorking(t, b, func() {
				m.mu.Lock()
				m.limit = &workorder.ModelLimit{Since: now, At: now, Until: now.Add(c.wait), Text: "HTTP status 429"}
				m.mu.Unlock()
				touch(t, b.Workspace+"/../go")
			})
			check(t, out, c.status, c.by, c.reason)
			if parked := c.status == workorder.StatusParked; parked != (out.ResumeAt != nil) {
				t.Fatalf("resumes at %v", out.ResumeAt)
			} else if parked && (out.ResumeAt.Before(now.Add(c.wait-time.Second)) || out.ResumeAt.After(now.Add(c.wait+time.Second))) {
				t.Errorf("resumes at %v, the limit ends at %v", out.ResumeAt, now.Add(c.wait))
			}
		})
	}
}

// TestStranded is when an agent is not left to itself any more.
func TestStranded(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		limit *workorder.ModelLimit
		want  bool
	}{
		"none":                       {nil, false},
		"just now":                   {&workorder.ModelLimit{Since: now, At: now, Until: now.Add(time.Hour)}, false},
		"for a while":                {&workorder.ModelLimit{Since: now.Add(-limitWord), At: now, Until: now.Add(time.Hour)}, true},
		"of a side call":             {&workorder.ModelLimit{Since: now.Add(-time.Hour), At: now, Until: now.Add(time.Hour), Side: true}, false},
		"many short ones":            {&workorder.ModelLimit{Since: now.Add(-time.Hour), At: now, Until: now.Add(rideOut)}, false},
		"a long one that ends soon":  {&workorder.ModelLimit{Since: now.Add(-time.Hour), At: now.Add(-time.Hour), Until: now.Add(time.Second)}, true},
		"a long one that is over":    {&workorder.ModelLimit{Since: now.Add(-time.Hour), At: now.Add(-time.Hour), Until: now.Add(-time.Second)}, false},
		"one beyond what is thought": {&workorder.ModelLimit{Since: now.Add(-time.Hour), At: now, Until: now.Add(2 * workorder.MaxPark)}, false},
	} {
		w := newAgentUsage(&fakeMeter{limit: c.limit}, nil)
		if got := w.stranded(now, limitWord); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestClearCauseBeforeLimit: a limit that stands is not the reason of an ending that has another one.
func TestClearCauseBeforeLimit(t *testing.T) {
	t.Parallel()
	now := time.Now()
	stands := &workorder.ModelLimit{Since: now, At: now, Until: now.Add(time.Hour)}
	for name, c := range map[string]struct {
		f    agentFacts
		want workorder.Status
	}{
		"it gave up":                        {agentFacts{exit: harness.Exit{Code: 1}}, workorder.StatusParked},
		"the kernel killed it":              {agentFacts{exit: harness.Exit{Signal: "SIGKILL"}, oom: true}, workorder.StatusFailed},
		"the kernel killed it, by a shell":  {agentFacts{exit: harness.Exit{Code: 137}, oom: true}, workorder.StatusFailed},
		"the kernel killed a child of it":   {agentFacts{exit: harness.Exit{Code: 1}, oom: true}, workorder.StatusParked},
		"it crashed":                        {agentFacts{exit: harness.Exit{Signal: "SIGSEGV"}}, workorder.StatusFailed},
		"it is not there":                   {agentFacts{exit: harness.Exit{Code: 127}}, workorder.StatusFailed},
		"we stopped it for the limit":       {agentFacts{cause: errLimit, exit: harness.Exit{Signal: "SIGKILL"}, oom: true}, workorder.StatusParked},
		"it hung, and waits without a word": {agentFacts{cause: errHang, exit: harness.Exit{Signal: "SIGTERM"}, hang: &hang{}}, workorder.StatusParked},
	} {
		c.f.limit, c.f.outcome.Verdict = stands, harness.Failed
		if got := agentEnding(c.f); got.Status != c.want {
			t.Errorf("%s: %+v, want %s", name, got, c.want)
		}
	}
}
