package report

import (
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A later attempt says what the whole task has cost, as far as the attempts told it.
func TestCostOfTask(t *testing.T) {
	t.Parallel()
	told := func(f float64) workorder.PastAttempt { return workorder.PastAttempt{CostUSD: &f} }
	rebase := []workorder.Step{{Name: "agent", Status: workorder.StepSkipped}}
	for want, r := range map[string]*workorder.Result{
		"0 ms · cost not known": {},
		"0 ms · $0.30":          {Usage: workorder.Usage{CostUSD: new(0.3)}},
		"0 ms · cost not known · the whole task at least $0.12": {PastAttempts: []workorder.PastAttempt{told(0.12)}},
		"0 ms · no agent ran · the whole task $0.12":            {PastAttempts: []workorder.PastAttempt{told(0.12)}, Steps: rebase},
		"0 ms · $0.30 · the whole task $0.42": {
			PastAttempts: []workorder.PastAttempt{told(0.12)},
			Usage:        workorder.Usage{CostUSD: new(0.3)},
		},
		"0 ms · $0.30 · the whole task at least $0.42": {
			PastAttempts: []workorder.PastAttempt{told(0.12), {}},
			Usage:        workorder.Usage{CostUSD: new(0.3)},
		},
		"0 ms · no agent ran": {PastAttempts: []workorder.PastAttempt{{}}, Steps: rebase},
	} {
		p := build(Data{Result: r}, inMarkdown)
		if p.Cost != want {
			t.Errorf("%q, want %q", p.Cost, want)
		}
		_, all, _ := strings.Cut(want, "the whole task ")
		for _, tile := range tiles(Data{Result: r}, p) {
			if tile.Name == "Cost of the task" && tile.Value != all {
				t.Errorf("a tile says %q, want %q", tile.Value, all)
			}
		}
	}
}
