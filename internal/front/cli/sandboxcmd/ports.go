package sandboxcmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type portsOptions struct{ json, remove bool }

// NewCmdPorts makes the command.
func NewCmdPorts(f *cmdutil.Factory) *cobra.Command {
	o := &portsOptions{}
	cmd := &cobra.Command{
		Use: "ports SANDBOX [[LOCAL:]PORT...]", Short: "List or publish ports of a sandbox",
		Long: `Lists the ports on which a sandbox listens, and those that are published on this
machine's loopback. With ports it publishes them, at LOCAL or at a free port.
This works in every network mode, and before anything listens. Published ports
stay until --remove or 'down', also when the sandbox is stopped or recreated.`,
		Example: "  sandbox-agent ports dev\n  sandbox-agent ports dev 8080:3000 5432\n  sandbox-agent ports dev --remove 5432",
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return exiterr.New(workorder.ExitUsage, fmt.Errorf("%s needs a sandbox's name", cmd.CommandPath()),
					"`sandbox-agent ps` lists sandboxes")
			case o.remove && len(args) == 1:
				return exiterr.New(workorder.ExitUsage, errors.New("--remove needs ports"), "for example: sandbox-agent ports dev --remove 3000")
			}
			return nil
		},
		ValidArgsFunction: f.CompleteSandboxes(false),
		RunE:              func(cmd *cobra.Command, args []string) error { return o.do(cmd.Context(), f, args[0], args[1:]) },
	}
	cmd.Flags().BoolVar(&o.remove, "remove", false, "unpublish these ports of the sandbox")
	cmd.Flags().BoolVar(&o.json, "json", false, "print a JSON list")
	return cmd
}

// portRow is a row of the JSON lists: of a port that is served, that listens, or both.
type portRow struct {
	Port int `json:"port"`
	// Addresses are where something listens in the sandbox.
	Addresses []string `json:"addresses,omitempty"`
	// Local is where it is on this machine.
	Local string `json:"local,omitempty"`
}

func (o *portsOptions) do(ctx context.Context, f *cmdutil.Factory, name string, wanted []string) error {
	ports, err := app.ParsePorts(wanted)
	if err != nil {
		return exiterr.New(workorder.ExitUsage, err, "for example: sandbox-agent ports dev 8080:3000")
	}
	sb, done, err := f.Sandboxes().Get(ctx, name)
	if err != nil {
		return err
	}
	defer done()
	switch {
	case o.remove:
		inside := make([]int, 0, len(ports))
		for _, p := range ports {
			inside = append(inside, p.Port)
		}
		if err := f.Endpoints().Remove(ctx, name, inside); err != nil {
			return err
		}
		f.Agents().BriefAgain(ctx, sb)
		return nil
	case len(ports) == 0:
		return o.list(ctx, f, sb)
	}
	added, err := f.Endpoints().Add(ctx, name, ports)
	if err != nil {
		return err
	}
	f.Agents().BriefAgain(ctx, sb)
	if o.json {
		rows := make([]portRow, 0, len(added))
		for _, p := range added {
			rows = append(rows, portRow{Port: p.Port, Local: app.LocalAddress(p)})
		}
		return f.JSON(rows)
	}
	tellEndpoints(f, added)
	return nil
}

func tellEndpoints(f *cmdutil.Factory, ports []app.Port) {
	for _, p := range ports {
		fmt.Fprintf(f.Stdout, "port %d is at %s\n", p.Port, app.LocalAddress(p))
	}
}

func (o *portsOptions) list(ctx context.Context, f *cmdutil.Factory, sb *sandbox.Sandbox) error {
	k, err := f.Endpoints().Forwarder(sb.Name())
	if err != nil {
		return err
	}
	served, err := k.Ports()
	if err != nil {
		return err
	}
	s, err := sb.Status(ctx)
	if err != nil {
		return app.SandboxError(err)
	}
	rows := portRows(s.Ports, served)
	if o.json {
		return f.JSON(rows)
	}
	if len(rows) == 0 {
		fmt.Fprintln(f.Stdout, "nothing listens in "+sb.Name()+", and nothing of it is served")
		return nil
	}
	w := tabwriter.NewWriter(f.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "PORT\tLISTENS AT\tSERVED AT")
	for _, r := range rows {
		fmt.Fprintf(w, "%d\t%s\t%s\n", r.Port, cmdutil.OrDash(text.Clean(strings.Join(r.Addresses, " "))), cmdutil.OrDash(r.Local))
	}
	return w.Flush()
}

// portRows joins what listens and what is served, by port.
func portRows(listening []sandbox.Port, served []app.Port) []portRow {
	rows := []portRow{}
	row := func(port int) *portRow {
		i := slices.IndexFunc(rows, func(r portRow) bool { return r.Port == port })
		if i < 0 {
			i = len(rows)
			rows = append(rows, portRow{Port: port})
		}
		return &rows[i]
	}
	for _, p := range listening {
		r := row(p.Port)
		r.Addresses = append(r.Addresses, p.Address)
	}
	for _, p := range served {
		row(p.Port).Local = app.LocalAddress(p)
	}
	slices.SortFunc(rows, func(f, b portRow) int { return f.Port - b.Port })
	return rows
}
