package harness

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// briefing tells an agent what it cannot know of the box, empty when that is nothing.
func briefing(o *workorder.Order) string {
	var parts []string
	for _, p := range []string{networkBriefing(o.Network), devBriefing(o.Dev)} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, "\n\n")
}

// devBriefing says how the development server is started and looked at. The command is the project's, on one line.
func devBriefing(d *workorder.Dev) string {
	if d == nil {
		return ""
	}
	path := d.ReadyPath
	if path == "" {
		path = "/"
	}
	return fmt.Sprintf("The project's development server is started with %s (PORT=%d in its environment) and answers at http://127.0.0.1:%d%s; "+
		"the browser `agent-browser` is there to look at it (`agent-browser open URL`, `snapshot -i`, `screenshot FILE`, `close`; `agent-browser skills get core` tells more), "+
		"and pictures that you put into the folder $SANDBOX_AGENT_MEDIA are kept for the reviewer. Stop the server when you are done.",
		strconv.Quote(d.Command), d.Port, d.Port, path)
}

// Prompted is the prompt for an agent. Those that have no system prompt of ours get the briefing behind it; the command
// harness promises the task byte for byte and has variables instead.
func Prompted(h Harness, o *workorder.Order, prompt string) string {
	text := briefing(o)
	if h.Name() != workorder.HarnessCodex && h.Name() != workorder.HarnessOpencode || text == "" {
		return prompt
	}
	return prompt + "\n\n# About this sandbox\n\n" + text + "\n"
}
