package setupcmd

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/front/render"
	"github.com/sandbox-agent/sandbox-agent/internal/host/netrules"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// NewCmdPolicy returns the hidden command that network suggest and network check had until the previous release.
func NewCmdPolicy(f *cmdutil.Factory) *cobra.Command {
	cmd := &cobra.Command{Use: "policy", Hidden: true, Short: "Propose and check rules of restricted networks"}
	learn := NewCmdNetworkSuggest(f)
	learn.Use = "learn TASK"
	cmd.AddCommand(learn, NewCmdNetworkCheck(f))
	return cmd
}

type suggestOptions struct {
	json, wildcards bool
	statuses        []string
}

// NewCmdNetworkSuggest makes the command.
func NewCmdNetworkSuggest(f *cmdutil.Factory) *cobra.Command {
	o := &suggestOptions{}
	cmd := &cobra.Command{
		Use: "suggest TASK", Short: "Propose network rules from the hosts that a task reached", Args: cmdutil.OneTask,
		ValidArgsFunction: f.CompleteTasks(false),
		Long: `Reads what all attempts of a task reached for and prints the smallest list of
rules that allows it, as YAML for the project file. Each rule says how often and
by which programs it was needed, and whether third parties could receive data
there. Review the list before you use it. To learn, run the task once with

  network: {mode: restricted, learn: true}

which refuses nothing that has a name.`,
		Example: `  sandbox-agent network suggest T-A1B2C3D4
  sandbox-agent network suggest A1B2 --status refused
  sandbox-agent network suggest A1B2 --wildcards
  sandbox-agent network suggest A1B2 --json | jq -r '.allow[].rule'`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.do(cmd.Context(), args[0], f) },
	}
	cmd.Flags().StringSliceVar(&o.statuses, "status", nil, "include only refused, learned or allowed hosts (repeatable)")
	cmd.Flags().BoolVar(&o.wildcards, "wildcards", false, "propose *.domain for three or more subdomains")
	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON")
	// It can only fail for a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("status", cobra.FixedCompletions(statusNames(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func statusNames() []string {
	return []string{string(workorder.NetworkRefused), string(workorder.NetworkLearned), string(workorder.NetworkAllowed)}
}

func (o *suggestOptions) do(ctx context.Context, id string, f *cmdutil.Factory) error {
	opts := netrules.Options{Wildcards: o.wildcards}
	for _, s := range o.statuses {
		if !slices.Contains(statusNames(), s) {
			return app.Usagef("--status %q is none of %s", s, strings.Join(statusNames(), ", "))
		}
		opts.Statuses = append(opts.Statuses, workorder.NetworkStatus(s))
	}
	l, err := f.Projects().LearnNetwork(ctx, id, opts)
	if err != nil {
		return err
	}
	if o.json {
		return f.JSON(l)
	}
	var b bytes.Buffer
	writeProposal(&b, &l)
	_, err = f.Stdout.Write(b.Bytes())
	return err
}

// comment puts a text from a box on one line: a second one would be read as YAML.
func comment(s string) string { return cmdutil.Clip(text.Words(text.Clean(s))) }

func writeProposal(w io.Writer, l *netrules.Learned) {
	fmt.Fprintf(w, "# Addresses that task %s contacted. Review it: the rules also hold for a misled agent.\n", l.TaskID)
	fmt.Fprintf(w, "network:\n  mode: %s\n", workorder.NetworkRestricted)
	if len(l.Allow) == 0 {
		fmt.Fprintln(w, "  allow: []")
	} else {
		fmt.Fprintln(w, "  allow:")
	}
	lines := make([]string, len(l.Allow))
	width := 0
	const widest = 48 // columns that comments are aligned to at most
	for i := range l.Allow {
		lines[i] = netrules.Line(l.Allow[i].Rule)
		width = max(width, min(len(lines[i]), widest))
	}
	for i := range l.Allow {
		r := &l.Allow[i]
		if r.Risk != "" {
			fmt.Fprintf(w, "    # risk: %s\n", r.Risk)
		}
		fmt.Fprintf(w, "    %-*s  # %s\n", width, lines[i], need(r))
	}
	for _, n := range l.Never {
		fmt.Fprintf(w, "  # no rule allows %s (%d×): %s\n", comment(render.HostPort(n)), n.Count, comment(n.Reason))
	}
}

// need describes how often a rule was needed, by whom and for what.
func need(r *netrules.Rule) string {
	var statuses []string
	for _, s := range r.Statuses {
		statuses = append(statuses, comment(string(s)))
	}
	s := fmt.Sprintf("%d× %s", r.Count, strings.Join(statuses, " and "))
	if r.Asked {
		s += ", only looked up"
	}
	if len(r.By) > 0 {
		s += ": " + comment(strings.Join(r.By, ", "))
	}
	if len(r.Hosts) > 0 {
		s += "; for " + comment(strings.Join(r.Hosts, " "))
	}
	return s
}

// NewCmdNetworkCheck makes the command.
func NewCmdNetworkCheck(f *cmdutil.Factory) *cobra.Command {
	project, asJSON := "", false
	cmd := &cobra.Command{
		Use: "check [RULE...] HOST[:PORT]", Short: "Check whether rules allow a host",
		Long: `Prints which rule allows a host at a port (default 443), or which one would. The
default rules are those of the project. The exit code is 1 when the host is
refused.`,
		Example: `  sandbox-agent network check registry.npmjs.org
  sandbox-agent network check '*.example.com' api.example.com:8443
  sandbox-agent network check -p my-app 192.0.2.7:5432`,
		Args: cmdutil.Args(1, cmdutil.Any, "a host", "give a host, such as registry.npmjs.org or 192.0.2.7:5432"),
		RunE: func(_ *cobra.Command, args []string) error {
			return checkHost(f, project, args[:len(args)-1], args[len(args)-1], asJSON)
		},
	}
	cmd.Flags().StringVarP(&project, "project", "p", "", "project whose rules count: a name or a file")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	f.CompleteProjectFlag(cmd)
	return cmd
}

func checkHost(f *cmdutil.Factory, project string, rules []string, host string, asJSON bool) error {
	if len(rules) > 0 && project != "" {
		return app.Usagef("give rules or --project, not both")
	}
	ok, reason, err := f.Projects().AllowsHost(project, rules, host)
	if err != nil {
		return err
	}
	err = f.Done(asJSON, struct {
		Host    string `json:"host"`
		Allowed bool   `json:"allowed"`
		Reason  string `json:"reason"`
	}{host, ok, reason}, "%s", reason)
	if err == nil && !ok {
		return cmdutil.Exit(workorder.ExitGeneral)
	}
	return err
}
