package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandbox-agent/sandbox-agent/internal/host/resolve"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// runOptions are the flags that every run takes.
type runOptions struct {
	project, projectsDir   string
	taskID                 string
	named                  string // the task, as an argument
	text                   textOptions
	repo, branch           string
	isolation, ociRuntime  string
	image, harness         string
	command                string
	author                 string
	timeoutMinutes, budget string
	network                string
	allow                  ruleList
	out                    string
	keep                   bool
	dryRun, detach, json   bool
	sources                map[string]string // flag name -> source of its value
	projectBy              string            // how an earlier command named the project; empty if this one names it
	taskBase               string            // the base branch of the task that goes on; empty if it is not known
	finder                 *resolve.Resolver // nil if nothing was looked up yet
}

// settings lists the flags that also have an environment variable.
func settings() []string {
	list := []string{"project", "projects-dir", "out", "keep", "detach", "if-exists"}
	for _, s := range resolve.Settings() {
		list = append(list, s.Flag)
	}
	return list
}

// flags are the flags of every run.
func (o *runOptions) flags(a *App, cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&o.project, "project", "p", "", "project name, or path of a project file (default: .sandbox-agent.yaml)")
	f.StringVarP(&o.text.words, "task", "t", "", "task for the agent; - is standard input")
	f.StringVar(&o.text.file, "task-file", "", "read the task from a file; - is standard input")
	f.StringVar(&o.repo, "repo", "", "repository: a URL, or a path on this machine")
	f.StringVar(&o.branch, "branch", "", "branch, tag or commit to start from (default: what is checked out)")
	f.StringVar(&o.taskID, "task-id", "", "id of the new task (default: a random one)")
	f.StringVar(&o.harness, "harness", "", "agent to run: "+strings.Join(workorder.Harnesses(), ", "))
	f.StringVar(&o.command, "command", "", "command to run as the agent, for sh -c; standard input is the task")
	f.StringVar(&o.author, "author", "", "author of the commits, as \"Name <email>\" (default: your git identity)")
	f.StringVar(&o.timeoutMinutes, "timeout-minutes", "", "time limit in minutes, such as 30 or 1.5")
	f.StringVar(&o.budget, "max-budget-usd", "", "limit of the cost of all attempts, in US dollars")
	f.StringVar(&o.image, "image", "", "image of the sandbox (default: built by this program)")
	f.StringVar(&o.isolation, "isolation", "", "isolation of the sandbox: confined or privileged")
	f.StringVar(&o.ociRuntime, "oci-runtime", "", "OCI runtime of the engine, such as sysbox-runc, kata or runsc")
	f.StringVar(&o.network, "network", "", "network mode: full, restricted or none")
	f.Var(&o.allow, "allow", "allow a `RULE` in a restricted network: HOST, *.DOMAIN or ADDRESS, with :PORT (repeatable)")
	f.StringVar(&o.out, "out", "", "directory for the output, DIR/T-XXXXXXXX (default: the state directory)")
	f.StringVar(&o.projectsDir, "projects-dir", "", "another directory with project files")
	f.BoolVar(&o.keep, "keep", false, "keep the stopped container for inspection")
	f.BoolVarP(&o.detach, "detach", "d", false, "print the task id and return once the sandbox has started")
	f.BoolVar(&o.dryRun, "dry-run", false, "print the plan, or with --json the work order; start nothing")
	f.BoolVar(&o.json, "json", false, "print events as JSON lines")
	a.completeFlags(cmd)
}

// ruleList is a flag that can be given several times, or with commas.
type ruleList string

func (l *ruleList) String() string { return string(*l) }

// Type is the name of the value in the help.
func (l *ruleList) Type() string { return "rule" }

// Set adds rules.
func (l *ruleList) Set(s string) error {
	if *l != "" {
		*l += ","
	}
	*l += ruleList(s)
	return nil
}

// read reads the settings from the command line and the environment.
func (o *runOptions) read(f *pflag.FlagSet, getenv func(string) string) (err error) {
	o.text.wordsSet, o.text.fileSet = o.text.wordsSet || f.Changed("task"), f.Changed("task-file")
	o.sources, err = fromEnvironment(f, getenv, settings()...)
	if by := o.sources["allow"]; by != "" && o.sources["network"] == "" { // rules without a mode mean the one that has rules
		o.network, o.sources["network"] = string(workorder.NetworkRestricted), by
	}
	return err
}

// fromEnvironment sets each of the flags that was not given to the value of its variable, and
// returns the source of each value.
func fromEnvironment(f *pflag.FlagSet, getenv func(string) string, flags ...string) (map[string]string, error) {
	sources := map[string]string{}
	for _, flag := range flags {
		fl := f.Lookup(flag)
		if fl == nil {
			continue
		}
		if fl.Changed {
			sources[flag] = "--" + flag
			continue
		}
		name := envName(flag)
		v := getenv(name)
		if v == "" {
			continue
		}
		if err := fl.Value.Set(v); err != nil {
			return nil, usage("%s=%s: %w", name, v, err)
		}
		sources[flag] = name
	}
	return sources, nil
}

func envName(flag string) string {
	b := []byte("SANDBOX_AGENT_" + flag)
	for i, c := range b {
		switch {
		case c == '-':
			b[i] = '_'
		case c >= 'a' && c <= 'z':
			b[i] = c - 'a' + 'A'
		}
	}
	return string(b)
}

// overrides are the flags that replace a value of the project.
func (o *runOptions) overrides() map[string]*string {
	return map[string]*string{
		"repo": &o.repo, "branch": &o.branch, "isolation": &o.isolation, "oci-runtime": &o.ociRuntime, "image": &o.image,
		"harness": &o.harness, "author": &o.author, "command": &o.command, "timeout-minutes": &o.timeoutMinutes, "max-budget-usd": &o.budget,
		"network": &o.network, "allow": (*string)(&o.allow),
	}
}

// resolve finds the project and a repository on this machine.
func (o *runOptions) resolve(ctx context.Context, a *App) (*resolve.Resolved, error) {
	s := &resolve.Flags{
		Project: o.project, ProjectsDir: o.projectsDir, By: o.projectBy, TaskBase: o.taskBase, Values: map[string]string{}, Sources: o.sources,
		Out: o.out, Rehearse: o.dryRun, Keep: o.keep, Detach: o.detach,
	}
	for flag, value := range o.overrides() {
		if _, given := o.sources[flag]; given {
			s.Values[flag] = *value
		}
	}
	if o.finder == nil {
		o.finder = a.resolver(o.json)
	}
	return o.finder.Find(ctx, s)
}
