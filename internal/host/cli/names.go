package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/diag"
	"github.com/sandbox-agent/sandbox-agent/internal/host/branch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// unknownNameError is the error for a name that no task and no sandbox has.
type unknownNameError struct {
	name  string
	cause error
}

func (e *unknownNameError) Error() string { return fmt.Sprintf("no task or sandbox named %q", e.name) }

func (e *unknownNameError) Unwrap() error { return e.cause }

// unknownName replaces the error of a look-up if neither a task nor a sandbox has the name. Other errors, and those of a sandbox that is known but
// unavailable, stay.
func unknownName(ctx context.Context, a *App, name string, err error) error {
	missing := errors.Is(err, sandbox.ErrNotFound) || errors.Is(err, store.ErrNotFound) || errors.Is(err, branch.ErrNone)
	if !missing || errors.Is(err, sandbox.ErrOtherOwner) || errors.Is(err, sandbox.ErrUnavailable) {
		return sandboxError(err)
	}
	known := knownNames(ctx, a)
	if slices.Contains(known, name) {
		return sandboxError(err)
	}
	near := diag.Nearest(name, known)
	if near == "" {
		near = diag.Nearest(app.FullTaskID(name), known)
	}
	return notFound(&unknownNameError{name, err}, didYouMean(near, "list tasks and sandboxes with: sandbox-agent ps --all"))
}

// knownNames are the names of this state directory's tasks and sandboxes, as far as they can be read. It asks no engine.
func knownNames(ctx context.Context, a *App) (names []string) {
	if r, err := a.registry(); err == nil {
		names, _ = r.Names()
	}
	if all, err := a.branches(); err == nil {
		list, _ := all.List(ctx)
		for _, b := range list {
			names = append(names, b.Name)
		}
	}
	if st, err := a.store(); err == nil {
		records, _ := st.List()
		for _, r := range records {
			names = append(names, r.TaskID)
		}
	}
	return names
}

// didYouMean is the hint for a name that was not found: the nearest name, if there is one, and how to list all.
func didYouMean(near, list string) string {
	if near == "" {
		return list
	}
	return fmt.Sprintf("did you mean %s? %s", near, list)
}
