package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// isTask reports whether a name can only be a task's: these have capital letters, which no sandbox's has.
func isTask(name string) bool {
	return name != "" && !sandbox.ValidName(name) && strings.ToUpper(name) == name
}

// eitherSandbox finds a sandbox without a task for a command that takes tasks as well: nil where the name is not one's. A task's id can be given in small letters;
// where there is a sandbox of that name, it is meant.
func (a *App) eitherSandbox(ctx context.Context, name string) (sb *sandbox.Sandbox, done func(), err error) {
	if a.Sandboxes == nil || !sandbox.ValidName(name) {
		return nil, nil, nil
	}
	sb, done, err = a.sandbox(ctx, name)
	if err == nil {
		return sb, done, nil
	}
	st, serr := a.store()
	if serr != nil {
		return nil, nil, serr
	}
	if _, terr := st.Find(name); !errors.Is(terr, store.ErrNotFound) {
		return nil, nil, nil // its own error is told by who looks for tasks
	}
	return nil, nil, err
}

// completeEither completes sandboxes and tasks.
func (a *App) completeEither(several bool, before ...func(r, s *store.Record) bool) cobra.CompletionFunc {
	tasks, sandboxes := a.completeTasks(several, before...), a.completeSandboxes(several)
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 && !several {
			return nil, cobra.ShellCompDirectiveDefault
		}
		names := []string{}
		if a.Sandboxes != nil {
			names, _ = sandboxes(cmd, args, begun)
		}
		ids, how := tasks(cmd, args, begun)
		return append(names, ids...), how
	}
}
