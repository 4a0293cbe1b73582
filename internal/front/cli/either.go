package cli

import (
	"context"
	"errors"

	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// eitherSandbox finds a sandbox without a task for a command that takes tasks as well: nil where the name is not one's. A task's id can be given in small letters;
// where there is a sandbox of that name, it is meant.
func (a *App) eitherSandbox(ctx context.Context, name string) (sb *sandbox.Sandbox, done func(), err error) {
	if a.OpenSandboxes == nil || !sandbox.ValidName(name) {
		return nil, nil, nil
	}
	sb, done, err = a.Sandboxes().Get(ctx, name)
	if err == nil {
		return sb, done, nil
	}
	st, serr := a.Store()
	if serr != nil {
		return nil, nil, serr
	}
	if _, terr := st.Find(name); !errors.Is(terr, store.ErrNotFound) {
		return nil, nil, nil // the search for tasks reports its own error
	}
	return nil, nil, err
}
