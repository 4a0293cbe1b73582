package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/host/resolve"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// runOptions are the flags that every run takes.
type runOptions struct {
	resolve.Flags
	taskID, named string // by flag, and as an argument
	text          textOptions
	dryRun, json  bool
}

// flags are the flags of every run.
func (o *runOptions) flags(a *App, cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringP("project", "p", "", "project name, or path of a project file (default: .sandbox-agent.yaml)")
	f.StringVarP(&o.text.words, "task", "t", "", "task for the agent; - is standard input")
	f.StringVar(&o.text.file, "task-file", "", "read the task from a file; - is standard input")
	f.String("repo", "", "repository: a URL, or a path on this machine")
	f.String("branch", "", "branch, tag or commit to start from (default: what is checked out)")
	f.StringVar(&o.taskID, "task-id", "", "id of the new task (default: a random one)")
	f.String("harness", "", "agent to run: "+strings.Join(workorder.Harnesses(), ", "))
	f.String("command", "", "command to run as the agent, for sh -c; standard input is the task")
	f.String("author", "", "author of the commits, as \"Name <email>\" (default: your git identity)")
	f.String("timeout-minutes", "", "time limit in minutes, such as 30 or 1.5")
	f.String("max-budget-usd", "", "limit of the cost of all attempts, in US dollars")
	f.String("image", "", "image of the sandbox (default: built by this program)")
	f.String("isolation", "", "isolation of the sandbox: confined or privileged")
	f.String("oci-runtime", "", "OCI runtime of the engine, such as sysbox-runc, kata or runsc")
	f.String("network", "", "network mode: full, restricted or none")
	f.Var(new(ruleList), "allow", "allow a `RULE` in a restricted network: HOST, *.DOMAIN or ADDRESS, with :PORT (repeatable)")
	f.String("out", "", "directory for the output, DIR/T-XXXXXXXX (default: the state directory)")
	f.String("projects-dir", "", "another directory with project files")
	f.Bool("keep", false, "keep the stopped container for inspection")
	f.BoolP("detach", "d", false, "print the task id and return once the sandbox has started")
	f.BoolVar(&o.dryRun, "dry-run", false, "print the plan, or with --json the work order; start nothing")
	f.BoolVar(&o.json, "json", false, "print events as JSON lines")
	a.CompleteRunFlags(cmd)
}

// read reads the settings from the command line and the environment.
func (o *runOptions) read(f *pflag.FlagSet, getenv func(string) string) (err error) {
	o.text.wordsSet, o.text.fileSet = o.text.wordsSet || f.Changed("task"), f.Changed("task-file")
	given := map[string]string{}
	f.Visit(func(flag *pflag.Flag) { given[flag.Name] = flag.Value.String() })
	o.Flags, err = app.TaskSettings(given, getenv)
	o.Rehearse = o.dryRun
	return err
}
