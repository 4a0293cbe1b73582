package codecmd

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox/code"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func completePresets(f *cmdutil.Factory) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		r, _ := f.Code().Presets(nil) // those that can be read
		var names []string
		for _, e := range r.Presets() {
			names = append(names, cobra.CompletionWithDesc(e.Name, e.Description))
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// NewCmdPreset makes the command.
func NewCmdPreset(f *cmdutil.Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use: "preset", Short: "List and check presets of 'run'", Args: cmdutil.NoArgs,
		Long: `Presets are the built-in ones, those of presets.yaml in the configuration
directory, and the artifacts in its directory presets. SANDBOX_AGENT_PRESETS and
SANDBOX_AGENT_PRESETS_DIR name another file and directory. docs/presets.md has
the keys of the file.`,
	}
	cmd.AddCommand(newPresetListCmd(f), newPresetValidateCmd(f))
	return cmd
}

// NewCmdEnv returns the hidden command that had the name of preset until the previous release.
func NewCmdEnv(f *cmdutil.Factory) *cobra.Command {
	cmd := NewCmdPreset(f)
	cmd.Use, cmd.Hidden = "env", true
	return cmd
}

func newPresetListCmd(f *cmdutil.Factory) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List presets", Args: cmdutil.NoArgs,
		Example: "  sandbox-agent preset list\n  sandbox-agent preset list --json",
		RunE: func(*cobra.Command, []string) error {
			r, err := f.Code().Presets(f.Warn)
			if err != nil {
				return err
			}
			return listPresets(f, r.Presets(), asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func listPresets(f *cmdutil.Factory, all []code.Preset, asJSON bool) error {
	if asJSON {
		return f.JSON(all)
	}
	w := tabwriter.NewWriter(f.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "PRESET\tBACKEND\tSESSIONS\tSOURCE\tDESCRIPTION")
	for _, p := range all {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", text.Clean(p.Name), cmp.Or(string(p.Runtime), "auto"), cmp.Or(string(p.Driver), "-"),
			text.Clean(p.Source), text.Clean(p.Description))
	}
	return w.Flush()
}

func newPresetValidateCmd(f *cmdutil.Factory) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use: "validate [FILE]", Short: "Check the file of presets", Example: `  sandbox-agent preset validate
  sandbox-agent preset validate ./presets.yaml`,
		Args:              cmdutil.Args(0, 1, "at most one file", "see `sandbox-agent preset validate --help`"),
		ValidArgsFunction: cobra.FixedCompletions([]string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt),
		RunE: func(_ *cobra.Command, args []string) error {
			n, err := f.Code().CheckPresets(strings.Join(args, ""))
			if err != nil {
				return err
			}
			return f.Done(asJSON, map[string]int{"valid": n}, "%d presets can be used", n)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// NewCmdArtifact makes the command.
func NewCmdArtifact(f *cmdutil.Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use: "artifact", Short: "Build and check artifacts: presets as directories", Args: cmdutil.NoArgs,
		Long: `An artifact is a directory with bin/run, which runs the code of its standard
input, and metadata.json. Artifacts that are built here work without
sandbox-agent. Other artifacts run as they are, with limits of time and memory.`,
	}
	cmd.AddCommand(newArtifactBuildCmd(f), newArtifactValidateCmd(f), newArtifactListCmd(f))
	return cmd
}

func newArtifactBuildCmd(f *cmdutil.Factory) *cobra.Command {
	out, asJSON := "", false
	cmd := &cobra.Command{
		Use: "build DEFINITION", Short: "Build an artifact from a YAML definition",
		Long: `Builds the directory --out with bin/run and metadata.json. The keys of a
definition are name, interpreter (bash -s), stdin_mode, backend (jail, container
or box), packages of the distribution, image of a container, timeout_seconds
(30), memory_mb (512), description, inherit_vars and project_mount (/project).`,
		Example: "  sandbox-agent artifact build data.yaml -o data\n  echo 'print(6 * 7)' | data/bin/run",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && out != "" {
				return nil
			}
			return exiterr.New(workorder.ExitUsage, fmt.Errorf("%s needs one definition, and --out", cmd.CommandPath()),
				"for example: sandbox-agent artifact build data.yaml -o data")
		},
		ValidArgsFunction: cobra.FixedCompletions([]string{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt),
		RunE: func(cmd *cobra.Command, args []string) error {
			return buildArtifact(cmd.Context(), f, args[0], out, asJSON)
		},
	}
	cmd.Flags().StringVarP(&out, "out", "o", "", "directory of the artifact; an existing one is replaced")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	_ = cmd.RegisterFlagCompletionFunc("out", cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)) // of a flag that is there
	return cmd
}

func buildArtifact(ctx context.Context, f *cmdutil.Factory, file, out string, asJSON bool) error {
	progress := f.Stdout
	if asJSON {
		progress = f.Stderr
	}
	view := f.NewView(progress, false)
	defer view.Close()
	err := f.Code().BuildArtifact(ctx, file, out, view.Event)
	view.Close()
	if err != nil {
		return err
	}
	return f.Done(asJSON, map[string]string{"artifact": out}, "%s", out)
}

func newArtifactValidateCmd(f *cmdutil.Factory) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use: "validate DIR...", Short: "Check artifacts", Example: "  sandbox-agent artifact validate ./data",
		Args:              cmdutil.Args(1, cmdutil.Any, "the directory of an artifact", "for example: sandbox-agent artifact validate ./data"),
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := f.Code().CheckArtifacts(args); err != nil || !asJSON {
				return err
			}
			return f.JSON(map[string][]string{"valid": args})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newArtifactListCmd(f *cmdutil.Factory) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list [DIR]", Aliases: []string{"ls"}, Short: "List artifacts",
		Example: "  sandbox-agent artifact list\n  sandbox-agent artifact list ./artifacts --json",
		Long: `Lists the artifacts in the directory presets of the configuration
directory, or in another one.`,
		Args:              cmdutil.Args(0, 1, "at most one directory", "see `sandbox-agent artifact list --help`"),
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs),
		RunE: func(_ *cobra.Command, args []string) error {
			all, err := f.Code().Artifacts(strings.Join(args, ""))
			if err != nil {
				return err
			}
			return listPresets(f, all, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
