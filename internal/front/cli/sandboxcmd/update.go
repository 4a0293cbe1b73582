package sandboxcmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type updateOptions struct {
	change                      app.SandboxChange
	memory, cpus, pids          string
	env, unset, setup, services []string
	json                        bool
}

// NewCmdUpdate makes the command.
func NewCmdUpdate(f *cmdutil.Factory) *cobra.Command {
	o := &updateOptions{}
	cmd := &cobra.Command{
		Use: "update SANDBOX", Short: "Recreate a sandbox with other settings, and keep its work",
		Long: `Recreates a sandbox with another image, environment, setup, services or limits.
What no flag names stays. The work is saved first, and restored: a branch
continues, and a --workspace or --git-worktree is as it was. Files elsewhere in
the sandbox, ignored files of a clone and background commands are lost. If the
sandbox cannot be recreated, or a file cannot be saved, it stays as it was.

--project takes services, tools, setup and limits from a project file, as it is
now. 'project import SANDBOX' writes a sandbox's settings to a project file.`,
		Example: `  sandbox-agent update dev --image python:3.14
  sandbox-agent update dev -e NODE_ENV=test --unset-env DEBUG
  sandbox-agent update dev --setup 'npm ci' --setup 'npm run build'
  sandbox-agent update dev --service redis=redis:8 --memory 4g
  sandbox-agent update dev --project .sandbox-agent.yaml`,
		Args:              cmdutil.Args(1, 1, "one name", "`sandbox-agent ps --sandboxes` lists sandboxes"),
		ValidArgsFunction: f.CompleteSandboxes(false),
		RunE:              func(cmd *cobra.Command, args []string) error { return o.do(cmd.Context(), f, cmd, args[0]) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.change.Image, "image", "", "image of a container or box")
	flags.StringVarP(&o.change.Project, "project", "p", "", "project name, or path of a project file, for services, tools, setup and limits")
	flags.StringArrayVarP(&o.env, "env", "e", nil, "set a variable for all commands: `NAME=value` (repeatable)")
	flags.StringArrayVar(&o.unset, "unset-env", nil, "remove a variable: `NAME` (repeatable)")
	flags.StringArrayVar(&o.setup, "setup", nil, "setup `COMMAND` of a box, instead of those it has (repeatable); '' for none")
	flags.StringArrayVar(&o.services, "service", nil, "add a box's service or change its image, `NAME=IMAGE` (repeatable); NAME= removes it")
	flags.StringVar(&o.memory, "memory", "", "memory limit, such as 512m or 2g, or none")
	flags.StringVar(&o.cpus, "cpus", "", "CPU limit, such as 0.5 or 2, or none")
	flags.StringVar(&o.pids, "pids", "", "limit of processes and threads, or none")
	flags.BoolVar(&o.json, "json", false, "print JSON")
	flags.Lookup("setup").Annotations = map[string][]string{cmdutil.MayBeEmpty: {"true"}}
	f.CompleteProjectFlag(cmd)
	return cmd
}

func (o *updateOptions) do(ctx context.Context, f *cmdutil.Factory, cmd *cobra.Command, name string) error {
	if cmd.Flags().NFlag() == 0 || cmd.Flags().NFlag() == 1 && o.json {
		return exiterr.New(workorder.ExitUsage, errors.New("nothing to change"), "for example: sandbox-agent update "+name+" --memory 4g")
	}
	c := o.change
	limits, err := cmdutil.ParseLimits(o.memory, o.cpus, o.pids)
	c.Limits = limits
	errs := []error{err}
	c.Env = map[string]*string{}
	for _, variable := range o.unset {
		c.Env[variable] = nil
	}
	for _, kv := range o.env {
		variable, value, ok := strings.Cut(kv, "=")
		if !ok {
			errs = append(errs, fmt.Errorf("--env %q: use NAME=value", kv))
		}
		c.Env[variable] = &value
	}
	if o.setup != nil {
		setup := slices.DeleteFunc(o.setup, func(command string) bool { return command == "" })
		c.Setup = &setup
	}
	for _, text := range o.services {
		service, image, ok := strings.Cut(text, "=")
		if !ok || service == "" {
			errs = append(errs, fmt.Errorf("--service %q: use NAME=IMAGE", text))
		}
		c.Services = append(c.Services, sandbox.Service{Name: service, Image: image})
	}
	if err := errors.Join(errs...); err != nil {
		return exiterr.New(workorder.ExitUsage, err, "")
	}
	start := time.Now()
	up, err := app.UpdateSandbox(ctx, f.Sandboxes(), name, c)
	if err != nil {
		return err
	}
	for _, line := range up.Notes {
		f.Say(line)
	}
	if o.json {
		return f.JSON(up)
	}
	fmt.Fprintf(f.Stdout, "%s is up (%s, %s)\n", name, up.Runtime, time.Since(start).Round(time.Millisecond))
	return nil
}
