package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// Save commits what a command has changed in the sandbox's clone. What cannot be saved now is saved after the next
// command; a failure is only a warning.
func (b Sandboxes) Save(ctx context.Context, sb *sandbox.Sandbox, ran sandbox.CommandRecord) string {
	commit, err := b.TrySave(ctx, sb, ran)
	if err != nil {
		b.Warn(err.Error())
	}
	return commit
}

// saveGrace is how long a save goes on after the command line, or the client that it serves, has been interrupted.
const saveGrace = 10 * time.Second

// Outlast returns a context that ends saveGrace after ctx.
func Outlast(ctx context.Context) (context.Context, context.CancelFunc) {
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

// TrySave is Save for callers that handle the error.
func (b Sandboxes) TrySave(ctx context.Context, sb *sandbox.Sandbox, ran sandbox.CommandRecord) (commit string, err error) {
	if sb.Spec().BranchOf() == "" {
		return "", nil
	}
	ctx, cancel := Outlast(ctx)
	defer cancel()
	s, err := sb.Branch().Save(ctx, ran)
	if errors.Is(err, sandbox.ErrNoClone) {
		err = nil
	}
	b.WarnSaved(s)
	if s.PreviousRef != "" {
		b.Say(fmt.Sprintf("note: the clone was recreated: its earlier commits are kept as %s in the repository that "+
			"`git remote get-url sandbox` names", s.PreviousRef))
	}
	return s.Commit, err
}

// WarnSaved says what a save could not do as usual.
func (b Sandboxes) WarnSaved(s sandbox.SaveResult) {
	for _, u := range s.Unsaved {
		b.Warn("not committed: " + u.String())
	}
	if len(s.Unmerged) > 0 {
		b.Warn("committed with unresolved conflicts: " + strings.Join(s.Unmerged, ", "))
	}
	if s.Notice != "" {
		b.Warn(s.Notice)
	}
}

// RanNow is a command that has ended.
func RanNow(argv []string, started time.Time, code int) sandbox.CommandRecord {
	return sandbox.CommandRecord{Command: CommandLine(argv), ExitCode: code, Started: started.UTC(), Duration: time.Since(started)}
}

// CommandLine is a command as a person would type it: of a shell the script, of a terminal that a person was shown no
// command.
func CommandLine(argv []string) string {
	const script = 3
	if len(argv) > script && argv[2] == showTerminal {
		return "(terminal)"
	}
	if len(argv) == script && argv[1] == "-c" {
		return argv[2]
	}
	return text.Clean(text.Shell(argv...))
}
