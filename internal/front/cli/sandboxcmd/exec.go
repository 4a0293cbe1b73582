package sandboxcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type execOptions struct {
	json, interactive, terminal, background bool
	env, expose                             []string
	dir, most, shell, image                 string
	timeout                                 time.Duration
}

// NewCmdExec makes the command.
func NewCmdExec(f *cmdutil.Factory) *cobra.Command {
	o := &execOptions{}
	var name string
	var argv []string
	cmd := &cobra.Command{
		Use: "exec {SANDBOX | TASK | --} COMMAND...", Short: "Run a command in a sandbox, or in the sandbox of a task",
		Long: `Runs a command and ends with its exit code; 124 means that it reached --timeout,
125 that the connection was lost. Standard input is passed on unless it is a
terminal; -i passes on a terminal, too. An interrupt ends the command with all
its processes.

With --detach it prints an id and leaves the command running; 'attach' shows its
output. With --expose it waits until the command listens at the port, at most
30s, and prints its address on this machine.

"exec -- COMMAND" uses the sandbox of SANDBOX_AGENT_SANDBOX, or the one whose
branch descends from what is checked out here, or else one of its own for the
current directory, which it creates empty at the first use. No command ever runs
on this machine itself.

With a task id the command runs beside the task's agent, as the user sandbox and
with the agent's limits.`,
		Example: `  sandbox-agent exec dev uname -a
  sandbox-agent exec -- python3 -c 'print(6 * 7)'
  echo hi | sandbox-agent exec --timeout 5s dev cat
  sandbox-agent exec -it dev bash
  sandbox-agent exec --shell bash dev 'for i in 1 2; do echo $i; done'
  sandbox-agent exec -d -p 8000 dev python3 -m http.server 8000
  sandbox-agent exec T-A1B2C3D4 git status --short`,
		Args: func(cmd *cobra.Command, args []string) (err error) {
			if name, argv, err = cmdutil.NameAndCommand(cmd, args); err != nil {
				return err
			}
			if len(argv) == 0 {
				return exiterr.New(workorder.ExitUsage, cmdutil.ErrNoCommand, "for example: sandbox-agent exec dev uname -a")
			}
			if name == "" {
				return nil
			}
			return app.CheckTask(name)
		},
		ValidArgsFunction: f.CompleteEither(false, mayRun),
		RunE:              func(cmd *cobra.Command, _ []string) error { return o.do(cmd.Context(), f, name, argv) },
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.json, "json", false, "print JSON with output, exit code and duration")
	flags.BoolVarP(&o.interactive, "interactive", "i", false, "pass on standard input, also from a terminal")
	flags.BoolVarP(&o.terminal, "tty", "t", false, "allocate a terminal")
	flags.BoolVarP(&o.background, "detach", "d", false, "print the command's id and leave it running")
	cmdutil.OldName(flags, "detach", "background")
	flags.StringArrayVarP(&o.expose, "expose", "p", nil, "wait for a port and publish it: `[LOCAL:]PORT` (repeatable)")
	flags.StringArrayVarP(&o.env, "env", "e", nil, "set a variable: `NAME=value` (repeatable)")
	flags.StringVarP(&o.dir, "workdir", "w", "", "directory in which the command starts")
	flags.StringVar(&o.shell, "shell", "", "run the words as a script of this shell: "+strings.Join(sandbox.Shells, ", "))
	cmdutil.DurationVar(flags, &o.timeout, "timeout", 0, "end the command and its processes after this long")
	flags.StringVar(&o.most, "max-output", "", "with --json: limit of each stream, such as 64k, or none (default 1m)")
	flags.StringVar(&o.image, "image", "", "image of the current directory's sandbox, when it is created")
	flags.SetInterspersed(false) // what follows the name is the command's
	cmd.MarkFlagsMutuallyExclusive("detach", "tty")
	cmd.MarkFlagsMutuallyExclusive("background", "tty")
	cmd.MarkFlagsMutuallyExclusive("json", "tty")
	// It can only fail for a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("shell", cobra.FixedCompletions(sandbox.Shells, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// execResult is what --json prints.
type execResult struct {
	ID      string `json:"id"`
	Sandbox string `json:"sandbox"`
	Stdout  string `json:"stdout"`
	Stderr  string `json:"stderr"`
	sandbox.ExitStatus
	DurationMS int64 `json:"duration_ms"`
	// Commit is what it has changed in the sandbox's clone.
	Commit string `json:"commit,omitempty"`
	// Endpoints are where the ports of --expose are on this machine.
	Endpoints map[string]string `json:"endpoints,omitempty"`
}

func (o *execOptions) command(argv []string) (c sandbox.Command, ports []app.Port, err error) {
	c = sandbox.Command{Argv: argv, Dir: o.dir, Env: o.env, Timeout: o.timeout, Background: o.background, Masked: true}
	var errs []error
	if o.timeout < 0 {
		errs = append(errs, errors.New("--timeout must not be negative"))
	}
	if c.MaxOutput, err = cmdutil.ParseOutput(o.most); err != nil {
		errs = append(errs, err)
	}
	if ports, err = app.ParsePorts(o.expose); err != nil {
		errs = append(errs, err)
	}
	switch {
	case o.shell == "":
	case slices.Contains(sandbox.Shells, o.shell):
		c.Argv = []string{o.shell, "-c", strings.Join(argv, " ")}
	default:
		errs = append(errs, fmt.Errorf("--shell %q: use %s", o.shell, strings.Join(sandbox.Shells, ", ")))
	}
	return c, ports, exiterr.New(workorder.ExitUsage, errors.Join(errs...), "")
}

func (o *execOptions) do(ctx context.Context, f *cmdutil.Factory, name string, argv []string) error {
	c, ports, err := o.command(argv)
	if err != nil {
		return err
	}
	if in, ok := f.Stdin.(*os.File); o.interactive || o.terminal || !ok || !term.IsTerminal(int(in.Fd())) {
		c.Stdin = f.Stdin
	}
	if name != "" && o.image != "" {
		return app.Usagef("--image cannot change the image of the existing sandbox %s", name)
	}
	var sb *sandbox.Sandbox
	var done func()
	if name == "" {
		name, err = f.Sandboxes().Current(ctx, o.image)
	}
	if err == nil {
		sb, done, err = f.Sandboxes().ToRun(ctx, name)
	}
	if err != nil {
		return err
	}
	if sb == nil {
		return o.inTask(ctx, f, name, c)
	}
	defer done()
	if len(ports) > 0 {
		if ports, err = f.Endpoints().Add(ctx, name, ports); err != nil {
			return err
		}
	}
	switch {
	case o.background:
		return o.leave(ctx, f, sb, c, ports)
	case o.json:
		return o.report(ctx, f, sb, c, ports)
	case o.terminal:
		return runInTerminal(ctx, f, sb, c)
	}
	for _, p := range ports {
		fmt.Fprintf(f.Stderr, "port %d is at %s\n", p.Port, app.LocalAddress(p))
	}
	return runSaved(ctx, f, sb, c, nil)
}

// runSaved runs a command and saves what it has changed.
func runSaved(ctx context.Context, f *cmdutil.Factory, sb *sandbox.Sandbox, c sandbox.Command, resized <-chan sandbox.Size) error {
	// A reader that leaves (`| head`) ends the command: this program goes on, and saves what it has changed.
	gone := make(chan os.Signal, 1)
	signal.Notify(gone, syscall.SIGPIPE)
	defer signal.Stop(gone)
	started := time.Now()
	err := runIn(ctx, f, sb, c, resized)
	if errors.Is(err, syscall.EPIPE) {
		err = cmdutil.Exit(app.ExitSignal + int(syscall.SIGPIPE))
	}
	if end, ok := errors.AsType[*cmdutil.ExitError](err); err == nil || ok {
		code := 0
		if ok {
			code = end.Code
		}
		f.Sandboxes().Save(ctx, sb, app.RanNow(c.Argv, started, code))
	}
	return err
}

// runInTerminal runs the command in a terminal of the sandbox, joined to the user's where there is one.
func runInTerminal(ctx context.Context, f *cmdutil.Factory, sb *sandbox.Sandbox, c sandbox.Command) error {
	size, resized, restore, err := terminal(f)
	if err != nil {
		return err
	}
	defer restore()
	c.Terminal = &sandbox.Size{Rows: defaultRows, Cols: defaultCols}
	if size != nil {
		defer f.Sandboxes().MarkAttached(sb.Name())()
		c.Stdin, c.Terminal = keys{c.Stdin}, size
	}
	return runSaved(ctx, f, sb, c, resized)
}

// keys are those of a terminal, which end when it is gone: to the command, that is no key (^D).
type keys struct{ io.Reader }

func (k keys) Read(p []byte) (int, error) {
	n, err := k.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = errors.New("the terminal is gone")
	}
	return n, err
}

