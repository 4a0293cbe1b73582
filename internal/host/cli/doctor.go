package cli

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/host/doctor"
	"github.com/sandbox-agent/sandbox-agent/internal/host/provision"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func newDoctorCmd(a *App) *cobra.Command {
	asJSON, sandboxRuntime := false, ""
	o := &deepOptions{}
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check what this machine can do", Args: noArgs,
		Long: `Checks the engine, the available isolation, the network policy, the image, disk
space, git and gh. It runs containers of the sandbox's image where that exists,
and pulls nothing.

With --deep it runs real sandboxes in which the user sandbox uses Docker as
agents do (CLI, compose, BuildKit, volumes, limits, and what must be refused),
and prints a table. The checks build images from the package busybox-static, so
the sandbox needs a package mirror. They take some minutes and leave nothing.

With --deep --runtime R it tries each promise of that runtime in a sandbox.`,
		Example: "  sandbox-agent doctor\n  sandbox-agent doctor --json\n  sandbox-agent doctor --deep --isolation privileged\n  sandbox-agent doctor --deep --runtime container --image debian:trixie",
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range []string{"isolation", "oci-runtime", "image", "runtime"} {
				if !o.deep && cmd.Flags().Changed(name) {
					return usage("--%s is only for --deep: without it all that can be given is looked at", name)
				}
			}
			if o.deep {
				o.json = asJSON
				if sandboxRuntime != "" {
					return o.deepRuntime(cmd.Context(), a, sandboxRuntime)
				}
				return o.do(cmd.Context(), a)
			}
			return runDoctor(cmd.Context(), a, asJSON)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&asJSON, "json", false, "print the checks as JSON")
	f.BoolVar(&o.deep, "deep", false, "use Docker in real sandboxes, as agents do")
	f.StringVar(&o.isolation, "isolation", workorder.IsolationConfined, "with --deep: isolation of the sandboxes, confined or privileged")
	f.StringVar(&o.ociRuntime, "oci-runtime", "", "with --deep: OCI runtime of the engine, such as runsc")
	f.StringVar(&o.image, "image", "", "with --deep: image of the sandboxes (default: built by this program)")
	f.StringVar(&sandboxRuntime, "runtime", "", "with --deep: runtime to try, in place of Docker")
	// It can only fail for a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("isolation", cobra.FixedCompletions([]string{workorder.IsolationConfined, workorder.IsolationPrivileged}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// taskImages are the names of images that a task's sandbox would be made of. Other images are current, too: the small one has not what a task needs.
func taskImages(list []provision.BuiltImage) (names []string) {
	for _, i := range list {
		for _, tag := range i.Tags {
			if i.Current && strings.HasPrefix(tag, provision.Repository+":") {
				names = append(names, tag)
			}
		}
	}
	return names
}

func runDoctor(ctx context.Context, a *App, asJSON bool) error {
	st, err := a.store()
	if err != nil {
		return err
	}
	own, err := st.Owner(false)
	if err != nil {
		return err
	}
	d := doctor.Doctor{StateDir: st.Dir(), Owner: own.ID}
	be, err := a.open()
	if err != nil {
		d.OpenError = err
	} else {
		d.Engine = be.Engine
		d.Images = func(ctx context.Context) ([]string, error) {
			list, err := be.Images.List(ctx)
			return taskImages(list), err
		}
	}
	checks := d.Run(ctx)
	if asJSON {
		err = a.json(checks)
	} else {
		w := tabwriter.NewWriter(a.Stdout, 0, 4, 2, ' ', 0)
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
		if c.Status == doctor.Fail {
			return cmdutil.Exit(workorder.ExitGeneral)
		}
	}
	return nil
}
