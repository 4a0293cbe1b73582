package setupcmd

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// NewCmdDoctor makes the command.
func NewCmdDoctor(f *cmdutil.Factory) *cobra.Command {
	asJSON, sandboxRuntime := false, ""
	o := &deepOptions{}
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check what this machine can do", Args: cmdutil.NoArgs,
		Long: `Checks the engine, the available isolation, the network policy, the image, disk
space, git and gh. It runs containers of the sandbox's image where that exists,
and pulls nothing.

With --deep it runs real sandboxes in which the user sandbox uses Docker as
agents do (CLI, compose, BuildKit, volumes, limits, and what must be refused),
and prints a table. The checks build images from the package busybox-static, so
the sandbox needs a package mirror. They take some minutes and leave nothing.

With --deep --runtime R it tries each promise of that runtime in a sandbox.`,
		Example: "  sandbox-agent doctor\n" +
			"  sandbox-agent doctor --json\n" +
			"  sandbox-agent doctor --deep --isolation privileged\n" +
			"  sandbox-agent doctor --deep --runtime container --image debian:trixie",
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range []string{"isolation", "oci-runtime", "image", "runtime"} {
				if !o.deep && cmd.Flags().Changed(name) {
					return app.Usagef("--%s is only for --deep: without it all that can be given is looked at", name)
				}
			}
			if o.deep {
				o.json = asJSON
				if sandboxRuntime != "" {
					return o.tryRuntime(cmd.Context(), f, sandboxRuntime)
				}
				return o.do(cmd.Context(), f)
			}
			return runDoctor(cmd.Context(), f, asJSON)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&asJSON, "json", false, "print the checks as JSON")
	flags.BoolVar(&o.deep, "deep", false, "use Docker in real sandboxes, as agents do")
	flags.StringVar(&o.Isolation, "isolation", workorder.IsolationConfined, "with --deep: isolation of the sandboxes, confined or privileged")
	flags.StringVar(&o.OCIRuntime, "oci-runtime", "", "with --deep: OCI runtime of the engine, such as runsc")
	flags.StringVar(&o.Image, "image", "", "with --deep: image of the sandboxes (default: built by this program)")
	flags.StringVar(&sandboxRuntime, "runtime", "", "with --deep: runtime to try, in place of Docker")
	// It can only fail for a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("isolation", cobra.FixedCompletions([]string{
		workorder.IsolationConfined,
		workorder.IsolationPrivileged,
	}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func runDoctor(ctx context.Context, f *cmdutil.Factory, asJSON bool) error {
	checks, err := f.Machine().Check(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		err = f.JSON(checks)
	} else {
		w := tabwriter.NewWriter(f.Stdout, 0, 4, 2, ' ', 0)
		for _, c := range checks {
			fmt.Fprintf(w, "%s\t%s\t%s\n", c.Status, text.Clean(c.Name), text.Clean(c.Message))
			if c.Hint != "" {
				fmt.Fprintf(w, "\t\thint: %s\n", text.Clean(c.Hint))
			}
		}
		err = w.Flush()
	}
	if err != nil {
		return err
	}
	for _, c := range checks {
		if c.Status == app.CheckFailed {
			return cmdutil.Exit(workorder.ExitGeneral)
		}
	}
	return nil
}
