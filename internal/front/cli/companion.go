package cli

import (
	"context"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/host/companion"
)

func newCompanionCmd(a *App) *cobra.Command {
	return &cobra.Command{
		Use: app.CompanionCommand, Hidden: true, Args: cmdutil.NoArgs,
		Short: "Serve a run from this machine (started by create)",
		RunE:  func(cmd *cobra.Command, _ []string) error { return runCompanion(cmd.Context(), a) },
	}
}

func runCompanion(ctx context.Context, a *App) error {
	log := slog.New(slog.NewTextHandler(a.Stderr, nil))
	be, err := a.Engine()
	if err != nil {
		return err
	}
	out, ok := a.Stdout.(io.WriteCloser)
	if !ok {
		return app.Usagef("companion is started by create")
	}
	return companion.Serve(ctx, a.Stdin, out, be.Engine, log)
}
