package sandboxcmd

import (
	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
)

// NewCmdPortForward returns the hidden command that serves endpoints.
func NewCmdPortForward(f *cmdutil.Factory) *cobra.Command {
	return &cobra.Command{
		Use: app.EndpointsCommand + " SANDBOX", Hidden: true, Args: cmdutil.OneSandbox,
		Aliases: []string{"porter"}, // for programs that began before this one was updated
		Short:   "Serve a sandbox's endpoints (started by the command that publishes them)",
		RunE:    func(cmd *cobra.Command, args []string) error { return f.Endpoints().Serve(cmd.Context(), args[0]) },
	}
}

// NewCmdRelay returns the hidden command that serves the connection to a sandbox.
func NewCmdRelay(f *cmdutil.Factory) *cobra.Command {
	return &cobra.Command{
		Use: app.RelayCommand + " SANDBOX", Hidden: true, Args: cmdutil.OneSandbox,
		Short: "Serve the connection to a sandbox (started by exec)",
		RunE: func(cmd *cobra.Command, args []string) error {
			return app.ServeRelay(cmd.Context(), f.Sandboxes(), args[0])
		},
	}
}
