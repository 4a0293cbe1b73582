package signals

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// TestWishes: what a sequence of signals asks for, at and away from a terminal.
func TestWishes(t *testing.T) {
	const (
		intr = syscall.SIGINT
		term = syscall.SIGTERM
		hup  = syscall.SIGHUP
	)
	type heard struct {
		sig  syscall.Signal
		at   time.Duration
		want action
	}
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		away bool // from a terminal
		list []heard
	}{
		"timeout: its child and the group":  {away: true, list: []heard{{term, 0, stop}, {term, ms, nothingNew}}},
		"timeout at a terminal":             {list: []heard{{term, 0, stop}, {term, ms, nothingNew}}},
		"SIGTERM never hurries":             {list: []heard{{term, 0, stop}, {term, 3000 * ms, nothingNew}, {term, 60000 * ms, nothingNew}}},
		"a closed terminal":                 {away: true, list: []heard{{hup, 0, stop}, {hup, ms, nothingNew}, {term, 5000 * ms, nothingNew}}},
		"SIGHUP then SIGINT of a script":    {away: true, list: []heard{{hup, 0, stop}, {intr, 5000 * ms, nothingNew}}},
		"Ctrl-C twice":                      {list: []heard{{intr, 0, stop}, {intr, 2000 * ms, kill}}},
		"Ctrl-C held down":                  {list: []heard{{intr, 0, stop}, {intr, 30 * ms, nothingNew}, {intr, 1999 * ms, nothingNew}, {intr, 2100 * ms, kill}, {intr, 2130 * ms, nothingNew}}},
		"SIGINT twice away from a terminal": {away: true, list: []heard{{intr, 0, stop}, {intr, 5000 * ms, nothingNew}}},
		"SIGTERM, then Ctrl-C":              {list: []heard{{term, 0, stop}, {intr, 1000 * ms, nothingNew}, {intr, 3000 * ms, kill}}},
		"Ctrl-C, then SIGTERM":              {list: []heard{{intr, 0, stop}, {term, 3000 * ms, nothingNew}, {intr, 3100 * ms, kill}}},
		"who insists gets out":              {list: []heard{{intr, 0, stop}, {intr, 3000 * ms, kill}, {term, 9000 * ms, nothingNew}, {intr, 9100 * ms, detach}, {intr, 20000 * ms, nothingNew}}},
	} {
		w := signalState{terminal: func() bool { return !c.away }}
		begun := time.Now()
		for i, h := range c.list {
			if got := w.hear(h.sig, begun.Add(h.at)); got != h.want {
				t.Errorf("%s: signal %d (%s after %s) asks for %d, want %d", name, i+1, h.sig, h.at, got, h.want)
			}
		}
	}
}

// listener is the environment variable by which the test's own program is one that listens.
const listener = "SANDBOX_AGENT_TEST_LISTENER"

func TestMain(m *testing.M) {
	if os.Getenv(listener) == "" {
		os.Exit(m.Run())
	}
	lines := make(chan string, 8)
	ctx, hard, cancel := listen(context.Background(), atTerminal, func(s os.Signal, w action) { lines <- fmt.Sprintf("%s: %d", s, w) })
	defer cancel()
	if os.Getenv(listener) == "reloads" {
		asked, _ := Reloads()
		go func() {
			for range asked {
				fmt.Println("reload")
			}
		}()
	}
	fmt.Println("listens")
	for line := range lines {
		select {
		case <-hard:
			line += ", hard"
		default:
		}
		by, _ := errors.AsType[*Stopped](context.Cause(ctx))
		fmt.Printf("%s, stopped %v by %d\n", line, errors.Is(context.Cause(ctx), context.Canceled), by.Signal)
	}
}

// TestSignals: real ones, to a real program, which has no terminal.
func TestSignals(t *testing.T) {
	// Tests that run under nohup would pass its ignored SIGHUP on; one that is caught here has its default in a child.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(caught) })
	for name, c := range map[string]struct {
		through []string // what starts it
		reloads bool
		send    []syscall.Signal
		want    []string
	}{
		"SIGTERM again and again": {nil, false, []syscall.Signal{15, 15, 15}, []string{"terminated: 1, stopped true by 15", "terminated: 0, stopped true by 15", "terminated: 0, stopped true by 15"}},
		"SIGHUP is a stop":        {nil, false, []syscall.Signal{1, 15}, []string{"hangup: 1, stopped true by 1", "terminated: 0, stopped true by 1"}},
		"SIGINT":                  {nil, false, []syscall.Signal{2}, []string{"interrupt: 1, stopped true by 2"}},
		"nohup: SIGHUP is not heard": {
			[]string{"sh", "-c", `trap "" HUP; exec "$0"`},
			false,
			[]syscall.Signal{1, 15},
			[]string{"terminated: 1, stopped true by 15"},
		},
		"a server reads anew":               {nil, true, []syscall.Signal{1, 1, 15}, []string{"reload", "reload", "terminated: 1, stopped true by 15"}},
		"a server by nohup reads anew, too": {[]string{"sh", "-c", `trap "" HUP; exec "$0"`}, true, []syscall.Signal{1, 15}, []string{"reload", "terminated: 1, stopped true by 15"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a hang ends
			defer cancel()
			p, err := proc.Start(ctx, proc.Spec{Argv: append(c.through, os.Args[0]), Env: append(os.Environ(), listener+"="+map[bool]string{true: "reloads", false: "stops"}[c.reloads]), Stdout: w, Stderr: os.Stderr})
			w.Close()
			if err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(r)
			next := func() string { lines.Scan(); return lines.Text() }
			if got := next(); got != "listens" {
				t.Fatalf("it says %q", got)
			}
			unheard := len(c.send) - len(c.want)
			for i, sig := range c.send {
				p.Signal(sig)
				if i < unheard {
					continue
				}
				if got, want := next(), c.want[i-unheard]; got != want {
					t.Errorf("signal %d: %q, want %q", i+1, got, want)
				}
			}
			p.Signal(syscall.SIGKILL)
			<-p.Done()
		})
	}
}

// A server that nohup has started ends, too.
func TestReloadsUnderNohup(t *testing.T) {
	signal.Ignore(syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)
	_, stop := Reloads()
	stop()
	if reloader.Load() != nil {
		t.Error("it still reads anew")
	}
}
