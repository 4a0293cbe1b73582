package cmdutil

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// RuleList is a flag that can be given several times, or with commas.
type RuleList string

func (l *RuleList) String() string { return string(*l) }

// Type is the name of the value in the help.
func (l *RuleList) Type() string { return "rule" }

// Set adds rules.
func (l *RuleList) Set(s string) error {
	if *l != "" {
		*l += ","
	}
	*l += RuleList(s)
	return nil
}

// Rules returns the rules, or an error with all mistakes.
func (l *RuleList) Rules() (all []string, err error) {
	if *l == "" {
		return nil, nil
	}
	all = strings.Split(string(*l), ",")
	var errs []error
	for _, s := range all {
		_, err := workorder.ParseAllowRule(s)
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}

// FallbackVar adds the flag that allows a command to run without isolation.
func FallbackVar(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "fallback", "", "host: run on this machine, without isolation, where no runtime is available")
	// It can only fail for a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("fallback", cobra.FixedCompletions([]string{app.FallbackHost}, cobra.ShellCompDirectiveNoFileComp))
}

// FromEnvironment sets each of the flags that was not given to the value of its variable, and returns the source of each value.
func FromEnvironment(f *pflag.FlagSet, getenv func(string) string, flags ...string) (map[string]string, error) {
	sources := map[string]string{}
	for _, flag := range flags {
		fl := f.Lookup(flag)
		if fl == nil {
			continue
		}
		if fl.Changed {
			sources[flag] = "--" + flag
			continue
		}
		name := app.EnvName(flag)
		v := getenv(name)
		if v == "" {
			continue
		}
		if err := fl.Value.Set(v); err != nil {
			return nil, app.Usagef("%s=%s: %w", name, v, err)
		}
		sources[flag] = name
	}
	return sources, nil
}

// OldFlag accepts the name of a flag until the previous release. Help and completion do not show it.
func OldFlag(f *pflag.FlagSet, old, name string) {
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, given string) pflag.NormalizedName {
		if given == old {
			given = name
		}
		return pflag.NormalizedName(given)
	})
}
