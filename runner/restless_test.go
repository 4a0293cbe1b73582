package runner

import (
	"os"
	"testing"
)

// The CPU time of a process that is restless by nature is no sign of life; that of all others is.
func TestRestless(t *testing.T) {
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
	waitFor(t, "CPU time of our own", func() bool { return ticks() > 0 }) // to look takes some, too
	s.restless = func(p process) bool { return p.pid == s.agent }
	if n := ticks(); n != 0 {
		t.Errorf("%d ticks count", n)
	}
}
