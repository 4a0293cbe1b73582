package app

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// briefing describes a sandbox to the agent in it.
type briefing struct {
	sandbox  string
	runtime  string
	workdir  string
	branch   string   // of the user's repository, such as "sandbox/dev"; empty if changes are not committed automatically
	clones   []string // the directories of several repositories
	network  string   // full, restricted or none
	allow    []string // rules of a restricted network
	services []string // names
	ports    []string // that the user sees
	checks   []workorder.Check
	docker   bool              // the sandbox has an engine of its own
	tools    map[string]string // versions by name
	project  projects.Briefing
}

// markdown returns the briefing's text.
func (f briefing) markdown() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, "- "+format+"\n", args...) }
	fmt.Fprintf(&b, "# About this sandbox\n\nYou are in the sandbox `%s` (%s). "+
		"It has nothing of the user's machine except what is named here.\n\n", f.sandbox, f.runtime)
	line("**Work in `%s`.** Paths of the user's machine do not exist here.", f.workdir)
	if len(f.clones) > 0 {
		line("**Git.** %s are clones of one repository each. The host commits the changes in each of them automatically to the branch `%s` "+
			"of its repository; you may commit, but you need not. There is no remote to push to. Ignored files, and files beside the clones, "+
			"are not committed.", "`"+strings.Join(f.clones, "`, `")+"`", f.branch)
	} else if f.branch != "" {
		line("**Git.** It is a clone. The host commits changes automatically to the user's branch `%s`; "+
			"you may commit, but you need not. There is no remote to push to. Ignored files are not committed.", f.branch)
	}
	switch {
	case f.project.NoNetwork:
	case f.network == "none":
		line("**Network: none.** Only this sandbox itself is reachable: do not try to install or download anything.")
	case f.network == "restricted":
		allow := slices.Clone(f.allow)
		slices.Sort(allow)
		if len(allow) == 0 {
			allow = []string{"nothing"}
		}
		line("**Network: restricted.** It reaches: %s. All other connections are refused at once: "+
			"do not retry, and do not look for a workaround.",
			strings.Join(allow, ", "))
	default:
		line("**Network: full.**")
	}
	if f.docker {
		line("**Docker** is available, with an engine of this sandbox's own. Root in a container is your user outside of it: " +
			"files that it writes to a bound directory are yours. Other users in a container cannot write there; " +
			"do not pass `--user` (in a container, your own id means root).")
	}
	if len(f.services) > 0 {
		line("**Services** are running, each reachable by its name: %s. `docker compose up` works beside them: "+
			"it creates containers of its own. While these run, the ports that they publish lead to them.",
			strings.Join(f.services, ", "))
	}
	if len(f.ports) > 0 {
		line("**Ports** that the user sees: %s. A server may listen on the loopback address.", strings.Join(f.ports, ", "))
	}
	if len(f.tools) > 0 && !f.project.NoTools {
		var all []string
		for _, name := range slices.Sorted(maps.Keys(f.tools)) {
			all = append(all, strings.TrimSpace(name+" "+f.tools[name]))
		}
		line("**Tools:** %s.", strings.Join(all, ", "))
	}
	for _, c := range f.checks {
		if f.project.NoChecks {
			break
		}
		line("**Check `%s`:** `%s`", c.Name, strings.ReplaceAll(strings.TrimSpace(c.Run), "\n", "; "))
	}
	line("**Persistence.** Files survive a stop of the sandbox, processes do not. Only commits survive its removal.")
	if text := strings.TrimSpace(f.project.Text); text != "" {
		b.WriteString("\n" + text + "\n")
	}
	return b.String()
}
