package cmdutil

import (
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// seconds is a flag for a duration. A number without a unit counts seconds.
type seconds time.Duration

// DurationVar adds a flag for a duration.
func DurationVar(f *pflag.FlagSet, to *time.Duration, name string, value time.Duration, usage string) {
	*to = value
	f.Var((*seconds)(to), name, usage)
}

func (d *seconds) Set(s string) error {
	if s != "" && strings.Trim(s, "0123456789.") == "" {
		s += "s"
	}
	v, err := time.ParseDuration(s)
	*d = seconds(v)
	return err
}

// Type is the name of the value in the help.
func (d *seconds) Type() string { return "duration" }

func (d *seconds) String() string {
	if *d == 0 {
		return "0" // the library shows no default then
	}
	return time.Duration(*d).String()
}
