package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandbox-agent/sandbox-agent/internal/host/companion"
	"github.com/sandbox-agent/sandbox-agent/internal/host/credentials"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/host/render"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/internal/host/tasks"
	"github.com/sandbox-agent/sandbox-agent/internal/host/trust"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type createOptions struct {
	project, projectsDir     string
	task, taskFile, taskID   string
	repo, branch             string
	isolation, ociRuntime    string
	image, harness           string
	timeoutMinutes, budget   string
	out, ifExists            string
	dryRun, detach, json     bool
	keep                     bool
	network                  string
	allow                    ruleList
	sources                  map[string]string // flag name -> where its value came from
	taskSet, taskFileSet, in bool
	named                    string // the task, as an argument
	issue                    int    // 0: the task is given in words
	plan                     bool
	fromPlan                 string
	projectBy                string // how the project was named by an earlier command; empty: this one names it
	foundInRepo              bool   // the project's file was found in the repository of --repo
	askedTrust               bool   // the user was asked whether he trusts it
	title                    string // the task in its own words, where its text has more; empty: the text
}

// What create does about a task that exists.
const (
	ifExistsFail     = "fail"
	ifExistsContinue = "continue"
	ifExistsTell     = "tell" // the order's word for ifExistsContinue
)

// picksUp tells whether a task that exists is followed, gone on with or told.
func (o *createOptions) picksUp() bool {
	return o.ifExists == ifExistsContinue || o.ifExists == ifExistsTell
}

