// Package taskcmd has the commands that start the attempts of a task, and show its result.
package taskcmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type createOptions struct {
	run      runOptions
	ifExists string
	plan     bool
	fromPlan string
}

// The values of --if-exists.
const (
	ifExistsFail     = "fail"
	ifExistsContinue = "continue"
	ifExistsTell     = "tell" // the order's word for ifExistsContinue, not in help and completion
)

// NewCmdCreate makes the command.
func NewCmdCreate(f *cmdutil.Factory) *cobra.Command {
	o := &createOptions{}
	cmd := &cobra.Command{
		Use:        "create [TEXT | -]",
		SuggestFor: []string{"run", "start", "new"},
		Short:      "Run a task in a new sandbox and push its branch",
		Long: `Starts a sandbox, clones the repository in it, starts the project's services,
runs the agent, validates its work, pushes the branch and removes the sandbox.
The result is in the state directory, or in --out.

The task is given as an argument, with --task, --task-file or --issue, or on
standard input with "-".

A repository without a project file is configured from what it contains:
devcontainer.json, compose files, GitHub Actions workflows, manifests, lock and
version files of the branch that the task starts from. These files are read and
never run on this machine. --dry-run prints all findings; 'project init' writes
them as a project file, which then replaces them. Where they are not enough,
'project init --agent' lets an agent write that file, and tries it.

Ctrl-C stops the task and pushes the work so far, as do SIGTERM and a terminal
that closes. A second Ctrl-C, at least 2 s later, kills the sandbox. The exit
code says how the task ended: see 'help exit-codes'. Settings can also be given
as environment variables: see 'help environment'.

With --task-id and --if-exists continue the same command can be repeated, for
example by cron or a Kubernetes Job. It starts the task, follows it where it
runs, resumes it where it stopped, and prints its result where it is done.

With --plan the agent writes a plan and changes nothing. The plan is plan.md in
the task's directory, where you can edit it. --from-plan runs it in another
sandbox; --task then adds to it.`,
		Example: `  sandbox-agent create "Add pagination to the users API" --project my-app
  sandbox-agent create --repo . --task-file task.md
  echo "Fix the flaky test" | sandbox-agent create -p ./project.yaml -
  sandbox-agent create -p my-app --issue 42
  sandbox-agent create "Split the parser" --plan
  sandbox-agent create --from-plan T-A1B2C3D4
  sandbox-agent create "Fix the build" --dry-run`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch t := &o.run.text; {
			case len(args) != 1 || cmd.Flags().Changed("task"):
				return cmdutil.NoArgs(cmd, args)
			case args[0] == "-":
				t.in = true
			default:
				t.words, t.wordsSet = args[0], true
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.run.read(cmd.Flags(), f.Getenv); err != nil {
				return err
			}
			if _, err := cmdutil.FromEnvironment(cmd.Flags(), f.Getenv, "if-exists"); err != nil {
				return err
			}
			return o.do(cmd.Context(), f)
		},
	}
	o.run.flags(f, cmd)
	cmd.Flags().IntVar(&o.run.text.issue, "issue", 0, "take an issue of the repository as the task, with its comments")
	cmd.Flags().BoolVar(&o.plan, "plan", false, "write a plan and change nothing")
	cmd.Flags().StringVar(&o.fromPlan, "from-plan", "", "run the plan of this `TASK`; --task adds to it")
	cmd.Flags().StringVar(&o.ifExists, "if-exists", ifExistsFail, "what to do when the task exists: fail or continue")
	// It can only fail for a flag that does not exist.
	planned := func(t app.RecordedTask) bool { return t.Status == workorder.StatusPlanned }
	_ = cmd.RegisterFlagCompletionFunc("from-plan", f.CompleteTasks(false, planned))
	values := []string{ifExistsFail, ifExistsContinue}
	_ = cmd.RegisterFlagCompletionFunc("if-exists", cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (o *createOptions) do(ctx context.Context, f *cmdutil.Factory) error {
	t := o.run.tasks(f)
	r := o.run.request()
	var err error
	if r.Text, r.Title, err = o.task(ctx, f, t); err != nil {
		return err
	}
	switch o.ifExists {
	case ifExistsContinue, ifExistsTell:
		r.IfExists = true
	case ifExistsFail, "":
	default:
		return app.Usagef("--if-exists %q is neither %s nor %s", o.ifExists, ifExistsFail, ifExistsContinue)
	}
	r.Plan, r.Flags = o.plan, o.run.TaskFlags // a plan has changed them
	out, err := t.Create(ctx, r)
	return o.run.answer(ctx, f, t, out, err)
}

// task is the text of the task, and its words where the text has more.
func (o *createOptions) task(ctx context.Context, f *cmdutil.Factory, t *app.Tasks) (text, title string, err error) {
	switch in := &o.run.text; {
	case o.fromPlan == "" && in.issue != 0 && !in.given():
		text, err = t.Issue(ctx, &o.run.TaskFlags, in.issue)
		return text, "", err
	case o.fromPlan == "":
		text, err = in.read(ctx, f)
		return text, "", err
	case in.issue != 0:
		return "", "", app.Usagef("give --issue or --from-plan, not both: the plan has its task")
	case in.given():
		if text, err = in.read(ctx, f); err != nil {
			return "", "", err
		}
	}
	return t.PlanTask(ctx, &o.run.TaskFlags, o.fromPlan, text)
}
