package sandboxcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

const (
	monitorInterval = time.Minute
	leastInterval   = time.Second
)

type monitorOptions struct {
	interval time.Duration
	restart  bool
	json     bool
	once     bool
}

// NewCmdMonitor makes the command.
func NewCmdMonitor(f *cmdutil.Factory) *cobra.Command {
	o := &monitorOptions{}
	cmd := &cobra.Command{
		Use: "monitor", Short: "Watch sandboxes: commit changes, report exits, restart", Args: cmdutil.NoArgs,
		Long: `Checks the named sandboxes of this state directory at each interval until it is
interrupted. It prints which are new, healthy, unresponsive, ended or removed,
each when that changes, and commits changes in the clones of those without
--idle. --auto-restart restarts sandboxes that ended unexpectedly, after pauses
that double up to half an hour. It does not restart what a command, --idle or
--ttl stopped.`,
		Example: "  sandbox-agent monitor\n  sandbox-agent monitor --interval 10s --auto-restart",
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.do(cmd.Context(), f) },
	}
	flags := cmd.Flags()
	cmdutil.DurationVar(flags, &o.interval, "interval", monitorInterval, "time between two checks")
	flags.BoolVar(&o.restart, "auto-restart", false, "restart sandboxes that ended unexpectedly")
	flags.BoolVar(&o.json, "json", false, "print each change as JSON")
	flags.BoolVar(&o.once, "once", false, "check once and end")
	return cmd
}

func (o *monitorOptions) do(ctx context.Context, f *cmdutil.Factory) error {
	if o.interval < leastInterval {
		return app.Usagef("--interval %s: use at least %s", o.interval, leastInterval)
	}
	report := func(e app.MonitorEvent) { printMonitorEvent(f.Stdout, e) }
	if o.json {
		out := json.NewEncoder(f.Stdout)
		report = func(e app.MonitorEvent) { _ = out.Encode(e) } // the reader may be gone
	}
	return f.Sandboxes().Monitor(ctx, app.MonitorOptions{Interval: o.interval, Restart: o.restart, Once: o.once, Report: report})
}

func printMonitorEvent(w io.Writer, e app.MonitorEvent) {
	line := fmt.Sprintf("%s  %s  %s", e.At.Local().Format(time.TimeOnly), e.Sandbox, e.State)
	if e.Commit != "" {
		line += fmt.Sprintf("  commit %.10s", e.Commit)
	}
	if e.Error != "" {
		line += "  " + text.Words(text.Clean(e.Error)) // one line, whatever the sandbox printed
	}
	fmt.Fprintln(w, line)
}
