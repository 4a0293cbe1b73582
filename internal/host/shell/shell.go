// Package shell runs a command of the user's in a task's running box, held there as the agent is: the box's own program does that
// (internal/guest/shell), started as root by the engine. A plain exec as the agent's user would have capabilities, calls and a view
// of the machine that the agent does not have.
package shell

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// checkTime bounds the question whether a shell is possible, which a busy engine answered within a second.
	checkTime = 30 * time.Second
	// maxSaid bounds what the box says about a refusal, in characters: what runs there is not trusted to be brief.
	maxSaid = 500
	// root is whom the engine runs the box's program as.
	root = "0:0"
)

// Command is what the user runs: their shell if Argv is empty.
type Command struct {
	Argv           []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Terminal       *runtime.Terminal // nil if there is none
	Term           string            // the kind of terminal, as TERM names it
}

// Run runs the command in the box, which may be nil, and returns its exit code.
func Run(ctx context.Context, engine runtime.Runtime, task string, box *runtime.Box, c Command) (int, error) {
	if box == nil || !box.Live() {
		return 0, fault.New(workorder.ExitNotFound, fmt.Errorf("task %s has no sandbox that runs", task),
			"`sandbox-agent checkout "+task+"` switches to its work here, `sandbox-agent continue "+task+"` starts another sandbox")
	}
	x, ok := engine.(runtime.Execer)
	if !ok {
		return 0, fault.New(workorder.ExitBox, fmt.Errorf("a shell in the sandbox of %s: %w", task, runtime.ErrUnsupported), "")
	}
	if err := check(ctx, x, task, box.ID); err != nil {
		return 0, err
	}
	cmd := runtime.Command{
		Argv: append([]string{workorder.EntrypointIn, "shell", "--"}, c.Argv...), User: root,
		Stdin: c.Stdin, Stdout: c.Stdout, Stderr: c.Stderr, Terminal: c.Terminal,
	}
	if c.Terminal != nil && named(c.Term) {
		cmd.Env = []string{"TERM=" + c.Term}
	}
	return x.Exec(ctx, box.ID, cmd)
}

// check asks the box's program whether a shell is possible. It is a call of its own, since the exit code of the next one is the command's.
func check(ctx context.Context, x runtime.Execer, task, box string) error {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	var said bytes.Buffer
	code, err := x.Exec(ctx, box, runtime.Command{Argv: []string{workorder.EntrypointIn, "shell", "--check"}, User: root, Stderr: &said})
	switch {
	case err != nil:
		return fmt.Errorf("a shell in the sandbox of %s: %w", task, err)
	case code == workorder.ExitOK:
		return nil
	case code == workorder.ExitUsage:
		return fault.New(workorder.ExitBox, fmt.Errorf("the sandbox of %s is of an older version, which lets no shell in", task),
			"the next sandbox does: `sandbox-agent stop "+task+"`, then `sandbox-agent continue "+task+"`")
	}
	why := text.Runes(text.Clean(strings.TrimSpace(said.String())), maxSaid)
	if why == "" {
		why = fmt.Sprintf("its program ended with %d", code)
	}
	return fault.New(workorder.ExitBox, fmt.Errorf("a shell in the sandbox of %s: %w", task, errors.New(why)),
		"`sandbox-agent logs -f "+task+"` shows what it does")
}

// named reports whether a text can be the name of a kind of terminal.
func named(term string) bool {
	const most = 64
	return term != "" && len(term) <= most && strings.Trim(term, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_+") == ""
}
