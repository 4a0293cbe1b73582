package render

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// maxCommand bounds a command in a log, in characters.
const maxCommand = 50

// Log prints commits for people.
func Log(w io.Writer, all []app.Commit) {
	for _, e := range all {
		fmt.Fprintf(w, "%.10s  %s  %s\n", e.Commit, e.Time.Local().Format(time.DateTime), text.Clean(e.Subject))
		for _, r := range e.Ran {
			first, _, _ := strings.Cut(r.Command, "\n")
			fmt.Fprintf(w, "            $ %s   (exit %d, %s)\n", text.Runes(text.Clean(first), maxCommand), r.ExitCode,
				r.Duration.Round(time.Millisecond))
		}
	}
}
