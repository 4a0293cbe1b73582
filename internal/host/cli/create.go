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
		Use:        "create [flags]",
		SuggestFor: []string{"run", "start", "new"},
		Short:      "Run a task in a new sandbox and land its branch",
		Long: `Create runs one task: it starts a sandbox, clones the repository in it, brings up the
project's services, runs the agent, validates what it did, pushes the branch and
removes the sandbox. The result lies in the state folder (or --out) when it is done.

In a repository without a project file, a URL too, it goes by what the repository says of itself: devcontainer.json,
compose files, workflows of GitHub Actions, manifests, lock and version files of the branch that the
task starts from. They are read and never run on this machine; each finding is printed with its line, and
--dry-run shows them all. ` + "`sandbox-agent project init`" + ` writes them down as a project file, which then counts alone.

Ctrl-C stops gracefully: the work so far is pushed. So do SIGTERM, however often, and a terminal
that is closed. Only Ctrl-C again, 2 s later or more, kills the sandbox.
The exit code says how the task ended: ` + "`sandbox-agent --help`" + ` lists them.
Without a terminal the log has steps and failures; --verbose shows what the agent says and commands print.
Every flag of a setting can be given as SANDBOX_AGENT_<FLAG>; flag > environment
> project file > default.

With --task-id and --if-exists continue the same command can be run again and again,
by systemd, cron or a Kubernetes Job: it starts the task, follows it where it runs, goes on
with it where it was cut off, and does nothing but tell the result where it is done.

With --plan the agent makes a plan and changes nothing: the branch is not written. The plan is
plan.md in the task's folder. Read it, change it there if you like, then let another sandbox carry it
out with --from-plan: the task is the plan's, and --task adds to it.`,
		Example: `  sandbox-agent create --project my-app --task "Add pagination to the users API"
  sandbox-agent create --repo . --task-file task.md
  echo "Fix the flaky test" | sandbox-agent create -p ./project.yaml --task -
  sandbox-agent create -p my-app --issue 42
  sandbox-agent create -p my-app --task "..." --plan
  sandbox-agent create --from-plan T-A1B2C3D4
  sandbox-agent create -p my-app --task "..." --dry-run
  sandbox-agent create -p my-app --task-file task.md --task-id T-NIGHTLY1 --if-exists continue`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && args[0] == "-" {
				o.run.text.in = true
				return nil
			}
			return noArgs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.run.read(cmd.Flags(), a.Getenv); err != nil {
				return err
			}
			return o.do(cmd.Context(), a)
		},
	}
	o.run.flags(a, cmd)
	cmd.Flags().IntVar(&o.run.text.issue, "issue", 0, "number of an issue of the repository that is the task, with its comments")
	cmd.Flags().BoolVar(&o.plan, "plan", false, "make a plan only: nothing is committed")
	cmd.Flags().StringVar(&o.fromPlan, "from-plan", "", "TASK whose plan is carried out; --task adds to it")
	cmd.Flags().StringVar(&o.ifExists, "if-exists", ifExistsFail, "when the task exists: fail, or continue (follow it, go on with it, or tell its result; tell is the same)")
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
