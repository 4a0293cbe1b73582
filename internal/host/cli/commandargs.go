package cli

import (
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var errNoCommand = errors.New("name a sandbox and a command, or a command after --")

// oldName lets a flag be given under the name that it had in the previous release.
func oldName(f *pflag.FlagSet, name, old string) {
	now := f.Lookup(name)
	was := *now
	was.Name, was.Shorthand, was.Hidden = old, "", true
	f.AddFlag(&was)
}

// nameAndCommand splits the arguments of a command whose flags are not interspersed: NAME [FLAGS] [--] COMMAND..., or -- COMMAND... without a name.
// Flags after the name are accepted, too: earlier programs required them there.
func nameAndCommand(cmd *cobra.Command, args []string) (name string, argv []string, err error) {
	f := cmd.Flags()
	if f.ArgsLenAtDash() == 0 {
		return "", args, nil
	}
	if len(args) == 0 {
		return "", nil, nil
	}
	if args[0] == "" { // it does not mean the sandbox of the current directory
		return "", nil, usage("the name must not be empty")
	}
	if err := f.Parse(args[1:]); err != nil {
		return "", nil, cmd.FlagErrorFunc()(cmd, err)
	}
	if help, err := f.GetBool("help"); err == nil && help {
		return "", nil, pflag.ErrHelp
	}
	return args[0], f.Args(), nil
}
