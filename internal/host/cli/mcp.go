package cli

import (
	"context"
	"errors"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/host/mcpserver"
	"github.com/sandbox-agent/sandbox-agent/internal/version"
	"github.com/sandbox-agent/sandbox-agent/sandbox/code"
)

// warmPlaces is how many places are made ahead for each environment that an agent has used: it waits for one call at a time.
const warmPlaces = 1

func newMCPCmd(a *App) *cobra.Command {
	return &cobra.Command{
		Use: "mcp", Short: "Let an agent run code, over the Model Context Protocol",
		Long: `Serves one tool, run, with code, env and an optional session, over standard input and output, until the client closes
them. What an agent runs is in sandboxes as of ` + "`sandbox-agent run`" + `; its sessions end with it. Standard output is the protocol's
alone. docs/mcp.md has the lines that agents need.`,
		Example: "  claude mcp add sandbox -- sandbox-agent mcp",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.serveMCP(cmd.Context()) },
	}
}

func (a *App) serveMCP(ctx context.Context) (err error) {
	o, err := a.codeOptions()
	if err != nil {
		return err
	}
	o.Warm = warmPlaces
	m, err := a.sandboxes()
	if err != nil {
		return err
	}
	r := code.Open(m, o)
	defer func() { err = errors.Join(err, r.Close(context.WithoutCancel(ctx)), m.Close()) }()
	err = mcpserver.New(r, version.String()).Run(ctx, &mcp.StdioTransport{})
	if ctx.Err() != nil { // it was stopped, and ends as it should
		return nil
	}
	return err
}
