package launch

import (
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestLongest: the host never ends a run that still keeps the guest's own bounds.
func TestLongest(t *testing.T) {
	t.Parallel()
	o := &workorder.Order{TimeoutMinutes: 3}
	if got := longest(o); got <= StartTimeout+3*time.Minute+workorder.AgentGrace+workorder.LandLimit+workorder.BundleGrace || got > 3*time.Minute+2*workorder.LandLimit {
		t.Errorf("stopped after %s", got)
	}
}
