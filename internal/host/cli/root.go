package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/version"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const rootLong = "Run coding agents in throw-away sandboxes; get tested branches back."

func newRootCmd(a *App) *cobra.Command {
	root := &cobra.Command{
		Use:           "sandbox-agent",
		Short:         "Run coding agents in throw-away Docker-in-Docker sandboxes",
		Long:          rootLong,
		Version:       version.String(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.PersistentFlags().BoolVar(&a.debug, "debug", false, "log details to standard error")
	root.PersistentFlags().BoolVar(&a.verbose, "verbose", false, "show all events, also without a terminal")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := noEmptyFlag(cmd.Flags()); err != nil {
			return err
		}
		if err := cmd.ValidateFlagGroups(); err != nil {
			return usage("%w", err)
		}
		_, err := fromEnvironment(cmd.Flags(), a.Getenv, "verbose")
		return err
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if before := cmd.Flags().Args(); cmd.HasSubCommands() && len(before) > 0 {
			return noArgs(cmd, before) // the word before the flag is no command, and the flag may be that command's
		}
		hint := "see `" + cmd.CommandPath() + " --help`"
		if !cmd.HasParent() {
			hint = "to start a task, put its text in quotes; " + hint
		}
		return fault.New(workorder.ExitUsage, err, hint)
	})
	root.CompletionOptions.HiddenDefaultCmd = false
	root.AddCommand(
		newCreateCmd(a), newContinueCmd(a), newReviseCmd(a), newRebaseCmd(a), newDemoCmd(a), newPsCmd(a), newLogsCmd(a),
		newResultCmd(a), newDiffCmd(a), newCheckoutCmd(a), newApplyCmd(a), newLogCmd(a), newMergeCmd(a), newListCmd(a),
		newWatchCmd(a), newDeleteCmd(a), newPruneCmd(a), newOpenCmd(a), newShellCmd(a), newUpCmd(a), newTemplatesCmd(a),
		newMonitorCmd(a), newStartCmd(a), newExecCmd(a), newAttachCmd(a), newPortsCmd(a), newCpCmd(a), newNetworkCmd(a),
		newStatusCmd(a), newInspectCmd(a), newResumeCmd(a), newSnapshotCmd(a), newForkCmd(a), newResetCmd(a), newDownCmd(a),
		newRuntimeCmd(a), newPoolCmd(a), newRunCmd(a), newSessionCmd(a), newEnvCmd(a), newArtifactCmd(a), newNotebookCmd(a),
		newMCPCmd(a), newSSHCmd(a), newSSHCommandCmd(a), newSSHConfigCmd(a), newGatewayCmd(a), newPRCmd(a), newStopCmd(a),
		newRmCmd(a), newGcCmd(a), newCacheCmd(a), newProjectCmd(a), newPolicyCmd(a), newDoctorCmd(a), newImageCmd(a),
		newVersionCmd(a), newManCmd(), newCompanionCmd(a), newPorterCmd(a),
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
		cmd.Args, cmd.RunE = noArgs, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	for _, sub := range cmd.Commands() {
		if sub.Name() == "help" {
			sub.Args = func(help *cobra.Command, args []string) error {
				about, rest, err := help.Root().Find(args)
				if err == nil && about.HasSubCommands() {
					err = noArgs(about, rest)
				}
				return err
			}
		}
		refuseUnknown(sub)
	}
}

// noArgs names the argument that was not understood; the library's own message does not.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.HasSubCommands() {
		hint := "see `" + cmd.CommandPath() + " --help`"
		if !cmd.HasParent() {
			hint += "; a task of one word needs `sandbox-agent create`"
		}
		const slips, short = 2, 4 // letters that a name may be off by; in a short word one slip is a third of it: run is not rm
		cmd.SuggestionsMinimumDistance = slips
		if len(args[0]) <= short {
			cmd.SuggestionsMinimumDistance = 1
		}
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			hint = "did you mean " + strings.Join(near, " or ") + "?"
		}
		return fault.New(workorder.ExitUsage, fmt.Errorf("unknown command %q for %s", args[0], cmd.CommandPath()), hint)
	}
	hint := "see `" + cmd.CommandPath() + " --help`"
	if cmd.Flags().Lookup("task") != nil {
		hint = "give the task with --task; " + hint
	}
	return fault.New(workorder.ExitUsage, fmt.Errorf("%s takes no argument %q", cmd.CommandPath(), args[0]), hint)
}

// mayBeEmpty annotates a flag whose empty value has a meaning.
const mayBeEmpty = "sandbox-agent-may-be-empty"

// noEmptyFlag returns a usage error for a flag that was given an empty value. An unset variable of a script has one, and its author does not mean the default.
func noEmptyFlag(given *pflag.FlagSet) error {
	var errs []error
	given.Visit(func(f *pflag.Flag) {
		empty := f.Value.String() == ""
		if list, ok := f.Value.(pflag.SliceValue); ok {
			empty = len(list.GetSlice()) == 0 || slices.Contains(list.GetSlice(), "")
		}
		if empty && f.Annotations[mayBeEmpty] == nil {
			errs = append(errs, usage("--%s is empty: give it a value, or leave it out", f.Name))
		}
	})
	return errors.Join(errs...)
}

// each is a rule for the arguments of a command that changes what each of them names: all names are checked before anything is changed.
func each(rule cobra.PositionalArgs, check func(name string) error) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := rule(cmd, args); err != nil {
			return err
		}
		for _, name := range args {
			if err := check(name); err != nil {
				return err
			}
		}
		return nil
	}
}

// someTasks accepts one task id or more.
func someTasks(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return nil
	}
	return oneTask(cmd, args)
}

// oneTask accepts exactly one task id.
func oneTask(cmd *cobra.Command, args []string) error {
	if len(args) == 1 {
		return nil
	}
	return fault.New(workorder.ExitUsage, fmt.Errorf("%s needs one task id, got %d", cmd.CommandPath(), len(args)), "`sandbox-agent ps --all` lists them")
}
