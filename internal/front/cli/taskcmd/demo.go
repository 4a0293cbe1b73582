package taskcmd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/projects/demo"
)

type demoOptions struct {
	json bool
}

// NewCmdDemo makes the command.
func NewCmdDemo(f *cmdutil.Factory) *cobra.Command {
	o := &demoOptions{}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a whole task on a sample repository, without an account",
		Long: `Runs a whole task: a small repository with a service (Redis), a failing test,
and a scripted agent that fixes the code. It needs a Docker engine and nothing
else: no account, no key, no model. Missing images are built first, which takes
some minutes once.

The sample repository with the agent's branch is in the state directory
afterwards. Each call starts with a new one.`,
		Example: "  sandbox-agent demo\n  sandbox-agent demo --json",
		Args:    cmdutil.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.do(cmd.Context(), f) },
	}
	cmd.Flags().BoolVar(&o.json, "json", false, "print events as JSON lines")
	return cmd
}

func (o *demoOptions) do(ctx context.Context, f *cmdutil.Factory) error {
	st, err := f.Store()
	if err != nil {
		return err
	}
	be, err := f.Engine()
	if err != nil {
		return err
	}
	repo, project, err := writeDemo(ctx, filepath.Join(st.Dir(), "demo"))
	if err != nil {
		return fmt.Errorf("prepare the sample repository: %w", err)
	}
	dockerfile, err := demo.ServiceDockerfile()
	if err != nil {
		return err
	}
	view := f.NewView(f.Stdout, o.json)
	err = be.Images.Derive(ctx, demo.ServiceImage, dockerfile, view.Event)
	view.Close()
	if err != nil {
		return err
	}
	run := runOptions{json: o.json, TaskFlags: app.TaskFlags{
		Project: project, Values: map[string]string{"repo": repo}, Sources: map[string]string{"repo": "demo"},
	}}
	t, r := run.tasks(f), run.request()
	r.Text = demo.Task
	out, err := t.Create(ctx, r)
	if err := run.answer(ctx, f, t, out, err); err != nil || o.json {
		return err
	}
	return showDiff(ctx, f, repo)
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

// showDiff prints the changes of the agent's branch, the only other branch.
func showDiff(ctx context.Context, f *cmdutil.Factory, repo string) error {
	r := git.Repo{Dir: repo, Env: []string{"GIT_CONFIG_GLOBAL=/dev/null"}}
	refs, err := r.Output(ctx, "for-each-ref", "--format=%(refname)", "refs/heads/agent/")
	if err != nil {
		return err
	}
	for ref := range strings.FieldsSeq(string(refs)) {
		diff, err := r.Output(ctx, "diff", "--no-ext-diff", "--no-textconv", "main..."+ref, "--")
		if err != nil {
			return err
		}
		fmt.Fprintln(f.Stdout)
		for line := range strings.Lines(string(diff)) {
			fmt.Fprintln(f.Stdout, text.Clean(strings.TrimSuffix(line, "\n")))
		}
	}
	return nil
}
