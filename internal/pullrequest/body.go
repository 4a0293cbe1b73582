package pullrequest

import (
	"fmt"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/forge"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Body says what was asked and what came of it. What others wrote stands in code, where it can forge nothing.
func Body(o *workorder.Order, r *workorder.Result) string {
	var b strings.Builder
	task, _ := forge.Strip(o.Task)
	fmt.Fprintf(&b, "Task %s: %s\n\n%s\n", r.TaskID, r.Status, code(task))
	for _, v := range r.Validation {
		verdict := "failed"
		if v.Passed {
			verdict = "passed"
		}
		fmt.Fprintf(&b, "- %s %s\n", code(v.Name), verdict)
	}
	for _, f := range r.Surface {
		if f.Grave {
			fmt.Fprintf(&b, "- look at %s: %s\n", code(f.Path), code(f.Text))
		}
	}
	return b.String()
}

// code is text between as many backticks as it has not itself.
func code(s string) string {
	fence := "`"
	for strings.Contains(s, fence) {
		fence += "`"
	}
	if strings.Contains(strings.TrimSpace(s), "\n") {
		fence += "``"
		return "\n" + fence + "\n" + s + "\n" + fence + "\n"
	}
	return fence + " " + strings.TrimSpace(s) + " " + fence
}
