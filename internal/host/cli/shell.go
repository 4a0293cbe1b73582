package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/shell"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func newShellCmd(a *App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "shell TASK [-- COMMAND...]", Short: "Open a shell in a task's running sandbox, beside the agent",
		Long: `Opens a shell in the work tree of a task's sandbox while its agent works, or runs a command there
and ends with its exit code. It is the user sandbox and held exactly as the agent is: the same
environment, network, limits and refusals, no capability, and no secret that the agent does not have.

On a terminal it is a terminal there, and Ctrl-C goes in; elsewhere standard input, output and error are
pipes, and an interrupt ends only the waiting. What you change is the agent's work tree. The shell ends with the agent: nothing of it is there
when the checks run. Without a running sandbox, ` + "`sandbox-agent checkout`" + ` has the work.`,
		Example:           "  sandbox-agent shell T-A1B2C3D4\n  sandbox-agent shell A1B2 -- git status --short\n  sandbox-agent shell A1B2 -- sh -c 'env | sort' >environment",
		ValidArgsFunction: a.completeTasks(false, func(r, s *store.Record) bool { return !r.Collected && s.Collected }), // those that may run first
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return nil
			}
			return fault.New(workorder.ExitUsage, fmt.Errorf("no task given"), "`sandbox-agent ps` lists those that run")
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			argv := args[1:]
			if len(argv) > 0 && argv[0] == "--" {
				argv = argv[1:]
			}
			return a.shell(cmd.Context(), args[0], argv)
		},
	}
	cmd.Flags().SetInterspersed(false) // what follows the task is the command's
	return cmd
}

func (a *App) shell(ctx context.Context, id string, argv []string) error {
	st, rec, err := a.task(ctx, id)
	if err != nil {
		return err
	}
	be, err := a.open()
	if err != nil {
		return err
	}
	var box *runtime.Box
	if !rec.Collected {
		if box, err = a.launcher(be, st, nil).Host().Find(ctx, rec); err != nil {
			return err
		}
	}
	c := shell.Command{Argv: argv, Stdin: a.Stdin, Stdout: a.Stdout, Stderr: a.Stderr, Term: a.Getenv("TERM")}
	terminal, leave, err := a.terminal()
	if err != nil {
		return err
	}
	defer leave()
	c.Terminal = terminal
	code, err := shell.Run(ctx, be.Engine, rec.TaskID, box, c)
	if err != nil && ctx.Err() != nil {
		return &ending{exitLeft}
	}
	if err == nil && code != 0 {
		return &ending{code}
	}
	return err
}

// terminal is the user's, for a command in a sandbox, until leave is called; nil if there is none. Keys are the command's meanwhile, Ctrl-C
// as well.
func (a *App) terminal() (t *runtime.Terminal, leave func(), err error) {
	in, ok := a.Stdin.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) || !isTerminal(a.Stdout) {
		return nil, func() {}, nil
	}
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, nil, fmt.Errorf("take the terminal: %w", err)
	}
	changed, sizes, left := make(chan os.Signal, 1), make(chan runtime.Size), make(chan struct{})
	signal.Notify(changed, unix.SIGWINCH)
	go func() {
		for {
			select {
			case <-changed:
			case <-left:
				return
			}
			select {
			case sizes <- a.size():
			case <-left:
				return
			}
		}
	}()
	return &runtime.Terminal{Size: a.size(), Resized: sizes}, func() {
		signal.Stop(changed)
		close(left)
		_ = term.Restore(int(in.Fd()), before) // a terminal that has gone away needs no repair
	}, nil
}

func (a *App) size() runtime.Size {
	width, height := termSize(a.Stdout)
	return runtime.Size{Width: uint(max(width, 0)), Height: uint(max(height, 0))}
}
