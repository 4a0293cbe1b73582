package proof_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/runner/proof"
)

// A detected check that cannot run on base judges nothing, unless it passes on head. A declared one does.
func TestUnfit(t *testing.T) {
	t.Parallel()
	for line, out := range map[string]bool{
		"no-such-program --lint": true,
		"sh ./no-such-file":      true,
		"echo 'make: *** [Makefile:2: lint] Error 127'; exit 2":   true,
		"echo '/usr/bin/python3: No module named pytest'; exit 1": true,
		"echo 'No tests found, exiting with code 1'; exit 1":      true,
		"echo 'npm error Missing script: \"test\"'; exit 1":       true,
		"exit 126":                    true,
		"echo 'TestA failed'; exit 1": false,
		"echo 1..1; echo 'not ok 1 - a: command not found'; exit 1": false,
		"if test -e b; then exit 0; fi; no-such-program":            false,
		"test ! -e b": false,
		"echo 'no tests found, which is no reason to fail here'; exit 0": false,
	} {
		for _, found := range []bool{true, false} {
			b := newBox(t, map[string]string{"a": "1\n"})
			b.Order.Found = found
			b.validate("check", line, "true", "true")
			p := b.prove(t.Context(), b.commit(map[string]string{"b": "1\n"}))
			if got := len(p.LeftOut) == 1 && len(p.Checks) == 1 && p.LeftOut[0].Name == "check"; got != (out && found) || !got && len(p.Checks) != 2 {
				t.Errorf("%q, found %v: left out %q, %d checks", line, found, p.LeftOut, len(p.Checks))
			}
		}
	}
}

// A detected check that does not end on base is not run on head, and later tasks know it.
func TestEndless(t *testing.T) {
	t.Parallel()
	b := newBox(t, map[string]string{"a": "1\n"})
	b.Order.Found, b.Order.TimeoutMinutes = true, 0.5
	b.Config = b.Bounded(2 * time.Second) // what takes no time at all has to come through it, on any machine
	b.validate("watch", "sleep 1000", "quick", "true")
	var ran []string
	b.Shell = func(ctx context.Context, c proof.CommandLine) proof.Outcome {
		ran = append(ran, strings.TrimPrefix(c.Name, "proof "))
		return b.shell(ctx, c)
	}
	var known *proof.BaseRuns
	b.KeepBase = func(_ context.Context, k *proof.BaseRuns) error { known = k; return nil }
	b.Rooms = &places{home: b.Home}
	p := b.prove(t.Context(), b.commit(map[string]string{"b": "1\n"}))
	if len(p.LeftOut) != 1 || len(p.Checks) != 1 || !slices.Equal(ran, []string{"base watch", "base quick", "head quick"}) {
		t.Errorf("%q, %+v", ran, p)
	}
	if list := known.Endless(b.base, b.Order); len(list) != 1 || list[0].Name != "watch" {
		t.Errorf("%+v of %+v", list, known)
	}
	b.Order.TimeoutMinutes = 60
	if list := known.Endless(b.base, b.Order); len(list) > 0 {
		t.Errorf("with more time: %+v", list)
	}
}
