package launch

import (
	"bytes"
	"cmp"
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
	shellCheckTime = 30 * time.Second // a busy engine answered within a second
	maxSaid        = 500              // characters of the box's untrusted message
	engineRoot     = "0:0"
)

// ShellCommand is the command to run; an empty Argv means the user's shell.
type ShellCommand struct {
	Argv           []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Terminal       *runtime.Terminal // nil if there is none
	Term           string            // the value of TERM
}

// RunShell runs the command in the box, which may be nil, and returns its exit code.
func RunShell(ctx context.Context, engine runtime.Runtime, task string, box *runtime.Instance, c ShellCommand) (int, error) {
	if box == nil || !box.Running() {
		return 0, exiterr.New(workorder.ExitNotFound, fmt.Errorf("task %s has no running sandbox", task),
			"check out its work with `sandbox-agent checkout "+task+"`, or start another sandbox with `sandbox-agent continue "+task+"`")
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

// checkShell asks the box's program whether a shell is possible. It is a separate call, since the exit code of the next call
// is the command's.
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
		return exiterr.New(workorder.ExitBox, fmt.Errorf("the sandbox of %s is of an older version without shells", task),
			"restart it: `sandbox-agent stop "+task+"`, then `sandbox-agent continue "+task+"`")
	}
	why := cmp.Or(text.Runes(text.Clean(strings.TrimSpace(said.String())), maxSaid), fmt.Sprintf("its program exited with %d", code))
	return exiterr.New(workorder.ExitBox, fmt.Errorf("a shell in the sandbox of %s: %w", task, errors.New(why)),
		"show its events with: sandbox-agent logs -f "+task)
}

func validTerm(term string) bool {
	const most = 64
	return term != "" && len(term) <= most && strings.Trim(term, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_+") == ""
}
