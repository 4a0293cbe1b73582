package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// shellCheckTime bounds the question whether a shell is possible, which a busy engine answered within a second.
	shellCheckTime = 30 * time.Second
	// maxSaid bounds what the box says about a refusal, in characters: what runs there is not trusted to be brief.
	maxSaid = 500
	// engineRoot is whom the engine runs the box's program as.
	engineRoot = "0:0"
)

// ShellCommand is what the user runs: their shell if Argv is empty.
type ShellCommand struct {
	Argv           []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Terminal       *runtime.Terminal // nil if there is none
	Term           string            // the kind of terminal, as TERM names it
}

// RunShell runs the command in the box, which may be nil, and returns its exit code.
func RunShell(ctx context.Context, engine runtime.Runtime, task string, box *runtime.Instance, c ShellCommand) (int, error) {
	if box == nil || !box.Running() {
		return 0, exiterr.New(workorder.ExitNotFound, fmt.Errorf("task %s has no sandbox that runs", task),
			"`sandbox-agent checkout "+task+"` switches to its work here, `sandbox-agent continue "+task+"` starts another sandbox")
	}
	x, ok := engine.(runtime.Execer)
	if !ok {
		return 0, exiterr.New(workorder.ExitBox, fmt.Errorf("a shell in the sandbox of %s: %w", task, runtime.ErrUnsupported), "")
	}
	if err := checkShell(ctx, x, task, box.ID); err != nil {
		return 0, err
	}
	cmd := runtime.ExecSpec{
		Argv: append([]string{workorder.EntrypointIn, "shell", "--"}, c.Argv...), User: engineRoot,
		Stdin: c.Stdin, Stdout: c.Stdout, Stderr: c.Stderr, Terminal: c.Terminal,
	}
	if c.Terminal != nil && validTerm(c.Term) {
		cmd.Env = []string{"TERM=" + c.Term}
	}
	return x.Exec(ctx, box.ID, cmd)
}

// checkShell asks the box's program whether a shell is possible. It is a call of its own, since the exit code of the
// next one is the command's.
func checkShell(ctx context.Context, x runtime.Execer, task, box string) error {
	ctx, cancel := context.WithTimeout(ctx, shellCheckTime)
	defer cancel()
	var said bytes.Buffer
	code, err := x.Exec(ctx, box, runtime.ExecSpec{
		Argv: []string{workorder.EntrypointIn, "shell", "--check"}, User: engineRoot,
		Stderr: &said,
	})
	switch {
	case err != nil:
		return fmt.Errorf("a shell in the sandbox of %s: %w", task, err)
	case code == workorder.ExitOK:
		return nil
	case code == workorder.ExitUsage:
		return exiterr.New(workorder.ExitBox, fmt.Errorf("the sandbox of %s is of an older version, which lets no shell in", task),
			"the next sandbox does: `sandbox-agent stop "+task+"`, then `sandbox-agent continue "+task+"`")
	}
	why := text.Runes(text.Clean(strings.TrimSpace(said.String())), maxSaid)
	if why == "" {
		why = fmt.Sprintf("its program ended with %d", code)
	}
	return exiterr.New(workorder.ExitBox, fmt.Errorf("a shell in the sandbox of %s: %w", task, errors.New(why)),
		"`sandbox-agent logs -f "+task+"` shows what it does")
}

// validTerm reports whether a text can be the name of a kind of terminal.
func validTerm(term string) bool {
	const most = 64
	return term != "" && len(term) <= most && strings.Trim(term, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_+") == ""
}
