package setupcmd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// NewCmdRuntime makes the command.
func NewCmdRuntime(f *cmdutil.Factory) *cobra.Command {
	cmd := &cobra.Command{Use: "runtime", Short: "List the runtimes available on this machine", Args: cmdutil.NoArgs}
	cmd.AddCommand(newRuntimeListCmd(f))
	return cmd
}

// runtimeWait bounds the questions to all runtimes: an engine that answers does so within milliseconds.
const runtimeWait = 5 * time.Second

func newRuntimeListCmd(f *cmdutil.Factory) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls", "detect"}, Short: "List runtimes with their capabilities",
		Example: "  sandbox-agent runtime list\n  sandbox-agent runtime list --json",
		Args:    cmdutil.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := f.Manager(false)
			if err != nil {
				return err
			}
			defer m.Close()
			ctx, cancel := context.WithTimeout(cmd.Context(), runtimeWait)
			defer cancel()
			all := m.Runtimes(ctx)
			if asJSON {
				return f.JSON(all)
			}
			w := tabwriter.NewWriter(f.Stdout, 0, 4, 2, ' ', 0)
			fmt.Fprintln(w, "RUNTIME\tHERE\tCAN GIVE")
			for _, r := range all {
				here, can := "yes", strings.Join(words(r.Capabilities), " ")
				if !r.Healthy {
					here, can = "no", text.Clean(r.Reason)
				}
				fmt.Fprintf(w, "%s\t%s\t%s\n", r.Runtime, here, can)
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON list")
	return cmd
}

func words(all []sandbox.Capability) []string {
	list := make([]string, 0, len(all))
	for _, c := range all {
		list = append(list, string(c))
	}
	slices.Sort(list)
	return list
}
