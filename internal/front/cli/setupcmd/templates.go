package setupcmd

import (
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// template is a row of the list.
type template struct {
	Name        string   `json:"name"`
	Agents      []string `json:"agents"`
	Network     string   `json:"network"`
	Description string   `json:"description,omitempty"`
	File        string   `json:"file"`
}

// NewCmdTemplates makes the command.
func NewCmdTemplates(f *cmdutil.Factory) *cobra.Command {
	strict, asJSON := false, false
	cmd := &cobra.Command{
		Use: "templates", Short: "List templates: project files without a repository", Args: cmdutil.NoArgs,
		Long: `Lists the templates in the directories of project files. A template is a project
file without 'repo'; "up NAME -p TEMPLATE --repo ." creates a sandbox from it. A
broken file is skipped with a warning; with --strict it is an error.`,
		Example: "  sandbox-agent templates\n  sandbox-agent templates --strict",
		RunE: func(*cobra.Command, []string) error {
			opts, err := projects.SystemOptions()
			if err != nil {
				return err
			}
			if dir := f.Getenv(app.EnvName("projects-dir")); dir != "" {
				opts.Dirs = append([]string{dir}, opts.Dirs...)
			}
			all, errs := templates(opts)
			if strict && len(errs) > 0 {
				return exiterr.New(workorder.ExitInvalid, errors.Join(errs...), "`sandbox-agent project validate NAME` shows each mistake")
			}
			for _, err := range errs {
				first, _, _ := strings.Cut(err.Error(), "\n")
				f.Warn(first)
			}
			if asJSON {
				return f.JSON(all)
			}
			w := tabwriter.NewWriter(f.Stdout, 0, 4, 2, ' ', 0)
			fmt.Fprintln(w, "TEMPLATE\tAGENTS\tNETWORK\tDESCRIPTION")
			for _, t := range all {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", text.Clean(t.Name), strings.Join(t.Agents, ","), t.Network,
					cmdutil.OrDash(text.Clean(t.Description)))
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "fail on broken files")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func templates(opts projects.LoadOptions) (all []template, errs []error) {
	all = []template{}
	for _, name := range projects.Names(opts) {
		p, err := projects.Load(name, opts)
		if err != nil {
			errs = append(errs, fmt.Errorf("project %s: %w", name, err))
			continue
		}
		if p.Repo != "" {
			continue
		}
		t := template{Name: name, Network: string(p.Network.Mode), Description: p.Description, File: p.Path()}
		for _, agent := range p.Agents {
			t.Agents = append(t.Agents, agent.Name)
		}
		if len(t.Agents) == 0 {
			t.Agents = []string{p.Harness.Name}
		}
		all = append(all, t)
	}
	return all, errs
}
