package taskcmd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const standbyMaxAge = time.Hour // of services that a task gets

type standbyOptions struct {
	runOptions
	count        int
	maxAge, idle time.Duration
}

// NewCmdStandby makes the command.
func NewCmdStandby(f *cmdutil.Factory) *cobra.Command {
	o := &standbyOptions{}
	cmd := &cobra.Command{
		Use: "standby", Short: "Keep sandboxes booted for the next tasks",
		Long: `Keeps sandboxes of a project booted until it is stopped. The network policy is
in force in them, the services are healthy, and the repository is there; then
they are paused. They have no secret. 'create' takes one that fits, which saves
most of the time until the agent starts, and another takes its place. A task
that needs another image, network, service or limit starts a sandbox of its
own, with a warning.

It replaces sandboxes that are too old or no longer fit the project, and removes
all when it is stopped. It needs a Docker engine.`,
		Example: `  sandbox-agent standby -p my-app -n 2
  sandbox-agent standby --harness codex --idle 2h`,
		Args: cmdutil.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.read(cmd.Flags(), f.Getenv); err != nil {
				return err
			}
			if cmd.Flags().Changed("count") && (o.count < 1 || o.count > projects.MaxStandby) {
				return app.Usagef("--count must be from 1 to %d", projects.MaxStandby)
			}
			if o.maxAge < 0 || o.idle < 0 {
				return app.Usagef("--max-age and --idle must not be negative")
			}
			return o.do(cmd.Context(), f)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringP("project", "p", "", "project name, or path of a project file (default: .sandbox-agent.yaml)")
	flags.IntVarP(&o.count, "count", "n", 0, "number of sandboxes (default: standby of the project, or 1)")
	cmdutil.DurationVar(flags, &o.maxAge, "max-age", standbyMaxAge, "replace a sandbox that waits for longer")
	cmdutil.DurationVar(flags, &o.idle, "idle", 0, "stop after this long without a task that takes one (default: never)")
	flags.String("repo", "", "repository: a URL, or a path on this machine")
	flags.String("branch", "", "branch, tag or commit to start from (default: what is checked out)")
	flags.String("harness", "", "agent of the tasks: "+strings.Join(workorder.Harnesses(), ", "))
	flags.String("command", "", "command of the tasks that is run as the agent")
	flags.String("image", "", "image of the sandbox (default: built by this program)")
	flags.String("isolation", "", "isolation of the sandbox: confined or privileged")
	flags.String("oci-runtime", "", "OCI runtime of the engine, such as sysbox-runc, kata or runsc")
	flags.String("network", "", "network mode: full, restricted or none")
	flags.Var(new(cmdutil.RuleList), "allow", "allow a `RULE` in a restricted network: HOST, *.DOMAIN or ADDRESS, with :PORT (repeatable)")
	flags.String("projects-dir", "", "another directory with project files")
	flags.BoolVar(&o.json, "json", false, "print events as JSON lines")
	f.CompleteRunFlags(cmd)
	return cmd
}

func (o *standbyOptions) do(ctx context.Context, f *cmdutil.Factory) error {
	view := f.NewView(f.Stdout, true)
	defer view.Close()
	return app.KeepStandbys(ctx, o.tasks(f), app.StandbyOptions{
		Flags: o.TaskFlags, Count: o.count, MaxAge: o.maxAge, Idle: o.idle,
		Show: func(e workorder.Event) {
			switch {
			case o.json:
				view.Event(e)
			case e.Type == workorder.EventStandby:
				took := ""
				if e.DurationMS > 0 {
					took = fmt.Sprintf(" after %.1fs", float64(e.DurationMS)/1000)
				}
				fmt.Fprintf(f.Stderr, "%s %s%s\n", e.Name, e.Status, took)
			}
		},
	})
}
