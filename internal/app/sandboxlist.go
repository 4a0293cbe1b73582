package app

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// SandboxRow says how a sandbox is.
type SandboxRow struct {
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
func rowOf(i sandbox.Info) SandboxRow {
	row := SandboxRow{Kind: "sandbox", Info: i, Workspace: cmp.Or(i.Spec.Repo, i.Spec.Worktree)}
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

// List lists standalone sandboxes. It returns the error of a runtime that does not answer if the list may lack one of its
// sandboxes, and else warns of it: an engine that does not answer has none of those that this state directory knows.
func (b Sandboxes) List(ctx context.Context, allUsers bool) ([]SandboxRow, error) {
	m, err := b.Manager(allUsers)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	all, err := m.List(ctx)
	rows := make([]SandboxRow, 0, len(all))
	for _, i := range all {
		row := rowOf(i)
		if i.Own && sandbox.ValidName(i.Name) { // what another program has labelled can have any
			served, serr := b.Endpoints().List(i.Name)
			row.Endpoints, row.Attached, err = served, b.Attached(i.Name), errors.Join(err, serr)
		}
		rows = append(rows, row)
	}
	unknown := slices.ContainsFunc(rows, func(r SandboxRow) bool { return r.State == sandbox.StateUnknown })
	if len(rows) > 0 && !unknown && errors.Is(err, sandbox.ErrUnavailable) {
		b.Warn(SandboxError(err).Error())
		err = nil
	}
	return rows, SandboxError(err)
}
