package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/porter"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// sandboxes opens the manager of standalone sandboxes of this state directory.
func (a *App) sandboxes() (*sandbox.Manager, error) { return a.sandboxesOf(false) }

// sandboxesOf opens the manager of standalone sandboxes, of all state directories on request.
func (a *App) sandboxesOf(allUsers bool) (*sandbox.Manager, error) {
	if a.Sandboxes == nil {
		return nil, fault.New(workorder.ExitBox, errors.New("this program was made without sandboxes"), "")
	}
	return a.Sandboxes(sandbox.Options{Getenv: a.Getenv, AllUsers: allUsers, Secrets: a.boxSecrets, Progress: a.boxProgress(), Log: a.log()})
}

// sandbox finds one without a task, to be used until done is called.
func (a *App) sandbox(ctx context.Context, name string) (sb *sandbox.Sandbox, done func(), err error) {
	m, err := a.sandboxes()
	if err != nil {
		return nil, nil, err
	}
	if sb, err = m.Get(ctx, name); err != nil {
		return nil, nil, errors.Join(unknownName(ctx, a, name, err), m.Close())
	}
	a.ensureEndpoints(ctx, name)
	return sb, func() { _, _ = sb.Close(context.WithoutCancel(ctx)), m.Close() }, nil
}

// tellRenewed says that a sandbox was made anew, where it was.
func (a *App) tellRenewed(sb *sandbox.Sandbox) {
	if said := renewed(sb); said != "" {
		fmt.Fprintln(a.Stderr, said)
	}
}

// renewed is what to say of a sandbox that was made anew; "" of others.
func renewed(sb *sandbox.Sandbox) string {
	if !sb.Recreated() {
		return ""
	}
	lost := "the files are gone that were not on mounts"
	if sb.Spec().BranchOf() != "" {
		lost = "what was committed is there again, other files are not"
	}
	return fmt.Sprintf("note: sandbox %s was gone and is made anew, as `sandbox-agent up` had made it: %s", sb.Name(), lost)
}

