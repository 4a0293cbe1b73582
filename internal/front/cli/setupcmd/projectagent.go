package setupcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// agentFlags are the flags of `project init` that need --agent.
var agentFlags = []string{"rounds", "pr", "harness", "command", "max-budget-usd", "timeout-minutes"}

// defaultRounds is how often an agent may try to write a project file.
const defaultRounds = 3

// rejectedSuffix ends the name of a file with a proposal that does not work.
const rejectedSuffix = ".rejected"

func (o *projectInitOptions) agentFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&o.agent, "agent", false, "let an agent write the file in a sandbox, and try it")
	flags.IntVar(&o.rounds, "rounds", defaultRounds, "with --agent: how often the agent may try")
	flags.BoolVar(&o.pr, "pr", false, "with --agent: open a pull request instead of writing the file")
	flags.String("harness", "", "with --agent: "+strings.Join(workorder.Harnesses(), ", "))
	flags.String("command", "", "with --agent: command to run as the agent, for sh -c")
	flags.String("max-budget-usd", "", "with --agent: limit of the agent's cost, in US dollars (default: 5)")
	flags.String("timeout-minutes", "", "with --agent: time limit of each round, and of each trial (default: 30)")
	cmd.MarkFlagsMutuallyExclusive("pr", "print")
	cmd.MarkFlagsMutuallyExclusive("pr", "output")
	// It can only fail for a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("harness", cobra.FixedCompletions(workorder.Harnesses(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("command", cobra.NoFileCompletions)
}

// checkAgentFlags refuses flags of an agent without one.
func (o *projectInitOptions) checkAgentFlags(flags *pflag.FlagSet) error {
	for _, name := range agentFlags {
		if flags.Changed(name) && !o.agent {
			return app.Usagef("--%s needs --agent", name)
		}
	}
	if o.rounds < 1 {
		return app.Usagef("--rounds must be positive")
	}
	return nil
}

// agentReport is the JSON document of `project init --agent`.
type agentReport struct {
	File string `json:"file,omitempty"` // that was written
	*app.ProjectReport
	*app.DetectReport
}

// doAgent lets an agent write the project file.
func (o *projectInitOptions) doAgent(ctx context.Context, f *cmdutil.Factory, flags *pflag.FlagSet) error {
	root, err := f.RepoRoot()
	if err != nil {
		return err
	}
	if !flags.Changed("output") {
		o.output = filepath.Join(root, projects.DefaultFile)
	}
	if !o.print && !o.pr && !o.force {
		if _, err := os.Lstat(o.output); err == nil {
			return o.exists()
		}
	}
	if st, err := os.Stat(filepath.Dir(o.output)); !o.print && !o.pr && (err != nil || !st.IsDir()) {
		return exiterr.New(workorder.ExitUsage, fmt.Errorf("there is no directory %s for the file", filepath.Dir(o.output)), "create it first")
	}
	given := map[string]string{}
	flags.Visit(func(flag *pflag.Flag) { given[flag.Name] = flag.Value.String() })
	delete(given, "output")
	settings, err := app.TaskSettings(given, f.Getenv)
	if err != nil {
		return err
	}
	// Standard output is for the report.
	t := f.With(cmdutil.IO{Stdin: f.Stdin, Stdout: f.Stderr, Stderr: f.Stderr}).TaskRuns(&settings, false)
	t.Found = nil
	report, err := t.WriteProject(ctx, app.WriteProjectRequest{Flags: settings, Rounds: o.rounds, PR: o.pr})
	if ctx.Err() != nil {
		return errors.Join(cmdutil.Ended(workorder.StatusInterrupted, workorder.EndedBySignal), err)
	}
	if err != nil {
		return err
	}
	doc := agentReport{ProjectReport: report, DetectReport: report.Draft.Report()}
	switch {
	case !report.Accepted:
		if doc.File, err = o.reject(report.Project); err != nil {
			return err
		}
	case !o.print && !o.pr:
		if err := o.write(report.Project); err != nil {
			return err
		}
		doc.File = o.output
		_ = os.Remove(o.output + rejectedSuffix) // an earlier run's, if there is one
	}
	switch {
	case o.json:
		err = f.JSON(doc)
	case o.print && report.Accepted:
		doc.show(f.Stderr)
		_, err = io.WriteString(f.Stdout, report.Project)
	default:
		doc.show(f.Stdout)
	}
	switch {
	case err != nil || report.Accepted:
		return err
	case !report.Agent.Status.Worked():
		return cmdutil.Ended(report.Agent.Status, report.Agent.EndedBy)
	}
	return cmdutil.Exit(workorder.ExitTaskFailed)
}

// reject keeps a proposal that does not work beside the place of the project file.
func (o *projectInitOptions) reject(project string) (file string, err error) {
	if project == "" || o.print || o.pr {
		return "", nil
	}
	file = o.output + rejectedSuffix
	return file, replace(file, project)
}

// show prints the report for a person.
func (r *agentReport) show(w io.Writer) {
	cost := ""
	if r.CostUSD != nil {
		cost = fmt.Sprintf(", $%.2f", *r.CostUSD)
	}
	seconds := func(ms int64) string {
		return (time.Duration(ms) * time.Millisecond).Round(100 * time.Millisecond).String()
	}
	verdict := "works"
	if !r.Accepted {
		verdict = "does not work"
	}
	fmt.Fprintf(w, "the agent's project file %s (rounds: %d%s)\n", verdict, r.Rounds, cost)
	if r.Setup.ColdMS+r.Setup.CachedMS > 0 {
		fmt.Fprintf(w, "  setup: %s from scratch, %s with the setup cache\n", seconds(r.Setup.ColdMS), seconds(r.Setup.CachedMS))
	}
	for _, c := range r.Checks {
		state := "passes"
		if !c.Passed {
			state = "fails"
		}
		fmt.Fprintf(w, "  validate.%s: %s in %s: %s\n", text.Clean(c.Name), state, seconds(c.DurationMS), text.Printable(c.Command))
	}
	for _, p := range r.Problems {
		fmt.Fprintln(w, "problem: "+text.Clean(p.String()))
	}
	if r.Message != "" {
		fmt.Fprintln(w, "the agent says: "+text.Clean(r.Message))
	}
	switch {
	case r.PullRequest != nil:
		fmt.Fprintln(w, "pull request: "+text.Clean(r.PullRequest.URL))
	case r.File != "" && r.Accepted:
		fmt.Fprintf(w, "wrote %s\nnext: look it over and commit it\n", r.File)
	case r.File != "":
		fmt.Fprintf(w, "its last version is in %s\n", r.File)
	}
}

// exists is the error for a project file that --force alone replaces.
func (o *projectInitOptions) exists() error {
	return exiterr.New(workorder.ExitGeneral, fmt.Errorf("%s already exists", o.output), "edit it, or replace it with --force")
}
