package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// save commits what a command has changed in the sandbox's clone. What cannot be saved now is saved after the next command: it is told and changes no exit code.
func (a *App) save(ctx context.Context, sb *sandbox.Sandbox, ran sandbox.CommandRecord) string {
	commit, err := a.saved(ctx, sb, ran)
	if err != nil {
		a.warn(err.Error())
	}
	return commit
}

// saveGrace is how long a save goes on after the command line, or the client that it serves, has been interrupted.
const saveGrace = 10 * time.Second

// outlast returns a context that ends saveGrace after ctx.
func outlast(ctx context.Context) (context.Context, context.CancelFunc) {
	long, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(saveGrace):
			cancel(fmt.Errorf("not done %s after %w", saveGrace, context.Cause(ctx)))
		case <-long.Done():
		}
	})
	return long, func() {
		stop()
		cancel(nil)
	}
}

// saved is save, for who has more to say of an error.
func (a *App) saved(ctx context.Context, sb *sandbox.Sandbox, ran sandbox.CommandRecord) (commit string, err error) {
	if sb.Spec().BranchOf() == "" {
		return "", nil
	}
	ctx, cancel := outlast(ctx)
	defer cancel()
	s, err := sb.Branch().Save(ctx, ran)
	if errors.Is(err, sandbox.ErrNoClone) {
		err = nil
	}
	a.warnSaved(s)
	if s.PreviousRef != "" {
		fmt.Fprintf(a.Stderr, "note: the clone was made anew: the commits of before are kept as %s of the repository `git remote get-url sandbox` names\n", s.PreviousRef)
	}
	return s.Commit, err
}

// warnSaved says what a save could not do as usual.
func (a *App) warnSaved(s sandbox.SaveResult) {
	for _, u := range s.Unsaved {
		a.warn("not committed: " + u.String())
	}
	if len(s.Unmerged) > 0 {
		a.warn("committed with unresolved conflicts: " + strings.Join(s.Unmerged, ", "))
	}
	if s.Notice != "" {
		a.warn(s.Notice)
	}
}

// ranNow is a command that has ended.
func ranNow(argv []string, started time.Time, code int) sandbox.CommandRecord {
	return sandbox.CommandRecord{Command: commandLine(argv), ExitCode: code, Started: started.UTC(), Duration: time.Since(started)}
}

// commandLine is a command as a person would type it: of a shell the script, of a terminal that a person was shown no
// command.
func commandLine(argv []string) string {
	const script = 3
	if len(argv) > script && argv[2] == showTerminal {
		return "(terminal)"
	}
	if len(argv) == script && argv[1] == "-c" {
		return argv[2]
	}
	return text.Clean(text.Shell(argv...))
}
