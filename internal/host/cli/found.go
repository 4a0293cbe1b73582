package cli

import (
	"fmt"
	"io"

	"github.com/sandbox-agent/sandbox-agent/internal/host/detect"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// showFound says what a repository without a project file was found to need, and from which lines.
func showFound(w io.Writer, d *detect.Draft, rehearsed bool) {
	if d == nil {
		return
	}
	fmt.Fprintln(w, "no project file; found in the repository:")
	findings := d.Findings()
	for _, f := range findings {
		fmt.Fprintln(w, "  "+text.Clean(f.String()))
	}
	if len(findings) == 0 {
		fmt.Fprintln(w, "  nothing")
	}
	for _, l := range d.Left {
		fmt.Fprintln(w, "  left out: "+text.Clean(fmt.Sprintf("%s (%s): %s", l.What, l.At, l.Why)))
	}
	for _, c := range d.Suggested {
		fmt.Fprintln(w, "  suggested, not run: "+text.Clean(fmt.Sprintf("validate.%s: %s (%s)", c.Name, c.Command, c.At)))
	}
	if len(d.Validate) == 0 && !rehearsed { // a rehearsal says it of every project
		fmt.Fprintln(w, "warning: no check was found: nothing will judge the agent's work\nhint: `sandbox-agent project init` writes a project file; name a command under validate")
	}
}
