package sandboxcmd

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
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// mayRun selects tasks whose sandbox may run.
func mayRun(t app.RecordedTask) bool { return !t.Collected }

type shellOptions struct{ shell string }

// NewCmdShell makes the command.
func NewCmdShell(f *cmdutil.Factory) *cobra.Command {
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
		ValidArgsFunction: f.CompleteEither(false, mayRun),
		Args:              cmdutil.Args(1, cmdutil.Any, "a task or sandbox", "`sandbox-agent ps` lists those that run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			argv := args[1:]
			if len(argv) > 0 && argv[0] == "--" {
				argv = argv[1:]
			}
			return o.do(cmd.Context(), f, args[0], argv)
		},
	}
	cmd.Flags().StringVar(&o.shell, "shell", "", "shell to run: "+strings.Join(sandbox.Shells, ", "))
	cmd.Flags().SetInterspersed(false) // what follows the task is the command's
	return cmd
}

func (o *shellOptions) do(ctx context.Context, f *cmdutil.Factory, name string, argv []string) error {
	if o.shell != "" && !slices.Contains(sandbox.Shells, o.shell) {
		return app.Usagef("--shell %q: use %s", o.shell, strings.Join(sandbox.Shells, ", "))
	}
	sb, done, err := f.Sandboxes().Either(ctx, name)
	if err != nil {
		return err
	}
	if sb == nil {
		return runInTask(ctx, f, name, sandbox.Command{Argv: argv, Stdin: f.Stdin}, true)
	}
	defer done()
	c := sandbox.Command{Argv: argv, Stdin: f.Stdin}
	switch {
	case len(argv) > 0:
	case o.shell != "":
		c.Argv = []string{o.shell}
	case atTerminal(f):
		if c.Argv, err = app.OwnTerminal(ctx, sb); err != nil {
			return err
		}
	default:
		if c.Argv, err = app.BestShell(ctx, sb); err != nil {
			return err
		}
	}
	if atTerminal(f) {
		return showInTerminal(ctx, f, sb, c.Argv)
	}
	return runSaved(ctx, f, sb, c, nil)
}

// atTerminal reports whether both standard input and output are a terminal.
func atTerminal(f *cmdutil.Factory) bool {
	in, ok := f.Stdin.(*os.File)
	return ok && term.IsTerminal(int(in.Fd())) && cmdutil.IsTerminal(f.Stdout)
}

// showInTerminal runs a command that draws on the user's terminal.
func showInTerminal(ctx context.Context, f *cmdutil.Factory, sb *sandbox.Sandbox, argv []string) error {
	c := sandbox.Command{Argv: argv, Stdin: f.Stdin}
	if kind := f.Getenv("TERM"); kind != "" {
		c.Env = []string{"TERM=" + kind}
	}
	return runInTerminal(ctx, f, sb, c)
}

// terminal lends the user's terminal to a command in a sandbox until leave is called, with its present size and later ones; now is nil
// if there is none. Keys are the command's meanwhile, Ctrl-C as well.
func terminal(f *cmdutil.Factory) (now *sandbox.Size, resized <-chan sandbox.Size, leave func(), err error) {
	if !atTerminal(f) {
		return nil, nil, func() {}, nil
	}
	in := f.Stdin.(*os.File)
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, nil, nil, fmt.Errorf("take the terminal: %w", err)
	}
	changed, sizes, left := make(chan os.Signal, 1), make(chan sandbox.Size), make(chan struct{})
	signal.Notify(changed, unix.SIGWINCH)
	go func() {
		for {
			select {
			case <-changed:
			case <-left:
				return
			}
			select {
			case sizes <- size(f):
			case <-left:
				return
			}
		}
	}()
	first := size(f)
	return &first, sizes, func() {
		signal.Stop(changed)
		close(left)
		_ = term.Restore(int(in.Fd()), before) // a terminal that has gone away needs no repair
	}, nil
}

func size(f *cmdutil.Factory) sandbox.Size {
	width, height := cmdutil.TerminalSize(f.Stdout)
	return sandbox.Size{Rows: uint16(max(height, 0)), Cols: uint16(max(width, 0))}
}
