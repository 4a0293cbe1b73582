package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandbox-agent/sandbox-agent/projects"
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
	timeoutMinutes, budget string
	network                string
	allow                  ruleList
	out                    string
	keep                   bool
	dryRun, detach, json   bool
	sources                map[string]string // flag name -> where its value came from
	projectBy              string            // how the project was named by an earlier command; empty means this one names it
	foundInRepo            bool              // the project's file was found in the repository of --repo
	askedTrust             bool              // the user was asked whether he trusts it
}

// settings are the flags that also have an environment variable, and the
// project key they override ("" when they override none).
var settings = []struct{ flag, key string }{
	{"project", ""},
	{"projects-dir", ""},
	{"repo", "repo"},
	{"branch", "branch"},
	{"network", "network"}, // before the rules, which only one of its modes has
	{"allow", projects.KeyAllow},
	{"isolation", "isolation"},
	{"oci-runtime", "oci_runtime"},
	{"image", "image"},
	{"harness", "harness"},
	{"timeout-minutes", "timeout_minutes"},
	{"max-budget-usd", "max_budget_usd"},
	{"out", ""},
	{"keep", ""},
	{"detach", ""},
	{"if-exists", ""},
}

// flags are what every run can be given.
func (o *runOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&o.project, "project", "p", "", "project name, or path of a project file (default: .sandbox-agent.yaml)")
	f.StringVarP(&o.text.words, "task", "t", "", "what the agent is asked to do; - reads standard input")
	f.StringVar(&o.text.file, "task-file", "", "file with the task; - reads standard input")
	f.StringVar(&o.repo, "repo", "", "repository: a URL, or a path on this machine")
	f.StringVar(&o.branch, "branch", "", "branch to start from")
	f.StringVar(&o.taskID, "task-id", "", "task id (default: a new one)")
	f.StringVar(&o.harness, "harness", "", "agent to run: "+strings.Join(workorder.Harnesses(), ", "))
	f.StringVar(&o.timeoutMinutes, "timeout-minutes", "", "wall-clock limit; fractions count")
	f.StringVar(&o.budget, "max-budget-usd", "", "what the agent may spend on the task, all attempts together, in US dollars")
	f.StringVar(&o.image, "image", "", "image of the sandbox (default: built by this program)")
	f.StringVar(&o.isolation, "isolation", "", "how the sandbox is held: confined or privileged")
	f.StringVar(&o.ociRuntime, "oci-runtime", "", "OCI runtime of the engine, such as sysbox-runc, kata, runsc")
	f.StringVar(&o.network, "network", "", "outbound network: full, restricted or none")
	f.Var(&o.allow, "allow", "what may be reached too when the network is restricted: a host, *.domain or address, with :port for another than 80 and 443 (repeatable)")
	f.StringVar(&o.out, "out", "", "folder for the output, DIR/T-XXXXXXXX (default: the state folder)")
	f.StringVar(&o.projectsDir, "projects-dir", "", "further folder to look for projects in")
	f.BoolVar(&o.keep, "keep", false, "keep the stopped container for a look inside")
	f.BoolVarP(&o.detach, "detach", "d", false, "print the task id and return once the sandbox has its order")
	f.BoolVar(&o.dryRun, "dry-run", false, "print the work order (stdout) and the plan (stderr), start nothing")
	f.BoolVar(&o.json, "json", false, "print events as JSON lines")
	completeFlags(cmd)
}

// ruleList is a flag that can be given several times, or with commas.
type ruleList string

func (l *ruleList) String() string { return string(*l) }

// Type is what help calls the value.
func (l *ruleList) Type() string { return "rule" }

// Set adds rules.
func (l *ruleList) Set(s string) error {
	if *l != "" {
		*l += ","
	}
	*l += ruleList(s)
	return nil
}

// read takes what the command line and the environment say.
func (o *runOptions) read(f *pflag.FlagSet, getenv func(string) string) (err error) {
	o.text.wordsSet, o.text.fileSet = f.Changed("task"), f.Changed("task-file")
	o.sources, err = fromEnvironment(f, getenv)
	return err
}

// fromEnvironment gives every setting that was not given as a flag the value of
// its variable, and returns where each value came from.
func fromEnvironment(f *pflag.FlagSet, getenv func(string) string) (map[string]string, error) {
	sources := map[string]string{}
	for _, s := range settings {
		fl := f.Lookup(s.flag)
		if fl == nil {
			continue
		}
		if fl.Changed {
			sources[s.flag] = "--" + s.flag
			continue
		}
		name := envName(s.flag)
		v := getenv(name)
		if v == "" {
			continue
		}
		if err := fl.Value.Set(v); err != nil {
			return nil, usage("%s=%s: %w", name, v, err)
		}
		sources[s.flag] = name
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
