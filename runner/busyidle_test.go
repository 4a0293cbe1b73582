package runner

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// The CPU time of a process that is busy while it waits is no sign of life; that of all others is.
func TestRestless(t *testing.T) {
	t.Parallel()
	s := newProcessScope(nil, nil)
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
	s.busyIdle = func(p process) bool { return p.pid == s.agent }
	if n := ticks(); n != 0 {
		t.Errorf("%d ticks count", n)
	}
}

// A program that is started again after a hang loads itself again, and says nothing meanwhile.
func TestRestlessStartsAgain(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	bin := t.TempDir()
	b.write(t, filepath.Join(bin, "opencode"), `#!/bin/sh
		say() { printf '{"type":"%s","sessionID":"ses_1","part":{%s}}\n' "$1" "$2"; }
		case " $* " in *" --session ses_1 "*) ;; *) say step_start '"type":"step-start"'; exec sleep 3600;; esac
		now() { read now _ </proc/uptime; now=${now%.*}; }
		now; end=$((now + 4)); while [ $now -lt $end ]; do now; done
		say step_finish '"type":"step-finish","reason":"stop"'
	`)
	b.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "OPENAI_API_KEY=sk-test"}
	b.Order.Harness = workorder.Harness{Name: "opencode"}
	b.Hang = time.Second
	got := Agent(t.Context(), b.Config)
	if hangs := b.of(workorder.EventHang); len(hangs) != 1 || hangs[0].Status != "resumed" || got.EndedBy != workorder.EndedByAgent {
		t.Errorf("hangs %+v, %+v", hangs, got)
	}
}
