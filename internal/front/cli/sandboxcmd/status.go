package sandboxcmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

type sandboxStatus struct {
	sandbox.Status
	Endpoints map[string]string `json:"endpoints,omitempty"`
}

// showStatus prints the state of a task or sandbox. It starts none.
func showStatus(ctx context.Context, f *cmdutil.Factory, name string, asJSON bool) error {
	sb, done, err := f.Sandboxes().Either(ctx, name)
	if err != nil {
		return err
	}
	if sb == nil {
		return showTask(ctx, f, name, asJSON)
	}
	defer done()
	var s sandboxStatus
	if s.Status, err = sb.Status(ctx); err != nil {
		return app.SandboxError(err)
	}
	if s.Endpoints, err = f.Endpoints().List(name); err != nil {
		return err
	}
	if asJSON {
		return f.JSON(s)
	}
	return printStatus(f, s)
}

func showTask(ctx context.Context, f *cmdutil.Factory, id string, asJSON bool) error {
	d, err := f.Tasks().Details(ctx, id)
	if d.TaskID == "" {
		return err
	}
	if asJSON {
		return errors.Join(f.JSON(d), err)
	}
	w := tabwriter.NewWriter(f.Stdout, 0, 4, 2, ' ', 0)
	row := func(name, value string) { fmt.Fprintf(w, "%s\t%s\n", name, text.Clean(value)) }
	row("task", d.TaskID)
	row("description", cmdutil.Clip(d.Task))
	state := d.Status
	if d.Step != "" {
		state += ", step " + d.Step
	}
	if d.Resumable {
		state += " (resumable)"
	}
	if d.Engine != "" {
		state += " (on the engine at " + d.Engine + ")"
	}
	row("state", state)
	if d.ResumeAt != nil {
		row("resume", "after "+text.Clock(*d.ResumeAt, time.Now()))
	}
	row("project", cmdutil.OrDash(d.Project))
	row("branch", cmdutil.OrDash(d.Branch))
	row("created", text.Age(time.Since(d.CreatedAt))+" ago")
	row("attempts", fmt.Sprint(d.Attempt))
	row("container", cmdutil.OrDash(d.Container))
	row("output", d.Dir)
	return errors.Join(w.Flush(), err)
}

// NewCmdStatus makes the command.
func NewCmdStatus(f *cmdutil.Factory) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use: "status TASK | SANDBOX", Short: "Show the state of a task or sandbox",
		Long: `Shows the state of a sandbox, its use of its limits, its commands and ports, and
when it ends. A stopped sandbox is not started. This counts as use for --idle.

Shows the state of a task, its step, branch, attempts and output directory;
'result' shows how it ended.`,
		Example: "  sandbox-agent status dev\n  sandbox-agent status A1B2 --json",
		Args:    cmdutil.OneTask, ValidArgsFunction: f.CompleteEither(false),
		RunE: func(cmd *cobra.Command, args []string) error { return showStatus(cmd.Context(), f, args[0], asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, as 'inspect' does")
	return cmd
}

// NewCmdInspect makes the command.
func NewCmdInspect(f *cmdutil.Factory) *cobra.Command {
	history := false
	cmd := &cobra.Command{
		Use: "inspect TASK | SANDBOX", Short: "Print everything known of a task or sandbox as JSON",
		Long: `Prints the state, the attempts, the work order and the result of a task as JSON;
'logs' prints its events.

Prints the specification, the state and the use of a sandbox as JSON. With
--history it prints what happened to it, also to one that was removed: created,
started, stopped, ended from outside or by a timeout, failed and repeated
starts, health as 'monitor' saw it, commands by program and exit code, networks,
snapshots. The history has no arguments and variables of commands, as these may be secret.`,
		Example: "  sandbox-agent inspect dev\n  sandbox-agent inspect dev --history",
		Args:    cmdutil.OneTask, ValidArgsFunction: f.CompleteEither(false),
		RunE: func(cmd *cobra.Command, args []string) error {
			if history {
				return printHistory(cmd.Context(), f, args[0])
			}
			return showStatus(cmd.Context(), f, args[0], true)
		},
	}
	cmd.Flags().BoolVar(&history, "history", false, "print what was done to a sandbox, as a JSON list, oldest first")
	return cmd
}

func printHistory(ctx context.Context, f *cmdutil.Factory, name string) error {
	if !sandbox.ValidName(name) {
		return app.Usagef("%.80q is not a valid sandbox name", name)
	}
	all, err := f.Sandboxes().History(ctx, name)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return f.UnknownName(ctx, name, fmt.Errorf("no history of sandbox %s: %w", name, sandbox.ErrNotFound))
	}
	return f.JSON(all)
}

