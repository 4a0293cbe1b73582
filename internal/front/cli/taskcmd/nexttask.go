package taskcmd

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// nextOptions are the flags of a command that continues a task, which is named by its id or its pull request.
type nextOptions struct {
	run          runOptions
	targetBranch string
	now, wait    bool
	pr           int
}

// flags are those of every run, worded for an existing task, and the task's branch.
func (o *nextOptions) flags(f *cmdutil.Factory, cmd *cobra.Command) {
	o.run.flags(f, cmd)
	flags := cmd.Flags()
	flags.Lookup("task-id").Usage = "id of the task, as TASK"
	flags.StringVar(&o.targetBranch, "target-branch", "", "branch of the task (default: found on the remote)")
}

// moreFlags are those of a command that can add to the task and wait for a provider's limit.
func (o *nextOptions) moreFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Lookup("task").Usage = "text to add to the task; - is standard input"
	flags.Lookup("task-file").Usage = "read the text to add from a file; - is standard input"
	flags.BoolVar(&o.wait, "wait", false, "wait until a parked task can resume")
	flags.BoolVar(&o.now, "now", false, "resume a parked task before its limit resets")
}

// request is the request for the task's next attempt.
func (o *nextOptions) request(ctx context.Context, f *cmdutil.Factory) (r app.TaskRequest, err error) {
	r = o.run.request()
	r.Now, r.Wait, r.Branch, r.Pull = o.now, o.wait, o.targetBranch, o.pr
	if o.now && o.wait {
		return r, app.Usagef("give --now or --wait, not both")
	}
	if o.run.text.given() {
		r.Text, err = o.run.text.read(ctx, f)
	}
	return r, err
}

// taskArg takes the task's id, and with in also "-" for a text on standard input.
func (o *nextOptions) taskArg(cmd *cobra.Command, args []string, in bool) error {
	for _, arg := range args {
		switch {
		case in && arg == "-":
			o.run.text.in = true
		case o.run.named == "":
			o.run.named = arg
		case cmd.Flags().Lookup("task") != nil:
			return exiterr.New(workorder.ExitUsage, fmt.Errorf("%s needs one task, got %d arguments", cmd.CommandPath(), len(args)),
				"give a text with --task")
		default:
			return cmdutil.OneTask(cmd, args)
		}
	}
	return nil
}

// read is runOptions.read for a command that continues a task.
func (o *nextOptions) read(flags *pflag.FlagSet, getenv func(string) string) error {
	run := &o.run
	if err := run.read(flags, getenv); err != nil {
		return err
	}
	if flags.Changed("pr") && o.pr <= 0 {
		return app.Usagef("--pr %d is no pull request's number", o.pr)
	}
	if run.named != "" && run.taskID != "" && run.named != run.taskID {
		return app.Usagef("give the task once: %s or --task-id %s", run.named, run.taskID)
	}
	run.taskID = cmp.Or(run.taskID, run.named)
	return nil
}
