package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/branch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/briefing"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// told is what agents of a sandbox are told, and the file in it that has it.
type told struct{ text, file string }

// brief writes what agents of a sandbox are told where git does not see it.
func (a *App) brief(ctx context.Context, sb *sandbox.Sandbox, p ofProject) (told, error) {
	s := sb.Spec()
	f := briefing.Facts{
		Sandbox: s.Name, Kind: string(s.Runtime), Workdir: workdirOf(s), Network: string(s.Network), Allow: s.Allow, Docker: s.Runtime == sandbox.RuntimeBox, More: p.Briefing,
	}
	if s.BranchOf() != "" {
		f.Branch = branch.Remote + "/" + s.Name
	}
	if s.Box != nil {
		if s.Network == sandbox.NetworkRestricted && len(f.Allow) == 0 {
			f.Allow = s.Box.Network.Allow // the project's own
		}
		for _, service := range s.Box.Services {
			f.Services = append(f.Services, service.Name)
		}
	}
	served, err := a.Endpoints().List(s.Name)
	if err != nil {
		return told{}, err
	}
	for port := range served {
		f.Ports = append(f.Ports, port)
	}
	slices.Sort(f.Ports)
	for _, c := range p.Validate {
		f.Checks = append(f.Checks, briefing.Check{Name: c.Name, Run: c.Run})
	}
	r, err := sb.Run(ctx, sandbox.Command{Argv: []string{"sh", "-c", briefScript, "sh", briefingDir(s), briefing.File}, Dir: "/", Stdin: strings.NewReader(f.Text()), Timeout: time.Minute, Unrecorded: true})
	if err != nil {
		return told{}, sandboxError(err)
	}
	if r.ExitCode != 0 {
		return told{}, fmt.Errorf("write %s in sandbox %s: %s", briefing.File, s.Name, text.Clean(string(r.Stderr)))
	}
	return told{f.Text(), strings.TrimSuffix(string(r.Stdout), "\n")}, nil
}

// briefScript writes the briefing to the file $2 of the work tree that has the folder $1, or else of that folder, and prints its path. Where the project has a link in its way it
// is in the home folder: nothing is written through it. Git outside looks at a worktree by another git directory than git inside, and is told by a file beside the briefing.
const briefScript = `begin=${1:-$HOME}
cd "$begin" || exit
while [ ! -e .git ] && [ "$PWD" != / ]; do cd ..; done
[ -e .git ] || cd "$begin" || exit
d=${2%/*}
own() { [ ! -L "$d" ] && [ ! -L "$2" ] && mkdir -p "$d"; }
own "$@" 2>/dev/null || cd && own "$@" || {
	echo "it is a link, also in the home folder" >&2
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

// briefingDir is where the briefing is; "" is the home folder: in a folder of the user's git would see it.
func briefingDir(s sandbox.Spec) string {
	dir := workdirOf(s)
	if s.Worktree == "" && slices.ContainsFunc(s.Mounts, func(m sandbox.Mount) bool { return dir == m.Target || strings.HasPrefix(dir, m.Target+"/") }) {
		return ""
	}
	return dir
}

// briefAnew writes what agents of a sandbox that runs are told, once something of it has changed. Those of one that starts later are told then.
func (a *App) briefAnew(ctx context.Context, sb *sandbox.Sandbox) {
	s := sb.Spec()
	if s.Project == "" && s.BranchOf() == "" || sb.Info().State != sandbox.StateRunning {
		return
	}
	p, err := a.projectOf(ctx, s, false)
	if err == nil {
		_, err = a.brief(ctx, sb, p)
	}
	if err != nil {
		a.warn(fmt.Sprintf("agents in sandbox %s are not told of the change: %v", s.Name, err))
	}
}
