package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// mayRun puts tasks first whose sandbox may run.
func mayRun(r, s *store.Record) bool { return !r.Collected && s.Collected }

type shellOptions struct{ shell string }

func newShellCmd(a *App) *cobra.Command {
	o := &shellOptions{}
	cmd := &cobra.Command{
		Use: "shell TASK | SANDBOX [-- COMMAND...]", Short: "Open a shell in a sandbox or a running task",
		Long: `Opens a shell in a sandbox, or runs a command in it and ends with its exit code.

In a task's sandbox it runs in the agent's working tree while the agent works,
as the user sandbox, with the agent's environment, network and limits and no
additional secret. The shell ends with the agent. Without a running sandbox,
'checkout' has the work.

In a standalone sandbox it runs the first available shell of bash, ash and sh, or
--shell. On a terminal, where the sandbox has tmux, it is the sandbox's own
terminal: what runs in it stays when you leave (Ctrl-B D) or lose the
connection. It opens beside a running agent: Ctrl-B ( and Ctrl-B ) switch between
the two.`,
		Example: `  sandbox-agent shell dev
  sandbox-agent shell T-A1B2C3D4
  sandbox-agent shell A1B2 -- git status --short`,
		ValidArgsFunction: a.CompleteEither(false, mayRun),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return nil
			}
			return fault.New(workorder.ExitUsage, fmt.Errorf("no task or sandbox given"), "`sandbox-agent ps` lists those that run")
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			argv := args[1:]
			if len(argv) > 0 && argv[0] == "--" {
				argv = argv[1:]
			}
			return o.do(cmd.Context(), a, args[0], argv)
		},
	}
	cmd.Flags().StringVar(&o.shell, "shell", "", "shell to run: "+strings.Join(sandbox.Shells, ", "))
	cmd.Flags().SetInterspersed(false) // what follows the task is the command's
	return cmd
}

func (o *shellOptions) do(ctx context.Context, a *App, name string, argv []string) error {
	if o.shell != "" && !slices.Contains(sandbox.Shells, o.shell) {
		return app.Usagef("--shell %q: use %s", o.shell, strings.Join(sandbox.Shells, ", "))
	}
	sb, done, err := a.Sandboxes().Either(ctx, name)
	if err != nil {
		return err
	}
	if sb == nil {
		return a.shell(ctx, name, argv)
	}
	defer done()
	c := sandbox.Command{Argv: argv, Stdin: a.Stdin}
	switch {
	case len(argv) > 0:
	case o.shell != "":
		c.Argv = []string{o.shell}
	case a.atTerminal():
		if c.Argv, err = app.OwnTerminal(ctx, sb); err != nil {
			return err
		}
	default:
		if c.Argv, err = app.BestShell(ctx, sb); err != nil {
			return err
		}
	}
	if a.atTerminal() {
		return a.showInTerminal(ctx, sb, c.Argv)
	}
	return a.runSaved(ctx, sb, c, nil)
}

// atTerminal reports whether both standard input and output are a terminal.
func (a *App) atTerminal() bool {
	in, ok := a.Stdin.(*os.File)
	return ok && term.IsTerminal(int(in.Fd())) && cmdutil.IsTerminal(a.Stdout)
}

// showInTerminal runs a command that draws on the user's terminal.
func (a *App) showInTerminal(ctx context.Context, sb *sandbox.Sandbox, argv []string) error {
	c := sandbox.Command{Argv: argv, Stdin: a.Stdin}
	if kind := a.Getenv("TERM"); kind != "" {
		c.Env = []string{"TERM=" + kind}
	}
	return a.runInTerminal(ctx, sb, c)
}

func (a *App) shell(ctx context.Context, id string, argv []string) error {
	c := launch.ShellCommand{Argv: argv, Stdin: a.Stdin, Stdout: a.Stdout, Stderr: a.Stderr, Term: a.Getenv("TERM")}
	terminal, leave, err := a.terminal()
	if err != nil {
		return err
	}
	defer leave()
	c.Terminal = terminal
	code, err := a.execInTask(ctx, id, c)
	if err == nil && code != 0 {
		return cmdutil.Exit(code)
	}
	return err
}

// execInTask runs a command in a task's running sandbox.
func (a *App) execInTask(ctx context.Context, id string, c launch.ShellCommand) (code int, err error) {
	code, err = a.Tasks().Exec(ctx, id, c)
	if err != nil && ctx.Err() != nil {
		return 0, cmdutil.Interrupted(ctx)
	}
	return code, err
}

// terminal is the user's, for a command in a sandbox, until leave is called; nil if there is none. Keys are the command's meanwhile, Ctrl-C
// as well.
func (a *App) terminal() (t *runtime.Terminal, leave func(), err error) {
	if !a.atTerminal() {
		return nil, func() {}, nil
	}
	in := a.Stdin.(*os.File)
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
	width, height := cmdutil.TerminalSize(a.Stdout)
	return runtime.Size{Width: uint(max(width, 0)), Height: uint(max(height, 0))}
}
