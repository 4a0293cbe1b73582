package cmdutil

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// ErrNoCommand is the error of a command line that names no command to run.
var ErrNoCommand = errors.New("name a sandbox and a command, or a command after --")

// OldName lets a flag be given under the name that it had in the previous release.
func OldName(f *pflag.FlagSet, name, old string) {
	now := f.Lookup(name)
	was := *now
	was.Name, was.Shorthand, was.Hidden = old, "", true
	f.AddFlag(&was)
}

// NameAndCommand splits the arguments of a command whose flags are not interspersed: NAME [FLAGS] [--] COMMAND...,
// or -- COMMAND... without a name. Flags after the name are accepted, too: earlier programs required them there.
func NameAndCommand(cmd *cobra.Command, args []string) (name string, argv []string, err error) {
	f := cmd.Flags()
	if f.ArgsLenAtDash() == 0 {
		return "", args, nil
	}
	if len(args) == 0 {
		return "", nil, nil
	}
	if args[0] == "" { // it does not mean the sandbox of the current directory
		return "", nil, app.Usagef("the name must not be empty")
	}
	if err := f.Parse(args[1:]); err != nil {
		return "", nil, cmd.FlagErrorFunc()(cmd, err)
	}
	if help, err := f.GetBool("help"); err == nil && help {
		return "", nil, pflag.ErrHelp
	}
	return args[0], f.Args(), nil
}

// NoArgs is a rule for commands without arguments. It names the argument that was not understood; the library's own message does not.
func NoArgs(cmd *cobra.Command, args []string) error {
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
		return exiterr.New(workorder.ExitUsage, fmt.Errorf("unknown command %q for %s", args[0], cmd.CommandPath()), hint)
	}
	hint := "see `" + cmd.CommandPath() + " --help`"
	if cmd.Flags().Lookup("task") != nil {
		hint = "give the task with --task; " + hint
	}
	return exiterr.New(workorder.ExitUsage, fmt.Errorf("%s takes no argument %q", cmd.CommandPath(), args[0]), hint)
}

// MayBeEmpty annotates a flag whose empty value has a meaning.
const MayBeEmpty = "sandbox-agent-may-be-empty"

// NoEmptyFlag returns a usage error for a flag that was given an empty value. An unset variable of a script has one, and its author does
// not mean the default.
func NoEmptyFlag(given *pflag.FlagSet) error {
	var errs []error
	given.Visit(func(f *pflag.Flag) {
		empty := f.Value.String() == ""
		if list, ok := f.Value.(pflag.SliceValue); ok {
			empty = len(list.GetSlice()) == 0 || slices.Contains(list.GetSlice(), "")
		}
		if empty && f.Annotations[MayBeEmpty] == nil {
			errs = append(errs, app.Usagef("--%s is empty: give it a value, or leave it out", f.Name))
		}
	})
	return errors.Join(errs...)
}

// Each returns a rule for the arguments of a command that changes what each of them names: all names are checked before anything is
// changed.
func Each(rule cobra.PositionalArgs, check func(name string) error) cobra.PositionalArgs {
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

// Any is a number of arguments without a limit.
const Any = math.MaxInt

// Args returns a rule for the number of arguments. needs completes "COMMAND needs".
func Args(least, most int, needs, hint string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if least <= len(args) && len(args) <= most {
			return nil
		}
		return exiterr.New(workorder.ExitUsage, fmt.Errorf("%s needs %s, got %d", cmd.CommandPath(), needs, len(args)), hint)
	}
}

const (
	tasksHint     = "list tasks and sandboxes with: sandbox-agent ps --all"
	sandboxesHint = "`sandbox-agent ps` lists sandboxes"
)

// Rules for the names of tasks and sandboxes.
var (
	OneTask       = Args(1, 1, "one name", tasksHint)
	SomeTasks     = Args(1, Any, "a name", tasksHint)
	LastOrOne     = Args(0, 1, "at most one name", tasksHint)
	OneSandbox    = Args(1, 1, "one sandbox's name", sandboxesHint)
	SomeSandboxes = Args(1, Any, "a sandbox's name", sandboxesHint)
)
