package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Exit codes of exec beside the command's own: those of GNU timeout.
const (
	exitTimedOut = 124
	exitOurs     = 125
)

type execOptions struct {
	json, interactive, terminal, background bool
	env                                     []string
	dir, most                               string
	timeout                                 time.Duration
}

func newExecCmd(a *App) *cobra.Command {
	o := &execOptions{}
	cmd := &cobra.Command{
		Use: "exec SANDBOX -- COMMAND...", Short: "Run a command in a sandbox without a task",
		Long: `Runs a command in a sandbox that ` + "`sandbox-agent up`" + ` has made, and ends with its exit code; 124 means that
--timeout was over, 125 that the command's end is not known. Standard input goes in where it is no
terminal, or with -i. Interrupted, it ends the command and everything that the command started. With --background it prints an id and leaves: ` + "`sandbox-agent attach`" + `
shows what the command prints, from its beginning.`,
		Example: "  sandbox-agent exec dev -- uname -a\n  echo hi | sandbox-agent exec dev --timeout 5s -- cat\n  sandbox-agent exec -t dev -- bash\n  sandbox-agent exec dev --background -- sh -c 'while date; do sleep 1; done'",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return nil
			}
			return fault.New(workorder.ExitUsage, errors.New("name a sandbox and a command"), "for example: sandbox-agent exec dev -- uname -a")
		},
		ValidArgsFunction: a.completeSandboxes(false),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.do(cmd.Context(), a, args[0], args[1:])
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.json, "json", false, "print a JSON document with output, exit code and duration")
	f.BoolVarP(&o.interactive, "interactive", "i", false, "hand on standard input, also from a terminal")
	f.BoolVarP(&o.terminal, "tty", "t", false, "give it a terminal; Ctrl-C goes in")
	f.BoolVar(&o.background, "background", false, "print the command's id and leave it running")
	f.StringArrayVar(&o.env, "env", nil, "NAME=value; can be repeated")
	f.StringVar(&o.dir, "workdir", "", "where it begins")
	f.DurationVar(&o.timeout, "timeout", 0, "end it and everything it started after that time, as 30s")
	f.StringVar(&o.most, "max-output", "", "with --json: bound of each stream, as 64k; none for no bound (default 1m)")
	cmd.MarkFlagsMutuallyExclusive("background", "tty")
	cmd.MarkFlagsMutuallyExclusive("json", "tty")
	return cmd
}

// execResult is what --json prints.
type execResult struct {
	ID          string `json:"id"`
	Stdout      string `json:"stdout"`
	Stderr      string `json:"stderr"`
	ExitCode    int    `json:"exit_code"`
	Signal      int    `json:"signal,omitempty"`
	TimedOut    bool   `json:"timed_out"`
	OutOfMemory bool   `json:"out_of_memory"`
	Truncated   bool   `json:"truncated"`
	DurationMS  int64  `json:"duration_ms"`
	Error       string `json:"error,omitempty"` // why it could not be started
}

func (o *execOptions) do(ctx context.Context, a *App, name string, argv []string) error {
	c := sandbox.Command{Argv: argv, Dir: o.dir, Env: o.env, Timeout: o.timeout, Background: o.background}
	if o.timeout < 0 {
		return fault.New(workorder.ExitUsage, fmt.Errorf("--timeout %s is less than nothing", o.timeout), "")
	}
	most, err := parseOutput(o.most)
	if err != nil {
		return fault.New(workorder.ExitUsage, err, "")
	}
	c.MaxOutput = most
	if in, ok := a.Stdin.(*os.File); o.interactive || o.terminal || !ok || !term.IsTerminal(int(in.Fd())) {
		c.Stdin = a.Stdin
	}
	sb, done, err := a.sandbox(ctx, name)
	if err != nil {
		return err
	}
	defer done()
	switch {
	case o.background:
		return o.leave(ctx, a, sb, c)
	case o.json:
		return o.report(ctx, a, sb, c)
	case o.terminal:
		t, restore, err := a.terminal()
		if err != nil {
			return err
		}
		defer restore()
		c.Terminal = &sandbox.Size{Rows: defaultRows, Cols: defaultCols}
		var resized <-chan sandbox.Size
		if t != nil {
			c.Terminal = &sandbox.Size{Rows: uint16(t.Size.Height), Cols: uint16(t.Size.Width)}
			sizes := make(chan sandbox.Size)
			go func() {
				for {
					select {
					case s := <-t.Resized:
						sizes <- sandbox.Size{Rows: uint16(s.Height), Cols: uint16(s.Width)}
					case <-ctx.Done():
						return
					}
				}
			}()
			resized = sizes
		}
		return a.runIn(ctx, sb, c, resized)
	default:
		return a.runIn(ctx, sb, c, nil)
	}
}

// The size of a terminal where the user has none.
const defaultRows, defaultCols = 24, 80

