package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type portsOptions struct{ json bool }

func newPortsCmd(a *App) *cobra.Command {
	o := &portsOptions{}
	cmd := &cobra.Command{
		Use: "ports SANDBOX [PORT[:LOCAL]...]", Short: "List what listens in a sandbox without a task, or serve it on this machine",
		Long: `Lists what listens in a sandbox. With ports it serves these on this machine's loopback until it is interrupted, at
a free port or at the one that follows the colon: whatever the sandbox's network is, and also what will listen
only later.`,
		Example: "  sandbox-agent ports dev\n  sandbox-agent ports dev 3000\n  sandbox-agent ports dev 3000:8080 5432",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return nil
			}
			return fault.New(workorder.ExitUsage, fmt.Errorf("%s needs a sandbox's name", cmd.CommandPath()), "`sandbox-agent ps` lists sandboxes")
		},
		ValidArgsFunction: a.completeSandboxes(false),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.do(cmd.Context(), a, args[0], args[1:])
		},
	}
	cmd.Flags().BoolVar(&o.json, "json", false, "print a JSON list: what listens, or what is served where")
	return cmd
}

// endpointRow is a row of the JSON list of endpoints.
type endpointRow struct {
	Port  int    `json:"port"`
	Local string `json:"local"`
}

func (o *portsOptions) do(ctx context.Context, a *App, name string, wanted []string) error {
	var pairs [][2]int
	var errs []error
	for _, w := range wanted {
		p, err := parsePorts(w)
		pairs, errs = append(pairs, p), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fault.New(workorder.ExitUsage, err, "for example: sandbox-agent ports dev 3000:8080")
	}
	sb, done, err := a.sandbox(ctx, name)
	if err != nil {
		return err
	}
	defer done()
	if len(pairs) == 0 {
		return o.list(ctx, a, sb)
	}
	rows := make([]endpointRow, 0, len(pairs))
	for _, p := range pairs {
		e, err := sb.Expose(ctx, p[0], p[1])
		if err != nil {
			return sandboxError(err)
		}
		defer e.Close()
		rows = append(rows, endpointRow{e.Port, e.Local})
	}
	if o.json {
		if err := a.json(rows); err != nil {
			return err
		}
	} else {
		for _, r := range rows {
			fmt.Fprintf(a.Stdout, "%d is at %s\n", r.Port, r.Local)
		}
	}
	<-ctx.Done()
	return &ending{exitLeft}
}

func (o *portsOptions) list(ctx context.Context, a *App, sb *sandbox.Sandbox) error {
	all, err := sb.Ports(ctx)
	if err != nil {
		return sandboxError(err)
	}
	if o.json {
		return a.json(all)
	}
	if len(all) == 0 {
		fmt.Fprintln(a.Stdout, "nothing listens in "+sb.Name())
	}
	for _, p := range all {
		fmt.Fprintf(a.Stdout, "%d\t%s\n", p.Port, text.Clean(p.Address))
	}
	return nil
}

// parsePorts reads PORT or PORT:LOCAL; a local port of 0 is any.
func parsePorts(t string) ([2]int, error) {
	inside, local, both := strings.Cut(t, ":")
	in, err := strconv.ParseUint(inside, 10, 16)
	out := uint64(0)
	if err == nil && both {
		out, err = strconv.ParseUint(local, 10, 16)
	}
	if err != nil || in == 0 || both && out == 0 {
		return [2]int{}, fmt.Errorf("%q is no port from 1 to 65535, or two with a colon between them", t)
	}
	return [2]int{int(in), int(out)}, nil
}
