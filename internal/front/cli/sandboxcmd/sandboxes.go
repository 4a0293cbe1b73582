package sandboxcmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// listSandboxes lists standalone sandboxes.
func listSandboxes(ctx context.Context, f *cmdutil.Factory, asJSON, allUsers bool) error {
	all, err := f.Sandboxes().List(ctx, allUsers)
	if err != nil && len(all) == 0 {
		return err
	}
	if asJSON {
		return errors.Join(f.JSON(all), err)
	}
	if len(all) == 0 {
		fmt.Fprintln(f.Stdout, "no standalone sandboxes: create one with: sandbox-agent up NAME")
		return nil
	}
	return errors.Join(printSandboxes(f, all), err)
}

func printSandboxes(f *cmdutil.Factory, all []app.SandboxRow) error {
	w := tabwriter.NewWriter(f.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "SANDBOX\tRUNTIME\tIMAGE\tTEMPLATE\tWORKSPACE\tSTATUS\tATTACHED\tAGE\tNETWORK\tENDPOINTS")
	for _, i := range all {
		var served []string
		for port, at := range i.Endpoints {
			served = append(served, port+" at "+at)
		}
		slices.Sort(served)
		if i.Owner != "" {
			i.State += sandbox.State(" (of " + text.Clean(i.Owner) + ")")
		}
		attached := ""
		if i.Attached {
			attached = "yes"
		}
		fmt.Fprintln(w, strings.Join([]string{
			text.Clean(i.Name), text.Clean(string(i.Runtime)), cmdutil.OrDash(cmdutil.Clip(text.Clean(i.Image))),
			cmdutil.OrDash(text.Clean(i.Template)),
			cmdutil.OrDash(text.Clean(i.Workspace)), string(i.State), cmdutil.OrDash(attached), cmdutil.Since(i.Created),
			text.Clean(string(i.Spec.Network)), cmdutil.OrDash(strings.Join(served, ", ")),
		}, "\t"))
	}
	return w.Flush()
}