func parseOutput(t string) (int, error) {
	switch t {
	case "":
		return 0, nil
	case none:
		return sandbox.NoLimit, nil
	}
	n, ok := projects.ParseSize(t)
	const least, largest = 64, 1 << 30
	if !ok || n < least || n > largest {
		return 0, fmt.Errorf("--max-output %q: use 64k, 1m or none, at most 1g", t)
	}
	return int(n), nil
}

// leave starts the command in the background.
func (o *execOptions) leave(ctx context.Context, a *App, sb *sandbox.Sandbox, c sandbox.Command) error {
	p, err := sb.Start(ctx, c)
	if err != nil {
		return sandboxError(err)
	}
	defer p.Close()
	if o.json {
		return a.json(struct {
			ID string `json:"id"`
		}{p.ID()})
	}
	fmt.Fprintln(a.Stdout, p.ID())
	return nil
}

// report runs the command to its end and prints a document.
func (o *execOptions) report(ctx context.Context, a *App, sb *sandbox.Sandbox, c sandbox.Command) error {
	r, err := sb.Run(ctx, c)
	if err != nil {
		return unknownEnd(ctx, err)
	}
	if err := a.json(execResult{
		ID: r.ID, Stdout: string(r.Stdout), Stderr: string(r.Stderr), ExitCode: r.ExitCode, Signal: int(r.Signal), TimedOut: r.TimedOut, OutOfMemory: r.OutOfMemory,
		Truncated: r.Truncated, DurationMS: r.Duration.Milliseconds(), Error: r.Reason,
	}); err != nil {
		return err
	}
	return exitOf(r)
}

// runIn runs the command and hands on what it prints as it comes.
func (a *App) runIn(ctx context.Context, sb *sandbox.Sandbox, c sandbox.Command, resized <-chan sandbox.Size) error {
	p, err := sb.Start(ctx, c)
	if err != nil {
		return sandboxError(err)
	}
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
	return a.waitFor(ctx, p, a.Stdout, a.Stderr)
}

// waitFor waits for a command's end and returns it as an exit code.
func (a *App) waitFor(ctx context.Context, p *sandbox.Process, out, errOut io.Writer) error {
	r, err := p.Wait(ctx, out, errOut)
	if err != nil {
		return unknownEnd(ctx, err)
	}
	if r.Reason != "" {
		fmt.Fprintln(a.Stderr, "error: "+r.Reason)
	}
	if r.OutOfMemory {
		fmt.Fprintln(a.Stderr, "the sandbox's memory limit ended the command: `sandbox-agent up --memory` gives another more")
	}
	return exitOf(r)
}

// unknownEnd is the error of a command that had begun.
func unknownEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return &ending{exitLeft}
	}
	if errors.Is(err, sandbox.ErrLost) {
		return fault.New(exitOurs, err, "whether the command has ended is not known: `sandbox-agent ps` shows whether the sandbox runs")
	}
	return sandboxError(err)
}

func exitOf(r sandbox.Result) error {
	switch {
	case r.TimedOut:
		return &ending{exitTimedOut}
	case r.ExitCode != 0:
		return &ending{r.ExitCode}
	}
	return nil
}

type attachOptions struct{ from int64 }

func newAttachCmd(a *App) *cobra.Command {
	o := &attachOptions{}
	cmd := &cobra.Command{
		Use: "attach SANDBOX [ID]", Short: "Show what a command in a sandbox's background prints",
		Long: `Shows what a command prints that ` + "`exec --background`" + ` has started, from its beginning, until it ends, and ends
with its exit code. An interrupt ends only the showing. Without an id it is the last one; an id can be shortened. The sandbox keeps the last 8 MB of
each command's output.`,
		Example: "  sandbox-agent attach dev\n  sandbox-agent attach dev Q7ZK --from 1000",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 || len(args) == 2 {
				return nil
			}
			return fault.New(workorder.ExitUsage, fmt.Errorf("%s needs a sandbox's name, and an id where it is not the last command", cmd.CommandPath()), "`sandbox-agent ps` lists sandboxes")
		},
		ValidArgsFunction: a.completeSandboxes(false),
		RunE: func(cmd *cobra.Command, args []string) error {
			id := ""
			if len(args) == 2 {
				id = args[1]
			}
			return o.do(cmd.Context(), a, args[0], id)
		},
	}
	cmd.Flags().Int64Var(&o.from, "from", 0, "begin at that byte of the output")
	return cmd
}

func (o *attachOptions) do(ctx context.Context, a *App, name, id string) error {
	sb, done, err := a.sandbox(ctx, name)
	if err != nil {
		return err
	}
	defer done()
	if id == "" {
		all, err := sb.Commands(ctx)
		if err != nil {
			return sandboxError(err)
		}
		for _, c := range all {
			if c.Background {
				id = c.ID
			}
		}
		if id == "" {
			return fault.New(workorder.ExitNotFound, fmt.Errorf("sandbox %s knows no command of its background", name), "`sandbox-agent exec "+name+" --background -- COMMAND` starts one")
		}
	}
	p, err := sb.Attach(ctx, id, o.from)
	if err != nil {
		return sandboxError(err)
	}
	return a.waitFor(ctx, p, a.Stdout, a.Stderr)
}
