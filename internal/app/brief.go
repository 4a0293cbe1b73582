package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/branch"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// writtenBriefing is the description of a sandbox for agents, and the file that has it.
type writtenBriefing struct{ text, file string }

// brief writes the description of a sandbox for agents to a file that git does not see.
func (g Agents) brief(ctx context.Context, sb *sandbox.Sandbox, p agentProject) (writtenBriefing, error) {
	s := sb.Spec()
	f := briefing{
		sandbox: s.Name, runtime: string(s.Runtime), workdir: Workdir(s), network: string(s.Network), allow: s.Allow,
		checks: p.Validate, docker: s.Runtime == sandbox.RuntimeBox, project: p.Briefing,
		tools: p.Tools,
	}
	if s.BranchOf() != "" {
		f.branch = BranchName(s.Name)
	}
	for _, r := range s.Repos {
		f.clones = append(f.clones, sandbox.CloneDir+"/"+r.Name)
	}
	if s.Box != nil {
		if s.Network == sandbox.NetworkRestricted && len(f.allow) == 0 {
			f.allow = s.Box.Network.Allow // the project's own
		}
		for _, service := range s.Box.Services {
			f.services = append(f.services, service.Name)
		}
	}
	served, err := g.Endpoints().List(s.Name)
	if err != nil {
		return writtenBriefing{}, err
	}
	for port := range served {
		f.ports = append(f.ports, port)
	}
	slices.Sort(f.ports)
	r, err := sb.Run(ctx, sandbox.Command{
		Argv: []string{"sh", "-c", briefScript, "sh", briefingDir(s), branch.BriefingFile}, Dir: "/",
		Stdin: strings.NewReader(f.markdown()), Timeout: time.Minute, Unrecorded: true,
	})
	if err != nil {
		return writtenBriefing{}, SandboxError(err)
	}
	if r.ExitCode != 0 {
		return writtenBriefing{}, fmt.Errorf("write %s in sandbox %s: %s", branch.BriefingFile, s.Name, text.Clean(string(r.Stderr)))
	}
	return writtenBriefing{f.markdown(), strings.TrimSuffix(string(r.Stdout), "\n")}, nil
}

// briefScript writes the briefing to the file $2 of the work tree that contains the directory $1, or of that directory, and prints its
// path. If the project has a link in its way, it writes to the home directory: it never writes through a link. Git outside of the sandbox
// uses another git directory for a worktree, so a .gitignore beside the briefing hides it there.
const briefScript = `begin=${1:-$HOME}
cd "$begin" || exit
while [ ! -e .git ] && [ "$PWD" != / ]; do cd ..; done
[ -e .git ] || cd "$begin" || exit
d=${2%/*}
own() { [ ! -L "$d" ] && [ ! -L "$2" ] && mkdir -p "$d"; }
own "$@" 2>/dev/null || cd && own "$@" || {
	echo "it is a link in the home directory, too" >&2
	exit 1
}
cat >"$2" || exit
printf '%s\n' "$PWD/$2"
g=.git
[ ! -f .git ] || {
	g=$(sed -n 's/^gitdir: //p' .git)
	[ -e "$d/.gitignore" ] || [ -L "$d/.gitignore" ] || printf '/%s\n' "${2##*/}" .gitignore >"$d/.gitignore"
}
[ ! -d "$g" ] || { mkdir -p "$g/info" && { grep -qxF "/$2" "$g/info/exclude" 2>/dev/null || printf '/%s\n' "$2" >>"$g/info/exclude"; }; }`

// briefingDir returns the directory of the briefing; "" is the home directory, for a directory in which the user's git would see it.
func briefingDir(s sandbox.Spec) string {
	dir := Workdir(s)
	mounted := func(m sandbox.Mount) bool { return dir == m.Target || strings.HasPrefix(dir, m.Target+"/") }
	if s.Worktree == "" && slices.ContainsFunc(s.Mounts, mounted) {
		return ""
	}
	return dir
}

// BriefAgain updates the description for agents in a running sandbox after a change. A sandbox that is not running gets it at its
// next start.
func (g Agents) BriefAgain(ctx context.Context, sb *sandbox.Sandbox) {
	s := sb.Spec()
	if s.Project == "" && s.BranchOf() == "" || sb.Info().State != sandbox.StateRunning {
		return
	}
	p, err := g.project(ctx, s, false)
	if err == nil {
		_, err = g.brief(ctx, sb, p)
	}
	if err != nil {
		g.Warn(fmt.Sprintf("update the briefing for agents in sandbox %s: %v", s.Name, err))
	}
}
