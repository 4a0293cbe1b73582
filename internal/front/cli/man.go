package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/version"
)

func newManCmd() *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "Write man pages",
		Long: `Writes a man page of section 1 for each command into a directory, which is
created if it is missing.`,
		Example: "  sandbox-agent man ~/.local/share/man/man1\n  man sandbox-agent-create",
		Args:    cmdutil.Args(1, 1, "one directory", "for example: sandbox-agent man ~/.local/share/man/man1"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("create the directory of man pages: %w", err)
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true // the date is at the top
			if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "sandbox-agent " + version.Get().Version}, args[0]); err != nil {
				return fmt.Errorf("write man pages: %w", err)
			}
			return nil
		},
	}
}
