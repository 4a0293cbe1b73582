package tools

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// Error reports all unavailable tools.
type Error struct{ Missing []Missing }

// Missing is a tool that no source has in the requested version.
type Missing struct {
	Tool, Asked string
	Tried       []Tried
}

// Tried is the result of one source.
type Tried struct {
	Way string
	Has []string // the versions nearest to the requested one
	Err error    // why the source could not be used
}

func (e *Error) Error() string {
	var all []string
	for _, m := range e.Missing {
		all = append(all, m.String())
	}
	return strings.Join(all, "; ")
}

func (m Missing) String() string {
	var ways []string
	for _, t := range m.Tried {
		ways = append(ways, t.String())
	}
	return fmt.Sprintf("%s %s is unavailable (%s)", m.Tool, m.Asked, strings.Join(ways, "; "))
}

func (t Tried) String() string {
	what := "has none"
	switch has := strings.Join(t.Has, ", "); {
	case t.Err != nil && has != "":
		what = "has " + has + ", but " + t.Err.Error()
	case t.Err != nil:
		what = t.Err.Error()
	case has != "":
		what = "has " + has
	}
	if t.Way == "" {
		return what
	}
	return t.Way + ": " + what
}

// briefly bounds how much of a program's error message an error includes, in characters.
const briefly = 240

// brief shortens a program's error to its relevant line.
func brief(err error) error {
	failed, ok := errors.AsType[*proc.ExitError](err)
	if !ok {
		return err
	}
	var said []string
	for line := range strings.Lines(failed.Stderr) {
		line = strings.TrimSpace(line)
		for _, lead := range []string{"mise", "ERROR", "WARN", "ERROR:", "error:", "go:"} {
			line = strings.TrimSpace(strings.TrimPrefix(line, lead+" "))
		}
		if line == "" || strings.HasPrefix(line, "Version: ") || strings.HasPrefix(line, "Run with ") || strings.HasPrefix(line, "WARNING:") ||
			len(said) > 0 && said[len(said)-1] == line {
			continue
		}
		said = append(said, line)
	}
	all := text.Name(text.Words(strings.Join(said, ": ")), briefly)
	if all == "" {
		return err
	}
	return errors.New(all)
}
