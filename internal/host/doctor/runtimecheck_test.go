package doctor

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
)

// good is a kind that keeps its promises, but for those that are broken.
type good struct {
	caps    map[runtime.Capability]bool
	broken  string // part of a script that fails
	makeErr error
	made    []Requirements
	removed int
}

func (g *good) Has(c runtime.Capability) bool { return g.caps[c] }

func (g *good) Make(_ context.Context, w Requirements) (RuntimeSandbox, error) {
	g.made = append(g.made, w)
	return &box{g: g, w: w}, g.makeErr
}

type box struct {
	g    *good
	w    Requirements
	left int
}

func (b *box) Stop(context.Context) error   { return nil }
func (b *box) Remove(context.Context) error { b.g.removed++; return nil }
func (b *box) Run(_ context.Context, script string, _ time.Duration) (Outcome, error) {
	if b.g.broken != "" && strings.Contains(script, b.g.broken) {
		return Outcome{ExitCode: 1, Output: "5"}, nil
	}
	switch {
	case strings.Contains(script, "exit 7"):
		return Outcome{ExitCode: 7}, nil
	case script == leftCount:
		return Outcome{Output: map[int]string{0: "0\n", 1: "1\n"}[b.left]}, nil
	case strings.HasPrefix(script, "setsid sleep 987 >"):
		b.left = 1
	case strings.Contains(script, "sleep 987"), strings.Contains(script, "b | b"):
		return Outcome{ExitCode: 124, TimedOut: true}, nil
	case strings.HasPrefix(script, "tail"):
		return Outcome{ExitCode: 137, OutOfMemory: true}, nil
	case strings.Contains(script, "times"):
		return Outcome{Output: "0m0.4s 0m0.1s\n0m0s 0m0s\n", Duration: time.Second}, nil
	}
	return Outcome{}, nil
}

func TestTry(t *testing.T) {
	t.Parallel()
	all := map[runtime.Capability]bool{
		runtime.CapNetworkNone: true, runtime.CapMemory: true, runtime.CapPIDs: true, runtime.CapCPUs: true, runtime.CapUser: true,
		runtime.CapPersistent: true,
	}
	for name, promise := range map[string]struct {
		kind    *good
		offered int
		failed  int
	}{
		"all of it":          {&good{caps: all}, len(promises), 0},
		"a guest's network":  {&good{caps: map[runtime.Capability]bool{runtime.CapNetworkNone: true, runtime.CapNetworkRestricted: true}, broken: "/proc/net/route"}, 7, 0},
		"only the rest":      {&good{caps: map[runtime.Capability]bool{}}, 5, 0},
		"memory is not held": {&good{caps: all, broken: "tail /dev"}, len(promises), 1},
		"commands live on":   {&good{caps: all, broken: "sleep 987"}, len(promises), 2},
		"a code is lost":     {&good{caps: all, broken: "exit 7"}, len(promises), 1},
		"no processor limit": {&good{caps: all, broken: "times"}, len(promises), 1},
	} {
		offered, failed := 0, 0
		err := TryRuntime(t.Context(), promise.kind, func(c RuntimeCheck) {
			if c.Offered {
				offered++
				if !c.OK {
					failed++
				}
			}
		})
		if err != nil || offered != promise.offered || failed != promise.failed || promise.kind.removed != len(promise.kind.made) {
			t.Errorf("%s: %d offered, %d failed, %d made and %d removed, %v", name, offered, failed, len(promise.kind.made), promise.kind.removed, err)
		}
	}
	none := errors.New("no such image")
	if err := TryRuntime(t.Context(), &good{makeErr: none}, func(RuntimeCheck) { t.Error("a check without a sandbox") }); !errors.Is(err, none) {
		t.Errorf("%v", err)
	}
}
