package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/agentkind"
	"github.com/sandbox-agent/sandbox-agent/internal/diag"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Agents are the use cases of agents at a terminal of a sandbox.
type Agents struct{ *Env }

// Agents returns the use cases of agents at a terminal of a sandbox.
func (e *Env) Agents() Agents { return Agents{e} }

// AgentSession is the session of tmux in which agents run, each in a window of its name.
const AgentSession = "agent"

// agentProject is the project that a sandbox was created from.
type agentProject struct {
	*projects.Project
	// secrets are only for agents.
	secrets map[string]string
}

// project returns the project of a sandbox; an empty one if the sandbox has none. A project without checks has those of the clone.
func (g Agents) project(ctx context.Context, s sandbox.Spec, secrets bool) (p agentProject, err error) {
	p.Project = &projects.Project{}
	if s.Project != "" {
		found, err := g.Sandboxes().Project(ctx, s)
		if err != nil {
			return p, err
		}
		p.Project = found.Project
		if secrets {
			if p.secrets, err = found.AgentSecrets(ctx, g.Resolver(true).Credentials); err != nil {
				return p, err
			}
		}
	}
	if s.BranchOf() == "" || len(p.Validate) > 0 {
		return p, nil
	}
	if found, err := g.Sandboxes().findProject(ctx, "", s.BranchOf(), ""); err == nil {
		p.Validate = found.Project.Validate
		if s.Project == "" {
			p.Tools = found.Project.Tools
		}
	}
	return p, nil
}

// harnessOf returns the harness of an agent's name; the default for "".
func (p agentProject) harnessOf(name string) (string, workorder.Harness, error) {
	var names []string
	for _, agent := range p.Agents {
		if agent.Name == cmp.Or(name, p.Harness.Name, workorder.HarnessClaudeCode) {
			return agent.Name, agent.Harness, nil
		}
		names = append(names, agent.Name)
	}
	if name == "" {
		h := p.Harness
		h.Name = cmp.Or(h.Name, workorder.HarnessClaudeCode)
		return h.Name, h, nil
	}
	if slices.Contains(workorder.Harnesses(), name) && name != workorder.HarnessCommand {
		h := workorder.Harness{Name: name}
		if p.Harness.Name == name {
			h = p.Harness
		}
		return name, h, nil
	}
	for _, h := range workorder.Harnesses() {
		if h != workorder.HarnessCommand {
			names = append(names, h)
		}
	}
	return "", workorder.Harness{}, NotFound(fmt.Errorf("no agent named %q", text.Clean(name)),
		DidYouMean(diag.Nearest(name, names), "available agents: "+strings.Join(names, ", ")))
}

// permissionsOf returns the permissions of an agent by its name.
func (p agentProject) permissionsOf(name string) projects.Permissions {
	for _, agent := range p.Agents {
		if agent.Name == name {
			return agent.Permissions
		}
	}
	return projects.Permissions{}
}

// StartedAgent is the outcome of starting an agent.
type StartedAgent struct {
	Sandbox string `json:"sandbox"`
	Agent   string `json:"agent,omitempty"` // empty if only the sandbox was started
	Began   bool   `json:"began"`           // false if the agent ran before
	Note    string `json:"note,omitempty"`
}

// Start starts an agent's program in a sandbox, unless it runs already. Without an agent and a prompt, in a sandbox whose project has no
// harness, the default agent is started only if its program is there.
func (g Agents) Start(ctx context.Context, sb *sandbox.Sandbox, agent, prompt string) (StartedAgent, error) {
	started := StartedAgent{Sandbox: sb.Name()}
	p, err := g.project(ctx, sb.Spec(), true)
	if err != nil {
		return started, err
	}
	optional := agent == "" && prompt == "" && p.Harness.Name == ""
	agent, h, err := p.harnessOf(agent)
	if err != nil {
		return started, err
	}
	switch has, err := g.hasAgent(ctx, sb, h); {
	case err != nil:
		return started, err
	case !has && optional:
		started.Note = fmt.Sprintf("%s has no program of %s, or no tmux", sb.Name(), agent)
		g.Sandboxes().NoteRecreated(sb)
		return started, nil
	}
	b, err := g.brief(ctx, sb, p)
	if err != nil {
		return started, err
	}
	started.Agent = agent
	if started.Began, err = begin(ctx, sb, agent, prompt, h, p.permissionsOf(agent), b, p.secrets); err != nil {
		return started, err
	}
	g.Sandboxes().NoteRecreated(sb)
	if started.Began {
		err = g.warnOfKey(ctx, sb, p, h)
	}
	return started, err
}

