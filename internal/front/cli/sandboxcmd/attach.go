package sandboxcmd

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type attachOptions struct{ from int64 }

// NewCmdAttach makes the command.
func NewCmdAttach(f *cmdutil.Factory) *cobra.Command {
	o := &attachOptions{}
	cmd := &cobra.Command{
		Use: "attach TASK | SANDBOX [ID]", Short: "Return to a running agent, or to a background command",
		Long: `Shows the terminal of the agent that 'start' has started; Ctrl-B D leaves it
running. If none runs, or without a terminal, it shows the last background
command. A task's events are followed, as by 'logs --follow'.

With ID, or without an agent, it shows the output of a command that
'exec --detach' started, from its beginning until it ends, and ends with its exit
code. An interrupt ends only the showing. An id can be shortened. The sandbox
keeps the last 8 MB of each command's output.`,
		Example:           "  sandbox-agent attach dev\n  sandbox-agent attach dev Q7ZK --from 1000\n  sandbox-agent attach T-A1B2C3D4",
		Args:              cmdutil.Args(1, 2, "one name, and at most one id", "`sandbox-agent ps` lists tasks and sandboxes"),
		ValidArgsFunction: f.CompleteEither(false, mayRun),
		RunE: func(cmd *cobra.Command, args []string) error {
			id := ""
			if len(args) == 2 {
				id = args[1]
			}
			return o.do(cmd.Context(), f, args[0], id)
		},
	}
	cmd.Flags().Int64Var(&o.from, "from", 0, "start at this byte of the output")
	return cmd
}

func (o *attachOptions) do(ctx context.Context, f *cmdutil.Factory, name, id string) error {
	sb, done, err := f.Sandboxes().Either(ctx, name)
	if err != nil {
		return err
	}
	if sb == nil {
		if id != "" || o.from != 0 {
			return app.Usagef("an id and --from need a standalone sandbox: %s is a task", name)
		}
		return (&logsOptions{follow: true}).do(ctx, name, f)
	}
	defer done()
	if id == "" && o.from == 0 && atTerminal(f) {
		switch argv, err := app.AgentTerminal(ctx, sb); {
		case err != nil:
			return err
		case argv != nil:
			return showInTerminal(ctx, f, sb, argv)
		}
	}
	if id == "" {
		all, err := sb.Commands(ctx)
		if err != nil {
			return app.SandboxError(err)
		}
		for _, c := range all {
			if c.Background {
				id = c.ID
			}
		}
		if id == "" {
			return exiterr.New(workorder.ExitNotFound, fmt.Errorf("no agent to show here and no background command in sandbox %s", name),
				"start one with: sandbox-agent start "+name+", or sandbox-agent exec --detach "+name+" COMMAND")
		}
	}
	p, err := sb.Attach(ctx, id, o.from)
	if err != nil {
		return app.SandboxError(err)
	}
	g := &gap{at: o.from, notes: f.Stderr}
	p.OnLost(func(n int64) { g.lost += n })
	err = waitFor(ctx, f, p, 0, gapWriter{g, f.Stdout}, gapWriter{g, f.CommandStderr()})
	g.tell(0)
	return err
}

// gap is output that the sandbox does not keep any more, before what comes next, which then begins at a line.
type gap struct {
	at, lost int64 // offset of the next byte, as far as it is known, and lost bytes to report
	notes    io.Writer
}

// tell says what is missing, and of what is there how much is left out up to the next line.
func (g *gap) tell(more int64) {
	if g.lost == 0 {
		return
	}
	n := g.lost + more
	fmt.Fprintf(g.notes, "note: %d bytes of the output are not kept any more, from byte %d on: what follows begins at byte %d\n",
		n, g.at, g.at+n)
	g.at, g.lost = g.at+g.lost, 0
}

// gapWriter passes on one stream.
type gapWriter struct {
	g  *gap
	to io.Writer
}

func (w gapWriter) Write(p []byte) (int, error) {
	rest := p
	if w.g.lost > 0 {
		rest = p[bytes.IndexByte(p, '\n')+1:] // all of it where no line ends in it
		w.g.tell(int64(len(p) - len(rest)))
	}
	w.g.at += int64(len(p))
	if _, err := w.to.Write(rest); err != nil {
		return 0, err
	}
	return len(p), nil
}
