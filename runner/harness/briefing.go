package harness

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// briefing describes what the agent cannot find out about the box itself; empty if nothing.
func briefing(o *workorder.Order) string {
	var parts []string
	for _, p := range []string{networkBriefing(o.Network), devBriefing(o.Dev)} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, "\n\n")
}

// devBriefing describes how to start and view the development server.
func devBriefing(d *workorder.Dev) string {
	if d == nil {
		return ""
	}
	path := cmp.Or(d.ReadyPath, "/")
	return fmt.Sprintf("Start the project's development server (%s) with `entrypoint dev start`: it has PORT=%d, runs in the background, "+
		"and the command returns when http://127.0.0.1:%d%s answers. `entrypoint dev restart`, `stop` and `status` do what they say; "+
		"`entrypoint dev logs` prints its output. "+
		"View it with the browser `agent-browser` (`agent-browser open URL`, `snapshot -i`, `screenshot FILE`, `close`; for help: "+
		"`agent-browser skills get core`). "+
		"Pictures in the directory $SANDBOX_AGENT_MEDIA are kept for the reviewer. The server ends with you: leave it running if you like.",
		strconv.Quote(d.Command), d.Port, d.Port, path)
}

// Prompted returns the prompt, with the briefing for agents without a system prompt. The command harness promises the
// task byte for byte.
func Prompted(h Harness, o *workorder.Order, prompt string) string {
	text := briefing(o)
	if h.Name() != workorder.HarnessCodex && h.Name() != workorder.HarnessOpencode || text == "" {
		return prompt
	}
	return prompt + "\n\n# About this sandbox\n\n" + text + "\n"
}
