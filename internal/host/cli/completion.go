package cli

import (
	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// completeFlags offers the values that flags of a run can have.
func (a *App) completeFlags(cmd *cobra.Command) {
	var modes []string
	for _, m := range workorder.NetworkModes() {
		modes = append(modes, string(m))
	}
	for flag, values := range map[string][]string{
		"harness":   workorder.Harnesses(),
		"network":   modes,
		"isolation": {workorder.IsolationConfined, workorder.IsolationPrivileged},
	} {
		// It can only fail for a flag that does not exist.
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	_ = cmd.RegisterFlagCompletionFunc("command", cobra.NoFileCompletions)
	a.CompleteProjectFlag(cmd)
}
