package launch_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/test/runtimetest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestRunShell: the box's program is asked first, and then runs the command; what stands in the way of a shell is said with its own code.
func TestRunShell(t *testing.T) {
	t.Parallel()
	var calls [][]string
	check := 0
	engine := runtimetest.NewFake(map[string]runtimetest.Program{
		"box": func(b *runtimetest.Box) int { <-b.Killed; return 0 },
		workorder.EntrypointIn: func(b *runtimetest.Box) int {
			calls = append(calls, b.Args)
			if slices.Equal(b.Args, []string{"shell", "--check"}) {
				if check == workorder.ExitBox {
					fmt.Fprintln(b.Stderr, "not\x1b[2J now")
				}
				return check
			}
			return 64 // the command's own
		},
	})
	id, err := engine.Run(t.Context(), runtime.ContainerSpec{Name: "b", Image: "box"}, strings.NewReader(""))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = engine.Remove(context.WithoutCancel(t.Context()), id) }()
	live, ended := &runtime.Instance{ID: id, State: "running"}, &runtime.Instance{ID: id, State: "exited"}
	for _, c := range []struct {
		name  string
		box   *runtime.Instance
		check int
		code  int // the command's; -1 means there is an error
		fault int
		calls int
	}{
		{"a command", live, 0, 64, 0, 2},
		{"an older box", live, workorder.ExitUsage, -1, workorder.ExitBox, 1},
		{"no agent at work", live, workorder.ExitBox, -1, workorder.ExitBox, 1},
		{"no such program", live, 127, -1, workorder.ExitBox, 1},
		{"a box that has ended", ended, 0, -1, workorder.ExitNotFound, 0},
		{"no box", nil, 0, -1, workorder.ExitNotFound, 0},
	} {
		calls, check = nil, c.check
		var out bytes.Buffer
		code, err := launch.RunShell(t.Context(), engine, "T-A1B2C3D4", c.box, launch.ShellCommand{Argv: []string{"ls", "--check"}, Stdout: &out, Stderr: &out})
		if c.code >= 0 && (err != nil || code != c.code) || c.code < 0 && (err == nil || exiterr.Code(err) != c.fault || exiterr.Hint(err) == "" || strings.Contains(err.Error(), "\x1b")) {
			t.Errorf("%s: %d, %v", c.name, code, err)
		}
		if len(calls) != c.calls || c.calls == 2 && !slices.Equal(calls[1], []string{"shell", "--", "ls", "--check"}) {
			t.Errorf("%s: calls %q", c.name, calls)
		}
	}
	if _, err := launch.RunShell(t.Context(), plain{engine}, "T-A1B2C3D4", live, launch.ShellCommand{}); !errors.Is(err, runtime.ErrUnsupported) {
		t.Errorf("an engine without exec: %v", err)
	}
}

// plain is an engine that has no abilities.
type plain struct{ runtime.Runtime }
