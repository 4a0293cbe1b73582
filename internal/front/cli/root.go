package cli

import (
	"cmp"
	"errors"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/diag"
	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cli/codecmd"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cli/sandboxcmd"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cli/servecmd"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cli/setupcmd"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cli/taskcmd"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cli/workcmd"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/version"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const rootLong = "Run coding agents in throw-away sandboxes; get tested branches back."

func newRootCmd(f *cmdutil.Factory) *cobra.Command {
	root := &cobra.Command{
		Use:           "sandbox-agent",
		Short:         "Run coding agents in throw-away Docker-in-Docker sandboxes",
		Long:          rootLong,
		Version:       version.String(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cmdutil.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.PersistentFlags().BoolVar(&f.Debug, "debug", false, "log details to standard error")
	root.PersistentFlags().BoolVar(&f.Verbose, "verbose", false, "show all events, also without a terminal")
	f.LogFormatVar(root)
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := cmdutil.NoEmptyFlag(cmd.Flags()); err != nil {
			return err
		}
		if err := cmd.ValidateFlagGroups(); err != nil {
			return app.Usagef("%w", err)
		}
		_, err := cmdutil.FromEnvironment(cmd.Flags(), f.Getenv, "verbose", "debug", "log-format")
		if err == nil {
			state, _ := f.StateDir() // a command that needs one reports the error
			f.Log().Debug("start", "command", cmd.CommandPath(), "version", version.String(), "state", state, "docker_host", f.Getenv("DOCKER_HOST"))
		}
		return err
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if before := cmd.Flags().Args(); cmd.HasSubCommands() && len(before) > 0 {
			return cmdutil.NoArgs(cmd, before) // the word before the flag is no command, and the flag may be that command's
		}
		hint := "see `" + cmd.CommandPath() + " --help`"
		if !cmd.HasParent() {
			hint = "to start a task, put its text in quotes; " + hint
		}
		return exiterr.New(workorder.ExitUsage, err, hint)
	})
	root.CompletionOptions.HiddenDefaultCmd = false
	network := sandboxcmd.NewCmdNetwork(f)
	network.AddCommand(setupcmd.NewCmdNetworkSuggest(f), setupcmd.NewCmdNetworkCheck(f))
	root.AddCommand(
		taskcmd.NewCmdCreate(f), taskcmd.NewCmdContinue(f), taskcmd.NewCmdRevise(f), taskcmd.NewCmdRebase(f),
		taskcmd.NewCmdDemo(f), taskcmd.NewCmdResult(f), taskcmd.NewCmdPR(f), taskcmd.NewCmdCompanion(f), taskcmd.NewCmdStandby(f),
		sandboxcmd.NewCmdPs(f), sandboxcmd.NewCmdLogs(f), sandboxcmd.NewCmdShell(f), sandboxcmd.NewCmdUp(f),
		sandboxcmd.NewCmdMonitor(f), sandboxcmd.NewCmdStart(f), sandboxcmd.NewCmdExec(f), sandboxcmd.NewCmdAttach(f),
		sandboxcmd.NewCmdPorts(f), sandboxcmd.NewCmdCp(f), network, sandboxcmd.NewCmdSnapshot(f),
		sandboxcmd.NewCmdFork(f), sandboxcmd.NewCmdUpdate(f), sandboxcmd.NewCmdReset(f), sandboxcmd.NewCmdDown(f), sandboxcmd.NewCmdSSH(f),
		sandboxcmd.NewCmdSSHCommand(f), sandboxcmd.NewCmdSSHConfig(f), sandboxcmd.NewCmdGateway(f), sandboxcmd.NewCmdStop(f),
		sandboxcmd.NewCmdPortForward(f), sandboxcmd.NewCmdRelay(f), sandboxcmd.NewCmdRm(f),
		workcmd.NewCmdDiff(f), workcmd.NewCmdCheckout(f), workcmd.NewCmdApply(f), workcmd.NewCmdLog(f), workcmd.NewCmdMerge(f),
		workcmd.NewCmdList(f), workcmd.NewCmdWatch(f), workcmd.NewCmdDelete(f), workcmd.NewCmdPrune(f), workcmd.NewCmdOpen(f),
		codecmd.NewCmdRun(f), codecmd.NewCmdSession(f), codecmd.NewCmdPreset(f), codecmd.NewCmdEnv(f), codecmd.NewCmdArtifact(f),
		codecmd.NewCmdNotebook(f),
		servecmd.NewCmdPool(f), servecmd.NewCmdMCP(f),
		setupcmd.NewCmdTemplates(f), setupcmd.NewCmdRuntime(f), setupcmd.NewCmdGC(f), setupcmd.NewCmdCache(f),
		setupcmd.NewCmdProject(f), setupcmd.NewCmdPolicy(f), setupcmd.NewCmdDoctor(f), setupcmd.NewCmdImage(f),
		sandboxcmd.NewCmdStatus(f), sandboxcmd.NewCmdInspect(f), sandboxcmd.NewCmdResume(f), newVersionCmd(f), newManCmd(),
	)
	// The library adds its own commands when the command line runs; refuseUnknown has to see them.
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	refuseUnknown(root)
	setHelp(root)
	addTopics(root)
	return root
}

// refuseUnknown makes commands with subcommands reject unknown words. The library prints help and succeeds.
func refuseUnknown(cmd *cobra.Command) {
	if cmd.HasSubCommands() && !cmd.Runnable() {
		cmd.Args, cmd.RunE = cmdutil.NoArgs, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	for _, sub := range cmd.Commands() {
		if sub.Name() == "help" {
			sub.Args = helpArgs
		}
		refuseUnknown(sub)
	}
}

// helpArgs are the arguments of `help`: a command or a topic. An unknown word is refused with the nearest name.
func helpArgs(help *cobra.Command, args []string) error {
	about, rest, err := help.Root().Find(args)
	if err == nil && about.HasSubCommands() {
		err = cmdutil.NoArgs(about, rest)
	}
	if err == nil || about.HasParent() {
		return err
	}
	names := topicNames()
	for _, sub := range about.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	near := cmp.Or(diag.Nearest(args[0], names), diag.Nearest(args[0]+"s", names)) // topics are plurals
	if near == "" {
		return err
	}
	return exiterr.New(workorder.ExitUsage, errors.Unwrap(err), "did you mean "+near+"?")
}
