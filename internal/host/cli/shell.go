package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/shell"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// mayRun puts tasks first whose sandbox may run.
func mayRun(r, s *store.Record) bool { return !r.Collected && s.Collected }

// bestShells are tried in this order.
var bestShells = []string{"bash", "ash", "sh"}

type shellOptions struct{ shell string }

func newShellCmd(a *App) *cobra.Command {
	o := &shellOptions{}
	cmd := &cobra.Command{
		Use: "shell TASK | SANDBOX [-- COMMAND...]", Short: "Open a shell in a sandbox, or beside a task's agent",
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
		return usage("--shell %q: use %s", o.shell, strings.Join(sandbox.Shells, ", "))
	}
	sb, done, err := a.eitherSandbox(ctx, name)
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
		if c.Argv, err = ownTerminal(ctx, sb); err != nil {
			return err
		}
	default:
		if c.Argv, err = bestShell(ctx, sb); err != nil {
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
	return ok && term.IsTerminal(int(in.Fd())) && isTerminal(a.Stdout)
}

// showInTerminal runs a command that draws on the user's terminal.
func (a *App) showInTerminal(ctx context.Context, sb *sandbox.Sandbox, argv []string) error {
	c := sandbox.Command{Argv: argv, Stdin: a.Stdin}
	if kind := a.Getenv("TERM"); kind != "" {
		c.Env = []string{"TERM=" + kind}
	}
	return a.runInTerminal(ctx, sb, c)
}

// visitorTerminal returns the command for a person who opens a sandbox: it shows the agent that runs in it, or else its
// own terminal.
func visitorTerminal(ctx context.Context, sb *sandbox.Sandbox) ([]string, error) {
	if argv, err := agentTerminal(ctx, sb); err != nil || argv != nil {
		return argv, err
	}
	return ownTerminal(ctx, sb)
}

// agentTerminal returns the command that shows the running agent; nil if none runs.
func agentTerminal(ctx context.Context, sb *sandbox.Sandbox) ([]string, error) {
	r, err := sb.Run(ctx, sandbox.Command{
		Argv: []string{"sh", "-c", anyAgentScript, "sh", tmuxSession}, Dir: "/", Timeout: beginTime, Unrecorded: true,
	})
	if err != nil {
		return nil, sandboxError(err)
	}
	window := strings.TrimSpace(string(r.Stdout))
	if window == "" {
		return nil, nil
	}
	return showSession("=" + tmuxSession + ":" + window), nil
}

// showSession returns the command that shows a session of tmux, or a window of one.
func showSession(target string) []string { return []string{"sh", "-c", showTerminal, "sh", target} }

// ownTerminal returns the command that shows a sandbox's own terminal: a session of tmux, which goes on without a
// client. A separate command starts it, since all that a command started ends when its caller is killed. Without tmux
// it is a shell that ends with its caller.
func ownTerminal(ctx context.Context, sb *sandbox.Sandbox) ([]string, error) {
	r, err := sb.Run(ctx, sandbox.Command{Argv: []string{"sh", "-c", beginTerminal}, Timeout: beginTime, Unrecorded: true})
	if err != nil {
		return nil, sandboxError(err)
	}
	if r.ExitCode != 0 {
		return bestShell(ctx, sb)
	}
	return showSession("=" + shellSession), nil
}

const (
	// shellSession is the session of tmux with a sandbox's own terminal. That of agents is tmuxSession.
	shellSession  = "main"
	beginTerminal = `command -v tmux >/dev/null || exit 1
tmux has-session -t =` + shellSession + ` && exit
set -- new-session -d -s ` + shellSession + `
` + runTmux + ` || tmux has-session -t =` + shellSession
	// runTmux executes the tmux commands in the script's arguments, with one server for all sessions. The user's
	// ~/.tmux.conf replaces these options.
	runTmux = `test -e ~/.tmux.conf || set -- set-option -g history-limit 50000 ';' set-option -g mouse on ';' \
	set-option -g focus-events on ';' set-option -g default-terminal tmux-256color ';' "$@"
tmux start-server ';' "$@"`
	// anyAgentScript prints the window of an agent whose program runs: the current one, if it is among them.
	anyAgentScript = `tmux list-windows -t "=$1" -F '#{pane_dead} #{window_active} #{window_index}' 2>/dev/null |
sed -n 's/^0 //p' | sort -r | sed -n '1s/.* //p'`
	// An unknown terminal is treated as xterm; a dumb one cannot show another.
	showTerminal = `test "$TERM" != dumb || exec sh
infocmp >/dev/null 2>&1 || TERM=xterm-256color
export TERM
exec tmux -u attach-session -t "$1"`
	// beginTime bounds a start of tmux on a busy machine.
	beginTime = 20 * time.Second
)

func bestShell(ctx context.Context, sb *sandbox.Sandbox) ([]string, error) {
	for _, name := range bestShells {
		r, err := sb.Run(ctx, sandbox.Command{Argv: []string{name, "-c", ":"}, Unrecorded: true})
		if err != nil {
			return nil, sandboxError(err)
		}
		if r.ExitCode == 0 {
			return []string{name}, nil
		}
	}
	return nil, notFound(fmt.Errorf("sandbox %s has none of %s", sb.Name(), strings.Join(bestShells, ", ")), "`sandbox-agent shell "+sb.Name()+" -- PROGRAM` runs a program that it has")
}

func (a *App) shell(ctx context.Context, id string, argv []string) error {
	c := shell.Command{Argv: argv, Stdin: a.Stdin, Stdout: a.Stdout, Stderr: a.Stderr, Term: a.Getenv("TERM")}
	terminal, leave, err := a.terminal()
	if err != nil {
		return err
	}
	defer leave()
	c.Terminal = terminal
	code, err := a.inBox(ctx, id, c)
	if err == nil && code != 0 {
		return cmdutil.Exit(code)
	}
	return err
}

// inBox runs a command in a task's running box.
func (a *App) inBox(ctx context.Context, id string, c shell.Command) (code int, err error) {
	st, rec, err := a.task(ctx, id)
	if err != nil {
		return 0, err
	}
	be, err := a.open()
	if err != nil {
		return 0, err
	}
	var box *runtime.Box
	if !rec.Collected {
		if box, err = a.tasks(nil).Launcher(be, st, nil).Find(ctx, rec); err != nil {
			return 0, err
		}
	}
	code, err = shell.Run(ctx, be.Engine, rec.TaskID, box, c)
	if err != nil && ctx.Err() != nil {
		return 0, left(ctx)
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
	width, height := termSize(a.Stdout)
	return runtime.Size{Width: uint(max(width, 0)), Height: uint(max(height, 0))}
}