// exists is what the box does that finds more on the remote than we did: another machine may have been faster.
func (o *createOptions) exists() workorder.IfExists {
	if o.picksUp() {
		return workorder.ExistsTell
	}
	return ""
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

func newCreateCmd(a *App) *cobra.Command {
	o := &createOptions{}
	cmd := &cobra.Command{
		Use:   "create [flags]",
		Short: "Run a task in a new box and land its branch",
		Long: `Create runs one task: it starts a box, clones the repository in it, brings up the
project's services, runs the agent, validates what it did, pushes the branch and
removes the box. The result lies in the state folder (or --out) when it is done.

Ctrl-C stops gracefully: the work so far is pushed. So do SIGTERM, however often, and a terminal
that is closed. Only Ctrl-C again, 2 s later or more, kills the box.
The exit code says how the task ended: ` + "`sandbox-agent --help`" + ` lists them.
Every flag of a setting can be given as SANDBOX_AGENT_<FLAG>; flag > environment
> project file > default.

With --task-id and --if-exists continue the same command can be run again and again,
by systemd, cron or a Kubernetes Job: it starts the task, follows it where it runs, goes on
with it where it was cut off, and does nothing but tell the result where it is done.

With --plan the agent makes a plan and changes nothing: the branch is not written. The plan is
plan.md in the task's folder. Read it, change it there if you like, then let another box carry it
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
				o.in = true
				return nil
			}
			return noArgs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.read(cmd.Flags(), a.Getenv); err != nil {
				return err
			}
			return a.runCreate(cmd.Context(), o)
		},
	}
	o.flags(cmd)
	cmd.Flags().IntVar(&o.issue, "issue", 0, "number of an issue of the repository that is the task, with its comments")
	cmd.Flags().BoolVar(&o.plan, "plan", false, "make a plan only: nothing is committed")
	cmd.Flags().StringVar(&o.fromPlan, "from-plan", "", "TASK whose plan is carried out; --task adds to it")
	cmd.Flags().StringVar(&o.ifExists, "if-exists", ifExistsFail, "when the task exists: fail, or continue (follow it, go on with it, or tell its result; tell is the same)")
	// It fails only for a flag that is not there.
	_ = cmd.RegisterFlagCompletionFunc("from-plan", a.completeTasks(false, func(r, _ *store.Record) bool { return r.Status == workorder.StatusPlanned }))
	_ = cmd.RegisterFlagCompletionFunc("if-exists", cobra.FixedCompletions([]string{ifExistsFail, ifExistsContinue, ifExistsTell}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// flags are what every run can be given.
func (o *createOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&o.project, "project", "p", "", "project name, or path of a project file (default: .sandbox-agent.yaml)")
	f.StringVarP(&o.task, "task", "t", "", "what the agent is asked to do; - reads standard input")
	f.StringVar(&o.taskFile, "task-file", "", "file with the task; - reads standard input")
	f.StringVar(&o.repo, "repo", "", "repository: a URL, or a path on this machine")
	f.StringVar(&o.branch, "branch", "", "branch to start from")
	f.StringVar(&o.taskID, "task-id", "", "task id (default: a new one)")
	f.StringVar(&o.harness, "harness", "", "agent to run: "+strings.Join(projects.Harnesses(), ", "))
	f.StringVar(&o.timeoutMinutes, "timeout-minutes", "", "wall-clock limit; fractions count")
	f.StringVar(&o.budget, "max-budget-usd", "", "what the agent may spend on the task, all attempts together, in US dollars")
	f.StringVar(&o.image, "image", "", "image of the box (default: built by this program)")
	f.StringVar(&o.isolation, "isolation", "", "how the box is held: confined or privileged")
	f.StringVar(&o.ociRuntime, "oci-runtime", "", "OCI runtime of the engine, such as sysbox-runc, kata, runsc")
	f.StringVar(&o.network, "network", "", "outbound network: full, restricted or none")
	f.Var(&o.allow, "allow", "what may be reached too when the network is restricted: a host, *.domain or address, with :port for another than 80 and 443 (repeatable)")
	f.StringVar(&o.out, "out", "", "folder for the output, DIR/T-XXXXXXXX (default: the state folder)")
	f.StringVar(&o.projectsDir, "projects-dir", "", "further folder to look for projects in")
	f.BoolVar(&o.keep, "keep", false, "keep the stopped container for a look inside")
	f.BoolVarP(&o.detach, "detach", "d", false, "print the task id and return once the box has its order")
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
func (o *createOptions) read(f *pflag.FlagSet, getenv func(string) string) (err error) {
	o.taskSet, o.taskFileSet = f.Changed("task"), f.Changed("task-file")
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

func (a *App) runCreate(ctx context.Context, o *createOptions) error {
	task, err := a.newTask(ctx, o)
	if err != nil {
		return err
	}
	if o.ifExists != ifExistsFail && !o.picksUp() && o.ifExists != "" {
		return usage("--if-exists %q is neither %s nor %s nor %s", o.ifExists, ifExistsFail, ifExistsContinue, ifExistsTell)
	}
	st, err := a.store()
	if err != nil {
		return err
	}
	asked := tasks.Asked{Verb: tasks.Create, Text: task, IfExists: o.picksUp()}
	if o.taskID == "" {
		o.taskID, asked.Fresh, asked.IfExists = workorder.NewTaskID(), true, false
		return a.newTaskJob(o, asked).run(ctx, st, nil)
	}
	if !workorder.ValidTaskID(o.taskID) {
		return usage("--task-id %q is not T- and 8 of 0-9A-Z", o.taskID)
	}
	rec, err := st.Load(o.taskID)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	return a.newTaskJob(o, asked).run(ctx, st, rec)
}

// secrets resolves the project's references. The commands of a project that came with a repository run where nothing of it lies but
// what the user trusted.
func (r *resolved) secrets(ctx context.Context, find *credentials.Finder) (map[string]string, error) {
	refs := r.project.Secrets
	if r.trustedSum == "" || !slices.ContainsFunc(refs, func(s projects.Secret) bool { return s.Scheme == projects.SecretCmd }) {
		return find.Secrets(ctx, refs, "")
	}
	dir, remove, err := trust.Stage(r.project, r.trustedSum)
	if err != nil {
		return nil, fault.New(workorder.ExitInvalid, err, "look at it, then start again")
	}
	defer remove()
	return find.Secrets(ctx, refs, dir)
}

// findSecrets prepares what must not be in the order: the git credential is needed for
// looks at the remote; the secrets are read right before the box starts, and only what can be seen
// to be missing is told now.
func findSecrets(ctx context.Context, find *credentials.Finder, r *resolved) (err error) {
	if r.project.LacksKey() {
		return fault.New(workorder.ExitInvalid, fmt.Errorf("the harness %s has no key: neither secrets nor env of the project give it one", r.project.Harness.Name), r.project.KeyHint())
	}
	refs := r.project.Secrets
	if err := credentials.CheckSecrets(find.Getenv, refs); err != nil {
		return err
	}
	r.job.Secrets = func(ctx context.Context) (map[string]string, error) { return r.secrets(ctx, find) }
	o, job := &r.job.Order, r.job
	if r.local == nil && o.Repo != "" {
		if job.Git, err = find.Git(ctx, o.CloneURL); err != nil {
			return err
		}
	}
	var token credentials.ForgeToken
	if o.Repo != "" && o.PR != nil {
		if token, err = find.Forge(ctx, o.Repo, o.PR); err != nil {
			return err
		}
	}
	job.ForgeToken = token.Token
	if token.Renew {
		job.ForgeToken = "" // the box makes its own when it needs one
	}
	if token.Renew || job.Git != nil && job.Git.Renew {
		job.App, err = find.App()
	}
	return err
}

// reject leaves a result for a run whose ground is bad. What could not be resolved (a mistake on the command
// line or in the project file, a repository or branch that is not there) is not a run: there is no
// order that anybody could go on with. Neither is a rehearsal.
func (a *App) reject(ctx context.Context, o *createOptions, r *resolved, cause error) error {
	if r == nil || o.dryRun {
		return cause
	}
	st, err := a.store()
	if err != nil {
		return cause
	}
	show := func(workorder.Event) {}
	if o.json {
		show = a.newView(true).event
	}
	l := a.launcher(&Backend{}, st, show)
	return l.Reject(ctx, r.job, fault.New(exitCode(cause), cause, fault.Hint(cause)))
}

// launcher wires a launcher for this app.
func (a *App) launcher(be *Backend, st *store.Store, show func(workorder.Event)) *launch.Launcher {
	return &launch.Launcher{
		Engine: be.Engine, Store: st, Images: be.Images, Log: a.log(), Show: show, CacheVolume: a.cacheVolume(),
		ImportBundle: localrepo.ImportBundle,
		StartCompanion: func(ctx context.Context, cfg companion.Config) (companion.Ready, error) {
			exe, err := a.Executable()
			if err != nil {
				return companion.Ready{}, fmt.Errorf("find this program: %w", err)
			}
			return companion.Start(ctx, exe, []string{companionCommand}, cfg)
		},
	}
}

// taskText returns the task byte for byte.
func (a *App) taskText(ctx context.Context, o *createOptions) (string, error) {
	given := 0
	for _, g := range []bool{o.taskSet, o.taskFileSet, o.in, o.issue != 0} {
		if g {
			given++
		}
	}
	switch {
	case given == 0:
		return "", fault.New(workorder.ExitUsage, errors.New("no task given"), "give --task TEXT, --task-file FILE, --issue N, or - to read it from standard input")
	case given > 1:
		return "", usage("give the task once: --task, --task-file, --issue or -")
	}
	var text []byte
	var err error
	switch {
	case o.issue < 0:
		return "", usage("--issue %d is no issue's number", o.issue)
	case o.issue > 0:
		task, err := a.issueTask(ctx, o)
		if err != nil {
			return "", err
		}
		text = []byte(task)
	case o.in || o.taskSet && o.task == "-" || o.taskFileSet && o.taskFile == "-":
		if text, err = io.ReadAll(io.LimitReader(a.stdin(ctx), workorder.MaxTask+1)); ctx.Err() != nil {
			return "", tasks.ErrLeft
		} else if err != nil {
			return "", fmt.Errorf("read the task from standard input: %w", err)
		}
	case o.taskFileSet:
		f, err := os.Open(o.taskFile)
		if err != nil {
			return "", usage("read the task: %w", err)
		}
		defer f.Close()
		if text, err = io.ReadAll(io.LimitReader(f, workorder.MaxTask+1)); err != nil {
			return "", usage("read the task: %w", err)
		}
	default:
		text = []byte(o.task)
	}
	switch {
	case len(text) > workorder.MaxTask:
		return "", usage("the task has more than %d bytes", workorder.MaxTask)
	case !utf8.Valid(text):
		return "", usage("the task is not valid UTF-8 text")
	}
	if slices.Contains(text, 0) {
		return "", usage("the task contains a NUL byte")
	}
	if strings.TrimSpace(string(text)) == "" {
		return "", usage("the task is empty")
	}
	return string(text), nil
}

func (a *App) dryRun(r *resolved) error {
	order := r.job.Order
	order.AttemptID = "" // given to a box, and there is none
	if err := a.json(order); err != nil {
		return err
	}
	for _, w := range r.job.Warnings {
		fmt.Fprintln(a.Stderr, "warning: "+render.Clean(w))
	}
	if r.untrusted != nil {
		fmt.Fprintf(a.Stderr, "warning: this would not start: %s\nhint: %s\n", render.Clean(r.untrusted.Error()), render.Clean(hint(r.untrusted)))
	}
	advise(a.Stderr, r.project)
	if err := credentials.CheckSecrets(a.Getenv, r.project.Secrets); err != nil {
		fmt.Fprintln(a.Stderr, "warning: this would not start: "+render.Clean(err.Error()))
	}
	_, err := io.WriteString(a.Stderr, launch.PlanText(r.job))
	return err
}
