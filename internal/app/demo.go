package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/host/tasks"
	"github.com/sandbox-agent/sandbox-agent/projects/demo"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Demonstration is the task of the sample repository.
type Demonstration struct {
	TaskOutcome
	repo string
}

// Demo runs a task on a new sample repository in the state directory. events returns a receiver for the events of the service's
// image, and a function to call after the last one.
func Demo(ctx context.Context, t *Tasks, events func() (show func(workorder.Event), done func())) (d Demonstration, err error) {
	dir, err := t.StateDir()
	if err != nil {
		return d, err
	}
	be, err := t.Engine()
	if err != nil {
		return d, err
	}
	var project string
	if d.repo, project, err = writeDemo(ctx, filepath.Join(dir, "demo")); err != nil {
		return d, fmt.Errorf("prepare the sample repository: %w", err)
	}
	dockerfile, err := demo.ServiceDockerfile()
	if err != nil {
		return d, err
	}
	show, done := events()
	err = be.Images.Derive(ctx, demo.ServiceImage, dockerfile, show)
	done()
	if err != nil {
		return d, err
	}
	r := TaskRequest{Request: tasks.Request{Text: demo.Task}, Flags: TaskFlags{
		Project: project, Values: map[string]string{"repo": d.repo}, Sources: map[string]string{"repo": "demo"},
	}}
	d.TaskOutcome, err = t.Create(ctx, r)
	return d, err
}

// writeDemo makes a new sample repository with one commit, and the project file beside it.
func writeDemo(ctx context.Context, dir string) (repo, project string, err error) {
	repo, project = filepath.Join(dir, "repo"), filepath.Join(dir, "project.yaml")
	if err := os.RemoveAll(repo); err != nil {
		return "", "", err
	}
	files, err := demo.Repository()
	if err != nil {
		return "", "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", "", err
	}
	if err := os.CopyFS(repo, files); err != nil {
		return "", "", err
	}
	yaml, err := demo.Project()
	if err != nil {
		return "", "", err
	}
	if err := os.WriteFile(project, yaml, 0o600); err != nil {
		return "", "", err
	}
	r := git.Repo{Dir: repo, Env: []string{
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=Demo", "GIT_AUTHOR_EMAIL=demo@example.org",
		"GIT_COMMITTER_NAME=Demo", "GIT_COMMITTER_EMAIL=demo@example.org",
	}}
	for _, args := range [][]string{
		{"init", "--quiet", "--template=", "--initial-branch=main"},
		{"add", "--all"},
		{"commit", "--quiet", "--no-gpg-sign", "--message", "Count visits"},
	} {
		if err := r.Run(ctx, args...); err != nil {
			return "", "", err
		}
	}
	return repo, project, nil
}

// Diff returns the changes of the agent's branch, the only other branch.
func (d Demonstration) Diff(ctx context.Context) (string, error) {
	r := git.Repo{Dir: d.repo, Env: []string{"GIT_CONFIG_GLOBAL=/dev/null"}}
	refs, err := r.Output(ctx, "for-each-ref", "--format=%(refname)", "refs/heads/agent/")
	if err != nil {
		return "", err
	}
	diff, err := r.Output(ctx, "diff", "--no-ext-diff", "--no-textconv", "main..."+strings.TrimSpace(string(refs)), "--")
	return string(diff), err
}
