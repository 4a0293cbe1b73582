package taskcmd

import (
	"context"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
)

// NewCmdCompanion makes the command.
func NewCmdCompanion(f *cmdutil.Factory) *cobra.Command {
	return &cobra.Command{
		Use: app.CompanionCommand, Hidden: true, Args: cmdutil.NoArgs,
		Aliases: []string{"companion"}, // for a create that began before this program was updated
		Short:   "Serve a run from this machine (started by create)",
		RunE:    func(cmd *cobra.Command, _ []string) error { return runCompanion(cmd.Context(), f) },
	}
}

func runCompanion(ctx context.Context, f *cmdutil.Factory) error {
	out, ok := f.Stdout.(io.WriteCloser)
	if !ok {
		return app.Usagef(app.CompanionCommand + " is started by create")
	}
	return f.Machine().ServeCompanion(ctx, f.Stdin, out, slog.New(slog.NewTextHandler(f.Stderr, nil)))
}
