package runner

import "fmt"

// afterHang is what an agent is told that was stopped because of a hang.
func afterHang(h *hang) string {
	what := ""
	if h.what != "" {
		what = fmt.Sprintf(" The youngest of the commands that were running, as the process table showed it: %q.", h.what)
	}
	return fmt.Sprintf("You showed no sign of life for %s: no output, no changed file, no CPU time. "+
		"So what was running was stopped, you yourself included.%s Nothing in the work tree was changed or thrown away by that. "+
		"Look at what you did last and how far it got, then go on with the task another way: do not start the same thing again in the same manner. "+
		"Give commands that may block a time limit, and leave nothing running when you are done.", duration(h.quiet), what)
}
