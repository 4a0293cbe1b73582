package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/version"
)

func newVersionCmd(f *cmdutil.Factory) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version", Args: cmdutil.NoArgs,
		Example: "  sandbox-agent version --json",
		RunE: func(*cobra.Command, []string) error {
			v := version.Get()
			if asJSON {
				return f.JSON(v)
			}
			fmt.Fprintf(f.Stdout, "sandbox-agent %s (%s, %s)\n", v.Version, v.Go, v.Platform)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON with details of the build")
	return cmd
}
