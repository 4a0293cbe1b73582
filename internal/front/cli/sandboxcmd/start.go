package sandboxcmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type startOptions struct {
	prompt       string
	detach, json bool
}

// NewCmdStart makes the command.
func NewCmdStart(f *cmdutil.Factory) *cobra.Command {
	o := &startOptions{}
	cmd := &cobra.Command{
		Use: "start SANDBOX [AGENT]", Short: "Start a sandbox and its agent, at a terminal",
		Long: `Starts the sandbox and an agent's program in it, in tmux, and shows the program;
where it runs already, it is shown. Ctrl-B D leaves it running, as does a lost
connection; 'attach' shows it again, and 'shell' opens a shell beside it.
AGENT is a harness or one of the project's agents. The default is the project's
harness, or claude-code; in a sandbox that has neither a project nor that
program, only the sandbox starts.

The agent asks for no permission: the sandbox isolates it. With the model gateway
of a box, model keys stay outside. The agent finds a description of the sandbox
in .claude/sandbox-agent.md of the working tree, which git does not see.`,
		Example: "  sandbox-agent start dev\n  sandbox-agent start dev codex\n  sandbox-agent start dev --prompt 'fix the flaky test' --detach",
		Args:    cmdutil.Args(1, 2, "one sandbox's name, and at most one agent", "`sandbox-agent ps` lists sandboxes"),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return workorder.Harnesses(), cobra.ShellCompDirectiveNoFileComp
			}
			return f.CompleteSandboxes(false)(cmd, args, begun)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			agent := ""
			if len(args) == 2 {
				agent = args[1]
			}
			return o.do(cmd.Context(), f, args[0], agent)
		},
	}
	cmd.Flags().StringVar(&o.prompt, "prompt", "", "first instruction for the agent")
	cmd.Flags().BoolVarP(&o.detach, "detach", "d", false, "start the agent without showing it")
	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON instead of showing the agent")
	return cmd
}

func (o *startOptions) do(ctx context.Context, f *cmdutil.Factory, name, agent string) error {
	sb, done, err := f.Sandboxes().Get(ctx, name)
	if err != nil {
		return err
	}
	defer done()
	began, err := f.Agents().Start(ctx, sb, agent, o.prompt)
	if err != nil {
		return err
	}
	if began.Agent == "" || o.detach || o.json || !atTerminal(f) {
		return o.report(f, began)
	}
	return showInTerminal(ctx, f, sb, app.SessionTerminal("="+app.AgentSession+":="+began.Agent))
}

func (o *startOptions) report(f *cmdutil.Factory, s app.StartedAgent) error {
	switch {
	case o.json:
		return f.JSON(s)
	case s.Agent == "":
		fmt.Fprintln(f.Stderr, "note: no agent was started: "+s.Note)
		fmt.Fprintln(f.Stdout, s.Sandbox+" runs")
	case s.Began:
		fmt.Fprintf(f.Stdout, "%s runs in %s: `sandbox-agent attach %[2]s` shows it\n", s.Agent, s.Sandbox)
	default:
		fmt.Fprintf(f.Stdout, "%s runs in %s already\n", s.Agent, s.Sandbox)
	}
	return nil
}