// listSandboxes lists sandboxes without a task.
func (a *App) listSandboxes(ctx context.Context, asJSON, allUsers bool) error {
	all, err := a.allSandboxes(ctx, allUsers)
	if err != nil && len(all) == 0 {
		return err
	}
	err = a.unseen(all, err)
	if asJSON {
		return errors.Join(a.json(all), err)
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
	if err == nil || len(all) == 0 || !errors.Is(err, sandbox.ErrUnavailable) || slices.ContainsFunc(all, func(r sandboxRow) bool { return r.State == sandbox.StateUnknown }) {
		return err
	}
	a.warn(err.Error())
	return nil
}

// sandboxRow is a sandbox in the list, with its endpoints by port.
type sandboxRow struct {
	sandbox.Info
	Endpoints map[string]string `json:"endpoints,omitempty"`
}

func (a *App) allSandboxes(ctx context.Context, allUsers bool) ([]sandboxRow, error) {
	m, err := a.sandboxesOf(allUsers)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	all, err := m.List(ctx)
	rows := make([]sandboxRow, 0, len(all))
	for _, i := range all {
		row := sandboxRow{Info: i}
		if i.Own && sandbox.ValidName(i.Name) { // what another program has labelled can have any
			served, serr := a.endpoints(i.Name)
			row.Endpoints, err = served, errors.Join(err, serr)
		}
		rows = append(rows, row)
	}
	return rows, sandboxError(err)
}

func (a *App) printSandboxes(all []sandboxRow) error {
	w := tabwriter.NewWriter(a.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "SANDBOX\tRUNTIME\tIMAGE\tSTATUS\tAGE\tNETWORK\tENDPOINTS")
	for _, i := range all {
		var served []string
		for port, at := range i.Endpoints {
			served = append(served, port+" at "+at)
		}
		slices.Sort(served)
		if i.Owner != "" {
			i.State += sandbox.State(" (of " + text.Clean(i.Owner) + ")")
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", text.Clean(i.Name), text.Clean(string(i.Runtime)), clip(text.Clean(i.Image)), i.State, since(i.Created),
			text.Clean(string(i.Spec.Network)), orDash(strings.Join(served, ", ")))
	}
	return w.Flush()
}

// sandboxError gives an error of package sandbox its exit code and hint.
func sandboxError(err error) error {
	if _, unknown := errors.AsType[*unknownNameError](err); err == nil || unknown {
		return err
	}
	switch {
	case errors.Is(err, sandbox.ErrName):
		return fault.New(workorder.ExitUsage, err, "`sandbox-agent ps` lists sandboxes")
	case errors.Is(err, sandbox.ErrOtherOwner):
		code := workorder.ExitUsage
		if errors.Is(err, sandbox.ErrNotFound) {
			code = workorder.ExitNotFound
		}
		return fault.New(code, err, "take another name; `sandbox-agent down --force --all-users NAME` removes a sandbox of another state directory")
	case errors.Is(err, sandbox.ErrDamaged):
		return fault.New(workorder.ExitGeneral, err, "`sandbox-agent down --force NAME` removes what is left of it")
	case errors.Is(err, sandbox.ErrUnsaved):
		return fault.New(workorder.ExitGeneral, err, "`sandbox-agent down --force NAME` removes it all the same")
	case errors.Is(err, sandbox.ErrExists):
		return fault.New(workorder.ExitUsage, err, "`sandbox-agent exec NAME COMMAND` uses it, `sandbox-agent down NAME` removes it")
	case errors.Is(err, sandbox.ErrSnapshotExists):
		return fault.New(workorder.ExitUsage, err, "take another name, or remove it with `sandbox-agent snapshot rm`")
	case errors.Is(err, sandbox.ErrInUse):
		return fault.New(workorder.ExitGeneral, err, "`sandbox-agent reset` or `sandbox-agent down` of that sandbox comes first")
	case errors.Is(err, sandbox.ErrNotFound):
		return notFound(err, "")
	case errors.Is(err, sandbox.ErrUnavailable): // before what another runtime cannot give
		return fault.New(workorder.ExitBox, err, "start the Docker engine, or point DOCKER_HOST at one that runs")
	case errors.Is(err, sandbox.ErrUnsupported):
		return fault.New(workorder.ExitInvalid, err, "`sandbox-agent runtime list` says what each runtime can give here")
	case errors.Is(err, sandbox.ErrSpec): // it comes from the command line: project files are checked before
		return fault.New(workorder.ExitUsage, err, "")
	case errors.Is(err, sandbox.ErrPortUnavailable), errors.Is(err, porter.ErrPort):
		return fault.New(workorder.ExitPort, err, "take another port of this machine, or none for any that is free")
	case errors.Is(err, sandbox.ErrLost):
		return fault.New(workorder.ExitBox, err, "`sandbox-agent logs NAME` says why it ended, if it did; the next command starts it again")
	}
	return err
}

func notFound(err error, hint string) error { return fault.New(workorder.ExitNotFound, err, hint) }

// oneSandbox accepts exactly one name of a sandbox.
func oneSandbox(cmd *cobra.Command, args []string) error {
	if len(args) == 1 {
		return nil
	}
	return fault.New(workorder.ExitUsage, fmt.Errorf("%s needs one sandbox's name, got %d", cmd.CommandPath(), len(args)), "`sandbox-agent ps` lists sandboxes")
}

// checkSandbox returns a usage error for a name that neither a sandbox nor a snapshot can have.
func checkSandbox(name string) error {
	if sandbox.ValidName(name) {
		return nil
	}
	return fault.New(workorder.ExitUsage, fmt.Errorf("%.80q is %w: use letters a–z, digits, - and _, a letter or digit first, 63 at most", name, sandbox.ErrName), "`sandbox-agent ps` lists sandboxes")
}

// someSandboxes accepts one name of a sandbox or more.
func someSandboxes(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return nil
	}
	return oneSandbox(cmd, args)
}

// completeSandboxThen completes the name of a sandbox, and then one of words.
func (a *App) completeSandboxThen(words ...string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 1 {
			return words, cobra.ShellCompDirectiveNoFileComp
		}
		return a.completeSandboxes(false)(cmd, args, begun)
	}
}

func (a *App) completeSandboxes(several bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 && !several {
			return nil, cobra.ShellCompDirectiveDefault
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), engineWait)
		defer cancel()
		all, _ := a.allSandboxes(ctx, false) // of those that answer
		var names []string
		for _, i := range all {
			if strings.HasPrefix(i.Name, begun) && !slices.Contains(args, i.Name) {
				names = append(names, i.Name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
