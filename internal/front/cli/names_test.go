package cli

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/host/branch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/sandboxstore"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A name that neither a task nor a sandbox has gets one sentence and the nearest name, whatever was looked up.
func TestUnknownNames(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	if err := sandboxstore.New(state).Save("nu-jail", sandboxstore.Record{}); err != nil {
		t.Fatal(err)
	}
	rec := &taskstore.Record{TaskID: tid, Collected: true}
	lock, err := taskstore.New(state).Create(rec)
	if err != nil {
		t.Fatal(err)
	}
	lock.Unlock()
	a := cmdutil.New(cmdutil.IO{}, app.Env{Dir: t.TempDir(), Getenv: func(name string) string { return map[string]string{"SANDBOX_AGENT_STATE_DIR": state}[name] }})
	for name, near := range map[string]string{"nu-jial": "nu-jail", tid[:len(tid)-1] + "Z": tid, "something-else": ""} {
		for _, missing := range []error{sandbox.ErrNotFound, taskstore.ErrNotFound, branch.ErrNotFound} {
			err := a.UnknownName(t.Context(), name, fmt.Errorf("look: %w", missing))
			if unknown, ok := errors.AsType[*app.UnknownNameError](err); !ok || unknown.Name != name || app.ExitCode(err) != workorder.ExitNotFound || !errors.Is(err, missing) {
				t.Errorf("%s: %v", name, err)
			}
			if h := app.Hint(app.SandboxError(err)); strings.Contains(h, "did you mean") != (near != "") || !strings.Contains(h, near) {
				t.Errorf("%s: hint %q", name, h)
			}
		}
	}
	for _, err := range []error{
		a.UnknownName(t.Context(), "nu-jail", sandbox.ErrNotFound), // it is known, and its own error says more
		a.UnknownName(t.Context(), "x", errors.Join(sandbox.ErrNotFound, sandbox.ErrUnavailable)),
		a.UnknownName(t.Context(), "x", fmt.Errorf("%w: %w", sandbox.ErrOtherOwner, sandbox.ErrNotFound)),
	} {
		if _, ok := errors.AsType[*app.UnknownNameError](err); ok {
			t.Error(err)
		}
	}
}
