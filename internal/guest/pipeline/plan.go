package pipeline

import (
	"fmt"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Plan returns the list as text, in the order of declaration.
func (l *List) Plan() string {
	width, there := 0, map[workorder.StepName]bool{}
	for _, s := range l.Steps {
		width, there[s.Name] = max(width, len(s.Name)), true
	}
	var b strings.Builder
	for _, s := range l.Steps {
		fmt.Fprintf(&b, "%-*s %s\n", width, s.Name, s.Title)
		more := func(format string, args ...any) {
			fmt.Fprintf(&b, "%-*s %s\n", width, "", fmt.Sprintf(format, args...))
		}
		var names []string
		for _, a := range s.After {
			if there[a] {
				names = append(names, string(a))
			}
		}
		switch {
		case s.Always:
			more("always, after all steps before it")
		case len(names) > 0:
			more("after %s", strings.Join(names, ", "))
		}
		if most := max(s.Budget, s.MaxDuration); most > 0 {
			more("budget %s", most)
		}
		if s.Skip != nil {
			if why := s.Skip(); why != "" {
				more("skipped: %s", why)
			}
		}
		if s.Undo != nil {
			more("undone at the end")
		}
	}
	return b.String()
}
