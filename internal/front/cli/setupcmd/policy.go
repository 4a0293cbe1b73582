package setupcmd

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/front/render"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/outcome"
	"github.com/sandbox-agent/sandbox-agent/internal/host/netrules"
	"github.com/sandbox-agent/sandbox-agent/internal/host/resolve"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/projects"
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
	_, rec, err := f.Tasks().Find(ctx, id)
	if err != nil {
		return err
	}
	if rec, err = f.Tasks().Collect(ctx, rec); err != nil {
		return err
	}
	var runs []netrules.Run
	for _, attempt := range rec.Attempts() {
		past, err := rec.At(attempt.Number)
		if err != nil {
			return err
		}
		runs = append(runs, recorded(past))
	}
	l, err := netrules.Learn(rec.TaskID, runs, opts)
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

// recorded reads the record of an attempt. A missing or damaged one has no places.
func recorded(rec *taskstore.Record) netrules.Run {
	run := netrules.Run{Number: rec.Number()}
	if b, err := os.ReadFile(filepath.Join(rec.Dir, workorder.OrderFile)); err == nil {
		if order, err := workorder.DecodeOrder(b); err == nil {
			run.Asked = order.Network.Mode
		}
	}
	if res, err := outcome.ReadResult(rec); err == nil {
		run.Result = res
	}
	_ = outcome.Events(rec.Dir, func(e workorder.Event) {
		if e.Type == workorder.EventNetwork {
			run.Events = append(run.Events, e)
		}
	})
	return run
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
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exiterr.New(workorder.ExitUsage, fmt.Errorf("%s needs a host", cmd.CommandPath()),
					"give a host, such as registry.npmjs.org or 192.0.2.7:5432")
			}
			return nil
		},
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
	target, err := parseHost(host)
	if err != nil {
		return err
	}
	network := netrules.Policy{Mode: workorder.NetworkRestricted}
	if len(rules) == 0 {
		p, err := resolve.Load(&resolve.Flags{Project: project})
		if err != nil {
			return err
		}
		network.Mode, rules, network.Services = p.Network.Mode, p.Network.Allow, p.Services
	} else if project != "" {
		return app.Usagef("give rules or --project, not both")
	}
	for _, s := range rules {
		rule, err := parseRule(s)
		if err != nil {
			return err
		}
		network.Rules = append(network.Rules, rule)
	}
	says, ok := network.Allows(target)
	err = f.Done(asJSON, struct {
		Host    string `json:"host"`
		Allowed bool   `json:"allowed"`
		Reason  string `json:"reason"`
	}{host, ok, says}, "%s", says)
	if err == nil && !ok {
		return cmdutil.Exit(workorder.ExitGeneral)
	}
	return err
}

// parseHost reads host and port. It accepts more than a rule may have, since users also ask about hosts that no
// rule can allow.
func parseHost(text string) (workorder.AllowRule, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = strings.Trim(text, "[]"), ""
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		n, err := strconv.ParseUint(cmp.Or(port, "0"), 10, 16)
		if err != nil {
			return workorder.AllowRule{}, app.Usagef("%q: %q is not a port from 1 to 65535", text, port)
		}
		return workorder.AllowRule{Host: addr.Unmap().WithZone("").String(), Port: uint16(n)}, nil
	}
	target, err := parseRule(text)
	if err == nil && target.Sub {
		err = app.Usagef("%s is not a single host: give one host", text)
	}
	return target, err
}

func parseRule(s string) (workorder.AllowRule, error) {
	rule, err := projects.AllowRule(s)
	if err != nil {
		return workorder.AllowRule{}, app.Usagef("%q: %w", s, err)
	}
	return workorder.ParseAllowRule(rule)
}
