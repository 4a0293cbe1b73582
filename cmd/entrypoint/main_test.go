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
	after := proof.RemoveTime + boot.AfterLanding
	if after > workorder.AfterLimit {
		t.Errorf("what follows a landing takes up to %s, the limit is %s", after, workorder.AfterLimit)
	}
	sum := (&workorder.Order{}).Timeout() + workorder.AgentGrace + workorder.LandLimit + workorder.BundleGrace + after
	if got := longest(nil); got <= sum {
		t.Errorf("stopped after %s, the parts make %s", got, sum)
	}
}
