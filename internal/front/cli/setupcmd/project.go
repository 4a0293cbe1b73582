// Package setupcmd has the commands that set up and clean a machine: project, policy, templates, image, cache, gc and doctor.
package setupcmd

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/diag"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// NewCmdProject makes the command.
func NewCmdProject(f *cmdutil.Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use: "project", Short: "Write, check and show project files", Args: cmdutil.NoArgs,
		Long: `A project file says what a task's sandbox needs for a repository: its address,
services, setup and checks.

A project is named by a path, or by a name. Names are looked for in
./.sandbox-agent/, ./projects/, the directories of SANDBOX_AGENT_PROJECTS, the
user's configuration directory under sandbox-agent/projects/, and the shipped
examples. The default is ./.sandbox-agent.yaml.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newProjectInitCmd(f), newProjectImportCmd(f), newProjectValidateCmd(f), newProjectShowCmd(f), newProjectTrustCmd(f),
		newProjectSchemaCmd(f), newProjectGetCmd(f))
	cmd.AddCommand(newProjectEditCmds(f)...)
	return cmd
}

type projectInitOptions struct {
	force, print, agent, pr, json bool
	output                        string
	rounds                        int
}

func newProjectInitCmd(f *cmdutil.Factory) *cobra.Command {
	o := &projectInitOptions{}
	cmd := &cobra.Command{
		Use: "init", Short: "Write a project file for the current directory", Args: cmdutil.NoArgs,
		Long: `Reads devcontainer.json, compose files, GitHub Actions workflows, manifests, lock
and version files of the current directory, and writes a commented project file
that names the source of each value. It runs nothing, and replaces a file only
with --force.

With --agent an agent writes the file in a sandbox. Then the file is tried
without the agent, on the last commit: setup from scratch, setup with the setup
cache, and every check. What fails goes back to the agent with its log. If no
round works, the exit code is 10, and the last version is FILE.rejected.`,
		Example: `  sandbox-agent project init
  sandbox-agent project init --print
  sandbox-agent project init --output projects/my-app.yaml
  sandbox-agent project init --agent
  sandbox-agent project init --agent --harness codex --rounds 5 --json
  sandbox-agent project init --agent --pr`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.checkAgentFlags(cmd.Flags()); err != nil {
				return err
			}
			if o.agent {
				return o.doAgent(cmd.Context(), f, cmd.Flags())
			}
			return o.do(f)
		},
	}
	cmd.Flags().BoolVar(&o.force, "force", false, "replace the file if it exists")
	cmd.Flags().BoolVar(&o.print, "print", false, "print the file instead of writing it")
	cmd.Flags().BoolVar(&o.json, "json", false, "write the file, and print what was found and left out as JSON")
	cmd.Flags().StringVarP(&o.output, "output", "o", projects.DefaultFile, "file to write")
	cmd.MarkFlagsMutuallyExclusive("print", "json")
	o.agentFlags(cmd)
	return cmd
}

func (o *projectInitOptions) do(f *cmdutil.Factory) error {
	draft, err := f.Projects().Draft()
	if err != nil {
		return err
	}
	if o.print {
		_, err := fmt.Fprint(f.Stdout, draft.Text)
		return err
	}
	if err := o.write(draft.Text); err != nil {
		return err
	}
	if o.json {
		return f.JSON(struct {
			File string `json:"file"`
			*app.DetectReport
		}{o.output, draft.Report})
	}
	found := cmp.Or(strings.Join(draft.Sources, ", "), "nothing it knows")
	fmt.Fprintf(f.Stdout, "wrote %s (found: %s)\n", o.output, found)
	if !draft.HasRepo {
		fmt.Fprintln(f.Stderr, "warning: the current directory is not in a git repository\n"+
			"hint: create one (git init, and a first commit), or set repo to a path or URL")
		return nil
	}
	fmt.Fprintf(f.Stdout, "next: look it over and commit it (git add %s), then sandbox-agent \"...\"\n", o.output)
	return nil
}

// write writes the file, which must not be there without --force.
func (o *projectInitOptions) write(text string) error {
	if o.force {
		return replace(o.output, text)
	}
	file, err := os.OpenFile(o.output, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return o.exists()
	}
	if err != nil {
		return fmt.Errorf("write project file: %w", err)
	}
	if _, err = file.WriteString(text); err == nil {
		err = file.Close()
	}
	if err != nil {
		return fmt.Errorf("write project file %s: %w", o.output, err)
	}
	return nil
}

// replace writes a file in the place of what has its name: a symbolic link in a repository may lead anywhere.
func replace(file, text string) error {
	if err := renameio.WriteFile(file, []byte(text), 0o644, renameio.WithTempDir(filepath.Dir(file))); err != nil {
		return fmt.Errorf("write project file %s: %w", file, err)
	}
	return nil
}

// containerUseFile is where container-use keeps a repository's environment.
const containerUseFile = ".container-use/environment.json"

func newProjectImportCmd(f *cmdutil.Factory) *cobra.Command {
	o := &projectInitOptions{}
	cmd := &cobra.Command{
		Use: "import [FILE|SANDBOX]", Short: "Write settings of container-use or of a sandbox to a project file",
		Long: `Converts .container-use/environment.json of the current directory, or another
such file: setup, services, variables, and references to secrets. It prints what
has no counterpart.

Of a sandbox it writes image, environment, setup, services, packages, tools,
network and limits to the project file that the sandbox was made of, or to that
of the current directory. Other values stay, with comments and order.`,
		Example: `  sandbox-agent project import
  sandbox-agent project import path/to/environment.json --print
  sandbox-agent project import dev`,
		Args: cmdutil.Args(0, 1, "at most one file or sandbox", "see `sandbox-agent project import --help`"),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			names, _ := f.CompleteSandboxes(false)(cmd, args, typed)
			return names, cobra.ShellCompDirectiveDefault
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && sandbox.ValidName(args[0]) {
				if st, err := os.Stat(args[0]); err != nil || st.IsDir() {
					return o.importSandbox(cmd, f, args[0])
				}
			}
			if o.json {
				return app.Usagef("--json is for the settings of a sandbox")
			}
			file := containerUseFile
			if len(args) == 1 {
				file = args[0]
			}
			text, notes, err := f.Projects().Import(file)
			if err != nil {
				return err
			}
			for _, n := range notes {
				f.Warn(n)
			}
			if o.print {
				_, err := fmt.Fprint(f.Stdout, text)
				return err
			}
			if err := o.write(text); err != nil {
				return err
			}
			_, err = fmt.Fprintf(f.Stdout, "wrote %s\nnext: sandbox-agent project validate %s\n", o.output, o.output)
			return err
		},
	}
	cmd.Flags().BoolVar(&o.force, "force", false, "replace the file if it exists; settings of a sandbox need no force")
	cmd.Flags().BoolVar(&o.print, "print", false, "print the file instead of writing it")
	cmd.Flags().BoolVar(&o.json, "json", false, "print the changed and the dropped keys of a sandbox as JSON")
	cmd.MarkFlagsMutuallyExclusive("print", "json")
	cmd.Flags().StringVarP(&o.output, "output", "o", projects.DefaultFile, "file to write")
	return cmd
}

func (o *projectInitOptions) importSandbox(cmd *cobra.Command, f *cmdutil.Factory, name string) error {
	file := ""
	if cmd.Flags().Changed("output") {
		file = o.output
	}
	d, err := f.Projects().ImportSandbox(cmd.Context(), name, file, o.print)
	if err != nil {
		return refused(f, err)
	}
	for _, dropped := range d.Dropped {
		f.Warn("dropped: " + dropped)
	}
	switch {
	case o.print:
		_, err = fmt.Fprint(f.Stdout, d.Text)
		return err
	case o.json:
		return f.JSON(d)
	case len(d.Changed) == 0:
		_, err = fmt.Fprintf(f.Stdout, "%s has these settings already\n", d.File)
		return err
	}
	_, err = fmt.Fprintf(f.Stdout, "changed %s: %s\n", d.File, strings.Join(d.Changed, ", "))
	return err
}

// refused returns the error of a change that was not made. It prints mistakes.
func refused(f *cmdutil.Factory, err error) error {
	list, ok := projects.Problems(err)
	if !ok {
		return err
	}
	if err := list.Print(f.Stderr, diag.Style{Color: f.Color(f.Stderr)}); err != nil {
		return err
	}
	f.Say("nothing was written")
	return cmdutil.Exit(workorder.ExitInvalid)
}

func newProjectValidateCmd(f *cmdutil.Factory) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use: "validate [FILE|NAME]...", Short: "Check project files", ValidArgsFunction: f.CompleteProjects(true),
		Long: `Prints every mistake of every file with its position, a code and a hint. The
exit code is 6 when there are any, 3 when there is no such project.`,
		Example: `  sandbox-agent project validate
  sandbox-agent project validate my-saas-app
  sandbox-agent project validate --json projects/*.yaml`,
		RunE: func(_ *cobra.Command, args []string) error { return validateProjects(f, args, asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the mistakes as a JSON list")
	return cmd
}

func validateProjects(f *cmdutil.Factory, refs []string, asJSON bool) error {
	opts, err := projects.SystemOptions()
	if err != nil {
		return err
	}
	if len(refs) == 0 {
		refs = []string{""}
	}
	all := diag.List{}
	var other error
	for _, ref := range refs {
		p, err := projects.Load(ref, opts)
		list, positioned := projects.Problems(err)
		switch {
		case positioned:
			all = append(all, list...)
		case err != nil:
			// The other files are still worth checking.
			other = errors.Join(other, err)
		case !asJSON:
			fmt.Fprintf(f.Stdout, "%s: ok\n", diag.Printable(p.File))
			if p.LacksKey() && !slices.ContainsFunc(p.KeyNames(), func(name string) bool { return f.Getenv(name) != "" }) {
				fmt.Fprintf(f.Stdout, "warning: the harness %s has no key: the project names none, and none is set of %s\nhint: %s\n",
					p.Harness.Name, strings.Join(p.KeyNames(), ", "), p.KeyHint())
			}
			cmdutil.Advise(f.Stdout, p)
		}
	}
	if asJSON {
		if err := f.JSON(all.Sorted()); err != nil {
			return err
		}
	} else if err := all.Print(f.Stdout, diag.Style{Color: f.Color(f.Stdout)}); err != nil {
		return err
	}
	switch {
	case other != nil:
		return other
	case len(all) > 0:
		return cmdutil.Exit(workorder.ExitInvalid)
	}
	return nil
}

func newProjectShowCmd(f *cmdutil.Factory) *cobra.Command {
	effective, asJSON := false, false
	cmd := &cobra.Command{
		Use: "show [FILE|NAME]", Short: "Print a project with its defaults", Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: f.CompleteProjects(false),
		Long: `Prints the project as YAML. --effective adds defaults, the source of each value,
and what follows: reachable hosts, servers behind the model gateway, and which
program gets which secret. --json prints the values only.`,
		Example: `  sandbox-agent project show
  sandbox-agent project show --json
  sandbox-agent project show --effective my-saas-app`,
		RunE: func(_ *cobra.Command, args []string) error {
			opts, err := projects.SystemOptions()
			if err != nil {
				return err
			}
			p, err := projects.Load(strings.Join(args, ""), opts)
			if err != nil {
				return err
			}
			if asJSON {
				return f.JSON(p.Values(effective))
			}
			if _, err = fmt.Fprint(f.Stdout, p.Show(effective)); err != nil || !effective {
				return err
			}
			return showAccess(f, p)
		},
	}
	cmd.Flags().BoolVar(&effective, "effective", false, "add defaults and the source of each value")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// showAccess prints, as comments, what the agent will reach and which secrets it gets.
func showAccess(f *cmdutil.Factory, p *projects.Project) error {
	lines, err := f.Projects().Access(p)
	if err != nil {
		return err
	}
	for _, l := range lines {
		fmt.Fprintf(f.Stdout, "# %-8s %s\n", l.Name, text.Clean(l.Text))
	}
	return nil
}

func newProjectSchemaCmd(f *cmdutil.Factory) *cobra.Command {
	markdown := false
	cmd := &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of project files", Args: cmdutil.NoArgs,
		Long: `Prints a JSON Schema (draft 2020-12). Editors with a YAML language server use it
when the first line of a project file is

  # yaml-language-server: $schema=./sandbox-agent.schema.json`,
		Example: "  sandbox-agent project schema > sandbox-agent.schema.json",
		RunE: func(*cobra.Command, []string) error {
			if markdown {
				_, err := io.WriteString(f.Stdout, projects.Markdown())
				return err
			}
			b, err := projects.JSONSchema()
			if err != nil {
				return err
			}
			_, err = f.Stdout.Write(b)
			return err
		},
	}
	cmd.Flags().BoolVar(&markdown, "markdown", false, "print the table of keys as Markdown")
	return cmd
}
