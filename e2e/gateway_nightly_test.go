//go:build e2e && nightly

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// An unknown model costs nobody knows what, which is not nothing.
func TestGatewayUnknownModel(t *testing.T) {
	t.Parallel()
	m := newModelHost(t)
	c, r, _ := m.ask(t, "", fmt.Sprintf(askAnthropic, "nobody-knows-this-model")+"\necho done >done")
	if c.code != 0 || r.Usage.CostUSD != nil || r.Usage.InputTokens != 1000 {
		t.Errorf("exit code %d, usage %+v", c.code, r.Usage)
	}
	_, r, _ = m.ask(t, "max_budget_usd: 1\n", fmt.Sprintf(askAnthropic, "nobody-knows-this-model")+"\ncat answer; grep -q price answer && exit 3\n")
	if r.Agent.ExitCode == nil || *r.Agent.ExitCode != 3 {
		t.Errorf("%s by %s: %s", r.Status, r.EndedBy, r.Reasons)
	}
	if len(m.keys) != 1 {
		t.Errorf("%d requests reached the server: one whose price nobody knows must not, when there is a budget", len(m.keys))
	}
}

// The budget ends any harness on the wire, with the provider's kind of error.
func TestGatewayBudget(t *testing.T) {
	t.Parallel()
	m := newModelHost(t)
	c, r, _ := m.ask(t, "max_budget_usd: 2\n", "for i in 1 2 3 4 5; do "+fmt.Sprintf(askAnthropic, "priced-model")+"; sed 's|^|said |' answer; echo; done; sleep 60")
	if r.Status != workorder.StatusBudgetExceeded || c.code != workorder.ExitBudget {
		t.Errorf("exit code %d, %s by %s: %s", c.code, r.Status, r.EndedBy, r.Reasons)
	}
	// Each answer costs 1.2: the second is over it, and the third must not happen.
	if len(m.keys) > 2 || r.Usage.CostUSD == nil || *r.Usage.CostUSD > 2.41 {
		t.Errorf("%d requests, usage %+v", len(m.keys), r.Usage)
	}
	if !strings.Contains(c.stdout+c.stderr, "invalid_request_error") {
		t.Error("the agent saw no error of the provider's shape")
	}
}
