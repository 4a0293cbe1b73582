package main

import (
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/boot"
	"github.com/sandbox-agent/sandbox-agent/runner/proof"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestLongest: PID 1 takes no run for stuck that keeps its own bounds, on a forge that hangs either.
func TestLongest(t *testing.T) {
	t.Parallel()
	for mode, rebaser := range map[workorder.Mode]boot.Rebaser{workorder.ModeRevise: nil, workorder.ModeRebase: struct{ boot.Rebaser }{}} {
		b := &boot.Runner{
			Order: &workorder.Order{Mode: mode}, Rebaser: rebaser,
			Engine: struct{ boot.Engine }{}, Services: struct{ boot.Services }{},
			Prover: struct{ boot.Prover }{}, Forge: struct{ boot.Forge }{}, Answers: struct{ boot.Answerer }{},
		}
		after, unbound := b.AfterLanding()
		if after += proof.RemoveTime; after > workorder.AfterLimit || unbound != "" {
			t.Errorf("what follows a landing takes up to %s, the limit is %s; %q has no limit", after, workorder.AfterLimit, unbound)
		}
		sum := (&workorder.Order{}).Timeout() + workorder.AgentGrace + workorder.LandLimit + workorder.BundleGrace + after
		if got := longest(nil); got <= sum {
			t.Errorf("stopped after %s, the parts make %s", got, sum)
		}
	}
}
