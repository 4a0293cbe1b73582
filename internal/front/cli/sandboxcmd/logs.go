package sandboxcmd

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

type logsOptions struct {
	follow, json, api bool
	attempt           int
}

// NewCmdLogs makes the command.
func NewCmdLogs(f *cmdutil.Factory) *cobra.Command {
	o := &logsOptions{}
	cmd := &cobra.Command{
		Use: "logs TASK | SANDBOX", Short: "Show the events of a task, or the log of a sandbox", Args: cmdutil.OneTask,
		ValidArgsFunction: f.CompleteEither(false),
		Long: `Shows the events of a task so far; with --follow also those to come. --follow
collects the result when the task ends, and ends with the task's exit code, so
that a script can wait for a detached task. An interrupt ends only the
following, with exit code 130; 'stop' ends a task.

Without a terminal only steps and failures are shown; --verbose shows all.

For a standalone sandbox it shows with times what started and ended, what the
network refused, and what its guest program reports, such as why it ended;
--verbose also shows skipped steps. --json prints the guest's lines as they are,
'inspect --history' what was done to the sandbox, 'attach' a command's output.

--api shows the calls of the model gateway, without their content: time, model,
tokens, status and cost. Those of a sandbox can also be read after 'down'.`,
		Example: "  sandbox-agent logs T-A1B2C3D4\n  sandbox-agent logs -f A1B2\n  sandbox-agent logs dev\n  sandbox-agent logs --api dev",
		RunE:    func(cmd *cobra.Command, args []string) error { return o.do(cmd.Context(), args[0], f) },
	}
	cmd.Flags().BoolVarP(&o.follow, "follow", "f", false, "follow until the end, and collect the result")
	cmd.Flags().IntVar(&o.attempt, "attempt", 0, "number of an earlier attempt (default: the last)")
	cmd.Flags().BoolVar(&o.api, "api", false, "show the calls of the model gateway")
	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON lines")
	return cmd
}

func (o *logsOptions) do(ctx context.Context, id string, f *cmdutil.Factory) error {
	if o.api {
		return o.calls(ctx, f, id)
	}
	sb, done, err := f.Sandboxes().Either(ctx, id)
	if err != nil {
		return err
	}
	if sb != nil {
		defer done()
		return o.sandbox(ctx, f, sb)
	}
	rec, err := f.Tasks().RecordedAttempt(ctx, id, o.attempt)
	if err != nil {
		return err
	}
	view := f.NewView(f.Stdout, o.json)
	defer view.Close()
	if o.follow && !rec.Collected {
		view.Told = true
		res, err := f.Tasks().Follow(ctx, rec, view.Event)
		view.Close()
		return f.Followed(ctx, res, o.json, err)
	}
	err = f.Tasks().Replay(ctx, rec, view.Event)
	switch {
	case err != nil && ctx.Err() != nil:
		return cmdutil.Interrupted(ctx)
	case err == nil && o.follow:
		return cmdutil.Ended(rec.Status, rec.EndedBy)
	}
	return err
}

// calls shows the calls of the model gateway.
func (o *logsOptions) calls(ctx context.Context, f *cmdutil.Factory, name string) error {
	if o.follow {
		return app.Usagef("--api and --follow cannot be combined")
	}
	all, raw, err := app.ModelCalls(ctx, &f.Env, name, o.attempt)
	if err != nil {
		return err
	}
	if o.json {
		_, err := f.Stdout.Write(text.EscapeControls(raw))
		return err
	}
	w := tabwriter.NewWriter(f.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "TIME\tAPI\tMODEL\tSTATUS\tINPUT\tOUTPUT\tCACHE READ\tCACHE WRITE\tUSD\tTOOK\tREFUSED")
	for _, c := range all {
		usd := "-"
		if c.CostUSD != nil {
			usd = fmt.Sprintf("%.4f", *c.CostUSD)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\n", c.Time.Local().Format(time.DateTime), text.Clean(c.API),
			text.Clean(c.Model), c.Status, c.Input, c.Output, c.CacheRead, c.CacheWrite, usd,
			time.Duration(c.Millis)*time.Millisecond, text.Clean(c.Refused))
	}
	return w.Flush()
}
