package cmdutil

import (
	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
)

// FallbackVar adds the flag that allows a command to run without isolation.
func FallbackVar(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "fallback", "", "host: run on this machine, without isolation, where no runtime is available")
	// It can only fail for a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("fallback", cobra.FixedCompletions([]string{app.FallbackHost}, cobra.ShellCompDirectiveNoFileComp))
}
