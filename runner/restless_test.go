package runner

import (
	"os"
	"testing"
	"time"
)

// The CPU time of a process that is restless by nature is no sign of life; that of all others is.
func TestRestless(t *testing.T) {
	for end := time.Now().Add(50 * time.Millisecond); time.Now().Before(end); { //nolint:revive // some CPU time to be seen
	}
	s := newScene(nil, nil)
	s.agent = os.Getpid()
	ticks := func() int64 {
		agent, _ := s.look()
		for _, p := range agent {
			if p.pid == s.agent {
				return p.Ticks
			}
		}
		t.Fatal("the agent is not among its processes")
		return 0
	}
	if ticks() == 0 {
		t.Error("no CPU time is seen at all")
	}
	s.restless = func(p process) bool { return p.pid == s.agent }
	if n := ticks(); n != 0 {
		t.Errorf("%d ticks count", n)
	}
}
