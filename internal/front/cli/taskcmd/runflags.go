package taskcmd

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// runOptions are the flags that every run takes.
type runOptions struct {
	app.TaskFlags
	taskID, named string // by flag, and as an argument
	text          textOptions
	dryRun, json  bool
}

// flags are the flags of every run.
func (o *runOptions) flags(f *cmdutil.Factory, cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringP("project", "p", "", "project name, or path of a project file (default: .sandbox-agent.yaml)")
	flags.StringVarP(&o.text.words, "task", "t", "", "task for the agent; - is standard input")
	flags.StringVar(&o.text.file, "task-file", "", "read the task from a file; - is standard input")
	flags.String("repo", "", "repository: a URL, or a path on this machine")
	flags.String("branch", "", "branch, tag or commit to start from (default: what is checked out)")
	flags.StringVar(&o.taskID, "task-id", "", "id of the new task (default: a random one)")
	flags.String("harness", "", "agent to run: "+strings.Join(workorder.Harnesses(), ", "))
	flags.String("command", "", "command to run as the agent, for sh -c; standard input is the task")
	flags.String("author", "", "author of the commits, as \"Name <email>\" (default: your git identity)")
	flags.String("timeout-minutes", "", "time limit in minutes, such as 30 or 1.5")
	flags.String("max-budget-usd", "", "limit of the cost of all attempts, in US dollars")
	flags.String("image", "", "image of the sandbox (default: built by this program)")
	flags.String("isolation", "", "isolation of the sandbox: confined or privileged")
	flags.String("oci-runtime", "", "OCI runtime of the engine, such as sysbox-runc, kata or runsc")
	flags.String("network", "", "network mode: full, restricted or none")
	flags.Var(new(cmdutil.RuleList), "allow", "allow a `RULE` in a restricted network: HOST, *.DOMAIN or ADDRESS, with :PORT (repeatable)")
	flags.String("out", "", "directory for the output, DIR/T-XXXXXXXX (default: the state directory)")
	flags.String("projects-dir", "", "another directory with project files")
	flags.Bool("keep", false, "keep the stopped container for inspection")
	flags.BoolP("detach", "d", false, "print the task id and return once the sandbox has started")
	flags.BoolVar(&o.dryRun, "dry-run", false, "print the plan, or with --json the work order; start nothing")
	flags.BoolVar(&o.json, "json", false, "print events as JSON lines")
	f.CompleteRunFlags(cmd)
}

// read reads the settings from the command line and the environment.
func (o *runOptions) read(flags *pflag.FlagSet, getenv func(string) string) (err error) {
	o.text.wordsSet, o.text.fileSet = o.text.wordsSet || flags.Changed("task"), flags.Changed("task-file")
	given := map[string]string{}
	flags.Visit(func(flag *pflag.Flag) { given[flag.Name] = flag.Value.String() })
	o.TaskFlags, err = app.TaskSettings(given, getenv)
	o.DryRun = o.dryRun
	return err
}
