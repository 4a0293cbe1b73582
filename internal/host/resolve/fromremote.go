package resolve

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/host/credentials"
	"github.com/sandbox-agent/sandbox-agent/internal/host/detect"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// fromRemote makes a project of the files of a remote's branch: its last commit lies in a temporary folder meanwhile.
func (f *Resolver) fromRemote(ctx context.Context, remote, branch string) (_ *projects.Project, _ *detect.Draft, err error) {
	if branch != "" && !workorder.ValidRefName(branch) {
		return nil, nil, fault.New(workorder.ExitUsage, fmt.Errorf("--branch %q is not a valid branch name", branch), "")
	}
	dir, err := os.MkdirTemp("", "sandbox-agent-remote-")
	if err != nil {
		return nil, nil, fmt.Errorf("look at remote %s: %w", credentials.Redacted(remote), err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ref, err := f.Credentials.Tip(ctx, remote, branch, dir)
	if err != nil {
		return nil, nil, err
	}
	repo := localrepo.Repo{Path: dir, Bare: true}
	tree, err := repo.Tree(ctx, ref)
	if err != nil {
		return nil, nil, err
	}
	shown := credentials.Redacted(remote)
	if _, err := fs.Stat(tree, projects.DefaultFile); err == nil {
		return nil, nil, fault.New(workorder.ExitNoProject, fmt.Errorf("%s has a project file, %s, which counts from a clone alone: it may ask for more than the repository's code may do, and trust goes by its place", shown, projects.DefaultFile),
			"`git clone "+shown+"`, and run `sandbox-agent create` there")
	}
	here, err := os.Getwd()
	if err != nil {
		return nil, nil, fmt.Errorf("find the current folder: %w", err)
	}
	return fromTree(ctx, tree, strings.TrimSuffix(path.Base(strings.TrimRight(shown, "/")), ".git"), shown, here)
}