// Workdir is where commands of a sandbox begin.
func Workdir(s sandbox.Spec) string { return cmp.Or(s.Dir, sandbox.CloneDir) }

// keyScript prints 1 if neither the file $1 of the home directory nor any of the other variables exists.
const keyScript = `[ ! -s "$HOME/$1" ] || exit 0
shift
for name; do [ -z "$(printenv "$name")" ] || exit 0; done
echo 1`

// warnOfKey says so where an agent's program finds no way to its models: it itself says no more than that it is not logged in.
func (g Agents) warnOfKey(ctx context.Context, sb *sandbox.Sandbox, p agentProject, h workorder.Harness) error {
	q := *p.Project
	q.Harness = h
	names, ways := q.KeyNames(), q.WaysToModels()
	if len(names) == 0 || slices.ContainsFunc(ways, func(name string) bool { return p.secrets[name] != "" }) {
		return nil
	}
	agent := agentkind.Of(h.Name)
	argv := append([]string{"sh", "-c", keyScript, "sh", path.Join(agent.Dir, agent.LoginFile)}, ways...)
	r, err := sb.Run(ctx, sandbox.Command{Argv: argv, Dir: "/", Timeout: time.Minute, Unrecorded: true})
	if err != nil {
		return SandboxError(err)
	}
	if strings.TrimSpace(string(r.Stdout)) == "1" {
		g.Warn(fmt.Sprintf("no model key in sandbox %s for %s: set one of %s; or log in there, or recreate it from a project with a key: %s",
			sb.Name(), h.Name, strings.Join(names, ", "), q.KeyHint()))
	}
	return nil
}

// Settle prepares a new sandbox of a project or repository for its first command. The sandbox is usable even if that fails.
func (b Sandboxes) Settle(ctx context.Context, sb *sandbox.Sandbox) error {
	s := sb.Spec()
	if s.Project == "" && s.BranchOf() == "" {
		return nil
	}
	if s.Worktree == "" && s.BranchOf() != "" {
		missing, err := sb.Branch().AddSubmodules(ctx)
		if err != nil {
			return SandboxError(err)
		}
		for _, err := range missing {
			b.Warn(err.Error())
		}
	}
	p, err := b.Agents().project(ctx, s, false)
	if err != nil {
		return err
	}
	_, err = b.Agents().brief(ctx, sb, p)
	return errors.Join(err, b.runInit(ctx, sb, p))
}

// initTime bounds a command of a project's init.
const initTime = 10 * time.Minute

// projectInit is what a repository may bring of its own.
const projectInit = ".sandbox-agent/init"

// noteLength bounds what a remark quotes, in characters.
const noteLength = 50

// runInit runs the init commands of a project in a new sandbox. A failure is only a warning.
func (b Sandboxes) runInit(ctx context.Context, sb *sandbox.Sandbox, p agentProject) error {
	own := fmt.Sprintf("if [ -x %[1]s ]; then exec ./%[1]s; fi", projectInit)
	commands := slices.Clone(p.Init)
	if _, err := sb.Files().Lstat(ctx, path.Join(Workdir(sb.Spec()), projectInit)); err == nil {
		commands = append(commands, own)
	}
	for _, command := range commands {
		r, err := sb.Run(ctx, sandbox.Command{Argv: []string{"sh", "-c", command}, Timeout: initTime})
		if err != nil {
			return SandboxError(err)
		}
		if r.ExitCode != 0 {
			first, _, _ := strings.Cut(command, "\n")
			if command == own {
				first = projectInit
			}
			b.Warn(fmt.Sprintf("init: %s: exit code %d: %s", text.Runes(first, noteLength), r.ExitCode,
				text.Runes(strings.TrimSpace(string(append(r.Stdout, r.Stderr...))), noteLength)))
		}
	}
	return nil
}
