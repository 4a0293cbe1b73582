package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/internal/host/tasks"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type createOptions struct {
	run      runOptions
	ifExists string
	plan     bool
	fromPlan string
	title    string // the task in its own words, if its text has more; empty if it is the text
}

// The values of --if-exists.
const (
	ifExistsFail     = "fail"
	ifExistsContinue = "continue"
	ifExistsTell     = "tell" // the order's word for ifExistsContinue
)

func newCreateCmd(a *App) *cobra.Command { return (&createOptions{}).command(a) }

func (o *createOptions) command(a *App) *cobra.Command {
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
them as a project file, which then replaces them.

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
				return noArgs(cmd, args)
			case args[0] == "-":
				t.in = true
			default:
				t.words, t.wordsSet = args[0], true
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.run.read(cmd.Flags(), a.Getenv); err != nil {
				return err
			}
			return o.do(cmd.Context(), a)
		},
	}
	o.run.flags(a, cmd)
	cmd.Flags().IntVar(&o.run.text.issue, "issue", 0, "take an issue of the repository as the task, with its comments")
	cmd.Flags().BoolVar(&o.plan, "plan", false, "write a plan and change nothing")
	cmd.Flags().StringVar(&o.fromPlan, "from-plan", "", "run the plan of this `TASK`; --task adds to it")
	cmd.Flags().StringVar(&o.ifExists, "if-exists", ifExistsFail, "what to do when the task exists: fail or continue")
	// It can only fail for a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("from-plan", a.completeTasks(false, func(r, _ *store.Record) bool { return r.Status == workorder.StatusPlanned }))
	_ = cmd.RegisterFlagCompletionFunc("if-exists", cobra.FixedCompletions([]string{ifExistsFail, ifExistsContinue, ifExistsTell}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// picksUp reports whether an existing task is followed, continued or reported.
func (o *createOptions) picksUp() bool {
	return o.ifExists == ifExistsContinue || o.ifExists == ifExistsTell
}

func (o *createOptions) do(ctx context.Context, a *App) error {
	task, err := o.task(ctx, a)
	if err != nil {
		return err
	}
	if o.ifExists != ifExistsFail && !o.picksUp() && o.ifExists != "" {
		return usage("--if-exists %q is neither %s nor %s nor %s", o.ifExists, ifExistsFail, ifExistsContinue, ifExistsTell)
	}
	var st *store.Store
	var rec *store.Record
	fresh := o.run.taskID == ""
	switch id := o.run.taskID; {
	case fresh:
		o.run.taskID = workorder.NewTaskID()
	case !workorder.ValidTaskID(id):
		return usage("--task-id %q is not T- and 8 of 0-9A-Z", id)
	default:
		if st, err = a.store(); err != nil {
			return err
		}
		if rec, err = st.Load(id); err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
	}
	p := a.newTaskJob(&o.run, tasks.Asked{Verb: tasks.Create, Text: task, Fresh: fresh, IfExists: o.picksUp(), Plan: o.plan})
	p.title = o.title
	return p.run(ctx, st, rec)
}