// The size of a terminal where the user has none.
const defaultRows, defaultCols = 24, 80

// leave starts the command in the background.
func (o *execOptions) leave(
	ctx context.Context, f *cmdutil.Factory, sb *sandbox.Sandbox, c sandbox.Command, ports []app.Port,
) error {
	p, err := sb.Start(ctx, c)
	if err != nil {
		return app.SandboxError(err)
	}
	defer p.Close()
	f.Sandboxes().NoteRecreated(sb)
	if len(ports) > 0 {
		if err := f.Endpoints().AwaitListening(ctx, sb, p, ports); err != nil {
			return err
		}
	}
	if o.json {
		return f.JSON(struct {
			ID        string            `json:"id"`
			Sandbox   string            `json:"sandbox"`
			Endpoints map[string]string `json:"endpoints,omitempty"`
		}{p.ID(), sb.Name(), app.Addresses(ports)})
	}
	fmt.Fprintln(f.Stdout, p.ID())
	tellEndpoints(f, ports)
	return nil
}

// report runs the command to its end and prints a document.
func (o *execOptions) report(
	ctx context.Context, f *cmdutil.Factory, sb *sandbox.Sandbox, c sandbox.Command, ports []app.Port,
) error {
	started := time.Now()
	r, err := sb.Run(ctx, c)
	if errors.Is(err, sandbox.ErrLimitReached) { // it could not be started, and that is an end
		r.ExitStatus, err = sandbox.ExitStatus{ExitCode: app.ExitCannotRun, Reason: err.Error()}, nil
	}
	if err != nil {
		return cmdutil.UnknownEnd(ctx, err)
	}
	f.Sandboxes().NoteRecreated(sb)
	commit := f.Sandboxes().Save(ctx, sb, app.RanNow(c.Argv, started, r.ExitCode))
	if err := f.JSON(execResult{
		ID: r.ID, Sandbox: sb.Name(), Endpoints: app.Addresses(ports), Stdout: string(r.Stdout), Stderr: string(r.Stderr),
		ExitStatus: r.ExitStatus, DurationMS: r.Duration.Milliseconds(), Commit: commit,
	}); err != nil {
		return err
	}
	return cmdutil.ExitOf(r.ExitStatus)
}

// runIn runs the command and hands on what it prints as it comes.
func runIn(ctx context.Context, f *cmdutil.Factory, sb *sandbox.Sandbox, c sandbox.Command, resized <-chan sandbox.Size) error {
	p, err := sb.Start(ctx, c)
	if err != nil {
		return app.SandboxError(err)
	}
	f.Sandboxes().NoteRecreated(sb)
	over := make(chan struct{})
	defer close(over)
	go func() {
		for {
			select {
			case s := <-resized:
				_ = p.Resize(ctx, s) // a command that has ended has no size
			case <-over:
				return
			}
		}
	}()
	return waitFor(ctx, f, p, c.Timeout, f.Stdout, f.CommandStderr())
}

// waitFor waits for a command's end and returns it as an exit code.
func waitFor(ctx context.Context, f *cmdutil.Factory, p *sandbox.Process, limit time.Duration, out, errOut io.Writer) error {
	r, err := p.Wait(ctx, out, errOut)
	if err != nil {
		return cmdutil.UnknownEnd(ctx, err)
	}
	f.TellEnd(r.ExitStatus, limit, "`sandbox-agent up --memory` gives another more")
	return cmdutil.ExitOf(r.ExitStatus)
}
