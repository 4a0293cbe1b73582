// Package briefing tells an agent what it cannot know of its sandbox: one text, for whatever reads it.
package briefing

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/host/branch"
)

// File is where agents find it, in the work tree: git does not see it, and no file of the project is changed.
const File = branch.BriefingFile

// Facts describes the sandbox to the agent.
type Facts struct {
	Sandbox string
	// Kind is what isolates it, as "box".
	Kind    string
	Workdir string
	// Branch is where the user finds the work, as "sandbox/dev"; "" where it is not committed by itself.
	Branch string
	// Network is full, restricted or none, and Allow the rules of a restricted one.
	Network string
	Allow   []string
	// Services are the names of what runs beside it, Ports those that are shown to the user.
	Services []string
	Ports    []string
	// Checks are what judges the work, by name.
	Checks []Check
	// Docker reports an engine of its own.
	Docker bool
	// More is the project's own.
	More string
}

// Check is a command that judges the work.
type Check struct{ Name, Run string }

// Text is the briefing, in Markdown.
func (f Facts) Text() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, "- "+format+"\n", args...) }
	fmt.Fprintf(&b, "# About this sandbox\n\nYou are in "+
		"the sandbox `%s` (%s). Nothing of the user's machine is in it but what is named here.\n\n", f.Sandbox, f.Kind)
	line("**Work in `%s`.** Paths of the user's machine do not exist here.", f.Workdir)
	if f.Branch != "" {
		line("**Git.** It is a clone. What changes in it is committed by itself, outside, to the user's branch `%s`; "+
			"you need not commit, and may. There is no remote to push to. Files that git ignores are not kept there.", f.Branch)
	}
	switch f.Network {
	case "none":
		line("**Network: none.** Nothing but this sandbox itself can be reached: do not try to install or fetch anything.")
	case "restricted":
		allow := slices.Clone(f.Allow)
		slices.Sort(allow)
		if len(allow) == 0 {
			allow = []string{"nothing"}
		}
		line("**Network: restricted.** It reaches: %s. Everything else is refused at once: do not try again, and do not look for a way around.",
			strings.Join(allow, ", "))
	default:
		line("**Network: full.**")
	}
	if f.Docker {
		line("**Docker** is there, with an engine of this " +
			"sandbox's own. Root of a container is your own " +
			"user outside of it: files that it writes to a bound directory are yours. Other users of a container cannot write there; " +
			"do not pass `--user` (your own id there means root).")
	}
	if len(f.Services) > 0 {
		line("**Services** run already, each reachable by "+
			"its name: %s. `docker compose up` works beside "+
			"them: it makes containers of its own, which take over the ports of this sandbox that they publish while they run.",
			strings.Join(f.Services, ", "))
	}
	if len(f.Ports) > 0 {
		line("**Ports** that the user sees: %s. A server may listen at the loopback.", strings.Join(f.Ports, ", "))
	}
	for _, c := range f.Checks {
		line("**Check `%s`:** `%s`", c.Name, strings.ReplaceAll(strings.TrimSpace(c.Run), "\n", "; "))
	}
	line("**What persists**: files stay over a stop of the sandbox; " +
		"processes do not. Nothing stays when the user removes it, but what is committed.")
	if more := strings.TrimSpace(f.More); more != "" {
		b.WriteString("\n" + more + "\n")
	}
	return b.String()
}
