package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// listSandboxes lists sandboxes without a task.
func (a *App) listSandboxes(ctx context.Context, asJSON, allUsers bool) error {
	all, err := a.allSandboxes(ctx, allUsers)
	if err != nil && len(all) == 0 {
		return err
	}
	err = a.unseen(all, err)
	if asJSON {
		return errors.Join(a.JSON(all), err)
	}
	if len(all) == 0 {
		fmt.Fprintln(a.Stdout, "no sandboxes without a task: `sandbox-agent up --help` tells how to make one")
		return nil
	}
	return errors.Join(a.printSandboxes(all), err)
}

// unseen returns the error of a list where a sandbox may be that it lacks, and else warns of it: an engine that does not answer has none of those that this state
// directory knows.
func (a *App) unseen(all []sandboxRow, err error) error {
	if err == nil || len(all) == 0 || !errors.Is(err, sandbox.ErrUnavailable) || slices.ContainsFunc(all,
		func(r sandboxRow) bool { return r.State == sandbox.StateUnknown }) {
		return err
	}
	a.Warn(err.Error())
	return nil
}

// sandboxRow is a sandbox in the list.
type sandboxRow struct {
	Kind string `json:"kind"` // always "sandbox"
	sandbox.Info
	Endpoints map[string]string `json:"endpoints,omitempty"` // by port
	// Template is the project that it was created from.
	Template string `json:"template,omitempty"`
	// Workspace is the repository or directory of this machine whose files it has in its working directory.
	Workspace string `json:"workspace,omitempty"`
	// Attached reports that a terminal shows it.
	Attached bool `json:"attached"`
}

// rowOf completes the description of a sandbox by what its spec and this machine know.
func (a *App) rowOf(i sandbox.Info) sandboxRow {
	row := sandboxRow{Kind: "sandbox", Info: i, Workspace: cmp.Or(i.Spec.Repo, i.Spec.Worktree)}
	if i.Spec.Project != "" {
		row.Template = strings.TrimSuffix(filepath.Base(i.Spec.Project), filepath.Ext(i.Spec.Project))
	}
	for _, m := range i.Spec.Mounts {
		if row.Workspace == "" && strings.HasPrefix(m.Target+"/", sandbox.CloneDir+"/") {
			row.Workspace = m.Source
		}
	}
	return row
}

func (a *App) allSandboxes(ctx context.Context, allUsers bool) ([]sandboxRow, error) {
	m, err := a.Manager(allUsers)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	all, err := m.List(ctx)
	rows := make([]sandboxRow, 0, len(all))
	for _, i := range all {
		row := a.rowOf(i)
		if i.Own && sandbox.ValidName(i.Name) { // what another program has labelled can have any
			served, serr := a.Endpoints().List(i.Name)
			row.Endpoints, row.Attached, err = served, a.attached(i.Name), errors.Join(err, serr)
		}
		rows = append(rows, row)
	}
	return rows, app.SandboxError(err)
}

func (a *App) printSandboxes(all []sandboxRow) error {
	w := tabwriter.NewWriter(a.Stdout, 0, 4, 2, ' ', 0)
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