// NewCmdResume makes the command.
func NewCmdResume(f *cmdutil.Factory) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use: "resume SANDBOX...", Short: "Start stopped sandboxes again",
		Long: `Starts sandboxes that were stopped or ended by --idle or --ttl, with their files.
Any command in a sandbox does the same. Of a running sandbox it reads the keys of
models again, and the gateway uses them from then on.`,
		Example:           "  sandbox-agent resume dev",
		Args:              cmdutil.Each(cmdutil.SomeSandboxes, app.CheckSandbox),
		ValidArgsFunction: f.CompleteSandboxes(true),
		RunE: func(cmd *cobra.Command, args []string) error {
			var errs []error
			for _, name := range args {
				errs = append(errs, resume(cmd.Context(), f, name, asJSON))
			}
			return errors.Join(errs...)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the state of each as JSON")
	return cmd
}

func resume(ctx context.Context, f *cmdutil.Factory, name string, asJSON bool) error {
	sb, done, err := f.Sandboxes().Get(ctx, name)
	if err != nil {
		return err
	}
	defer done()
	if err := sb.Resume(ctx); err != nil {
		return app.SandboxError(err)
	}
	f.Sandboxes().NoteRecreated(sb)
	if err := sb.RenewKeys(ctx); err != nil {
		return app.SandboxError(err)
	}
	return f.Done(asJSON, sb.Info(), "%s runs", name)
}

// printStatus shows a sandbox on a screen.
func printStatus(f *cmdutil.Factory, s sandboxStatus) error {
	w := tabwriter.NewWriter(f.Stdout, 0, 4, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%s\t%s\n", name, text.Clean(fmt.Sprintf(format, args...)))
	}
	row("sandbox", "%s", s.Name)
	state := string(s.State)
	if s.Since != nil {
		state += fmt.Sprintf(" for %s, since %s", text.Age(time.Since(*s.Since)), s.Since.Local().Format(time.DateTime))
	}
	if s.Engine != "" {
		state += " (on the engine at " + s.Engine + ")"
	}
	row("state", "%s", state)
	row("created", "%s ago", text.Age(time.Since(s.Created)))
	row("runtime", "%s", s.Runtime)
	if s.Snapshot != "" {
		row("snapshot", "%s", s.Snapshot)
	}
	row("image", "%s", cmdutil.OrDash(s.Image))
	network := string(s.Spec.Network)
	if len(s.Spec.Allow) > 0 {
		network += ": " + strings.Join(s.Spec.Allow, ", ")
	}
	row("network", "%s", network)
	if s.Since != nil {
		row("memory", "%s of %s", cmdutil.Megabytes(s.MemoryBytes),
			most(s.Spec.Limits.MemoryBytes > 0, cmdutil.Megabytes(s.Spec.Limits.MemoryBytes)))
		row("processes", "%s of %s", counted(s.Processes), most(s.Spec.Limits.PIDs > 0, fmt.Sprint(s.Spec.Limits.PIDs)))
		row("cpu", "%s of time, at most %s at once", s.CPU.Round(time.Millisecond),
			most(s.Spec.Limits.CPUs > 0, fmt.Sprintf("%g", s.Spec.Limits.CPUs)))
	}
	if s.Spec.IdleTimeout > 0 {
		row("idle", "stops after %s without use", s.Spec.IdleTimeout)
	}
	if s.Ends != nil {
		row("ttl", "ends in %s", text.Age(time.Until(*s.Ends)))
	} else if s.Spec.TTL > 0 {
		row("ttl", "ends %s after its start", s.Spec.TTL)
	}
	for _, m := range s.Spec.Mounts {
		how := ""
		if m.ReadOnly {
			how = ", read-only"
		}
		row("mount", "%s at %s%s", m.Source, m.Target, how)
	}
	for _, c := range s.Commands {
		how := fmt.Sprintf("ended with %d", c.ExitCode)
		if c.Running {
			how = "runs for " + text.Age(time.Since(c.Started))
		}
		row("command", "%.8s  %s  %s", c.ID, how, cmdutil.Clip(strings.Join(c.Argv, " ")))
	}
	served := map[int]bool{}
	for _, p := range s.Ports {
		at := ""
		if local := s.Endpoints[fmt.Sprint(p.Port)]; local != "" {
			at, served[p.Port] = ", served at "+local, true
		}
		row("port", "%d listens at %s%s", p.Port, p.Address, at)
	}
	for port, at := range s.Endpoints {
		var n int
		if _, err := fmt.Sscan(port, &n); err == nil && !served[n] {
			row("port", "%s served at %s, where nothing listens", port, at)
		}
	}
	return w.Flush()
}

// most is a limit, or that there is none.
func most(is bool, limit string) string {
	if !is {
		return "no limit"
	}
	return limit
}

func counted(n int64) string {
	if n < 0 {
		return "unknown"
	}
	return fmt.Sprint(n)
}
