package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/diag"
	"github.com/sandbox-agent/sandbox-agent/internal/host/agents"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// tmuxSession is the session of tmux in which agents run, each in a window of its name.
const tmuxSession = "agent"

type startOptions struct {
	prompt       string
	detach, json bool
}

func newStartCmd(a *App) *cobra.Command {
	o := &startOptions{}
	cmd := &cobra.Command{
		Use: "start SANDBOX [AGENT]", Short: "Start a sandbox and its agent, at a terminal",
		Long: `Starts the sandbox and an agent's program in it, in tmux, and shows the program;
where it runs already, it is shown. Ctrl-B D leaves it running, as does a lost
connection; 'attach' shows it again, and 'shell' opens a shell beside it.
AGENT is a harness or one of the project's agents. The default is the project's
harness, or claude-code; in a sandbox that has neither a project nor that
program, only the sandbox starts.

The agent asks for no permission: the sandbox isolates it. With the model gateway
of a box, model keys stay outside. The agent finds a description of the sandbox
in .claude/sandbox-agent.md of the working tree, which git does not see.`,
		Example: "  sandbox-agent start dev\n  sandbox-agent start dev codex\n  sandbox-agent start dev --prompt 'fix the flaky test' --detach",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 || len(args) == 2 {
				return nil
			}
			return oneSandbox(cmd, args)
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return workorder.Harnesses(), cobra.ShellCompDirectiveNoFileComp
			}
			return a.completeSandboxes(false)(cmd, args, begun)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			agent := ""
			if len(args) == 2 {
				agent = args[1]
			}
			return o.do(cmd.Context(), a, args[0], agent)
		},
	}
	cmd.Flags().StringVar(&o.prompt, "prompt", "", "first instruction for the agent")
	cmd.Flags().BoolVarP(&o.detach, "detach", "d", false, "start the agent without showing it")
	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON instead of showing the agent")
	return cmd
}

// ofProject is what a project says of a sandbox that was made of it.
type ofProject struct {
	*projects.Project
	// secrets are those that are for agents alone.
	secrets map[string]string
}

// projectOf is the project of a sandbox; one that was made of none has an empty one.
func (a *App) projectOf(ctx context.Context, s sandbox.Spec, secrets bool) (ofProject, error) {
	if s.Project == "" {
		return ofProject{Project: &projects.Project{}}, nil
	}
	g, err := a.Sandboxes().Project(ctx, s)
	if err != nil {
		return ofProject{}, err
	}
	p := ofProject{Project: g.Project}
	if secrets {
		p.secrets, err = g.AgentSecrets(ctx, a.resolver(false).Credentials)
	}
	return p, err
}

// harness is the one that a name means.
func (p ofProject) harness(name string) (string, workorder.Harness, error) {
	if name == "" {
		h := p.Harness
		h.Name = cmp.Or(h.Name, workorder.HarnessClaudeCode)
		return h.Name, h, nil
	}
	var names []string
	for _, agent := range p.Agents {
		if agent.Name == name {
			return name, agent.Harness, nil
		}
		names = append(names, agent.Name)
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
	return "", workorder.Harness{}, fault.New(workorder.ExitNotFound, fmt.Errorf("no agent named %q", text.Clean(name)), didYouMean(diag.Nearest(name, names), "available agents: "+strings.Join(names, ", ")))
}

// workdirOf is where commands of a sandbox begin.
func workdirOf(s sandbox.Spec) string { return cmp.Or(s.Dir, sandbox.CloneDir) }

func (o *startOptions) do(ctx context.Context, a *App, name, agent string) error {
	sb, done, err := a.sandbox(ctx, name)
	if err != nil {
		return err
	}
	defer done()
	p, err := a.projectOf(ctx, sb.Spec(), true)
	if err != nil {
		return err
	}
	optional := agent == "" && o.prompt == "" && p.Harness.Name == ""
	agent, h, err := p.harness(agent)
	if err != nil {
		return err
	}
	if optional {
		switch has, err := hasAgent(ctx, sb, h); {
		case err != nil:
			return err
		case !has:
			return o.report(a, sb, started{Note: fmt.Sprintf("%s has no program of %s, or no tmux", name, agent)})
		}
	}
	briefed, err := a.brief(ctx, sb, p)
	if err != nil {
		return err
	}
	began, err := o.begin(ctx, sb, agent, h, briefed, p.secrets)
	if err != nil {
		return err
	}
	a.tellRenewed(sb)
	if began {
		if err := a.warnOfKey(ctx, sb, p, h); err != nil {
			return err
		}
	}
	if o.detach || o.json || !a.atTerminal() {
		return o.report(a, sb, started{Agent: agent, Began: began})
	}
	return a.showInTerminal(ctx, sb, showSession("="+tmuxSession+":="+agent))
}

// started is the outcome of a start that shows no terminal.
type started struct {
	Sandbox string `json:"sandbox"`
	Agent   string `json:"agent,omitempty"`
	Began   bool   `json:"began"` // false if the agent ran before
	Note    string `json:"note,omitempty"`
}

func (o *startOptions) report(a *App, sb *sandbox.Sandbox, s started) error {
	s.Sandbox = sb.Name()
	switch {
	case o.json:
		return a.json(s)
	case s.Agent == "":
		a.tellRenewed(sb)
		fmt.Fprintln(a.Stderr, "note: no agent was started: "+s.Note)
		fmt.Fprintln(a.Stdout, s.Sandbox+" runs")
	case s.Began:
		fmt.Fprintf(a.Stdout, "%s runs in %s: `sandbox-agent attach %[2]s` shows it\n", s.Agent, s.Sandbox)
	default:
		fmt.Fprintf(a.Stdout, "%s runs in %s already\n", s.Agent, s.Sandbox)
	}
	return nil
}

// hasAgent reports whether a sandbox has a harness's program, and tmux to run it in.
func hasAgent(ctx context.Context, sb *sandbox.Sandbox, h workorder.Harness) (bool, error) {
	const script = `command -v tmux >/dev/null && command -v "$1" >/dev/null`
	line, err := agents.Line(agents.Start{Harness: h})
	if err != nil {
		return false, err
	}
	r, err := sb.Run(ctx, sandbox.Command{
		Argv: []string{"sh", "-c", script, "sh", line.Argv[0]}, Dir: "/", Timeout: time.Minute, Unrecorded: true,
	})
	return err == nil && r.ExitCode == 0, sandboxError(err)
}

// keyScript prints 1 where neither the file $1 of the home folder nor one of the other variables is there.
const keyScript = `[ ! -s "$HOME/$1" ] || exit 0
shift
for name; do [ -z "$(printenv "$name")" ] || exit 0; done
echo 1`

// warnOfKey says so where an agent's program finds no way to its models: it itself says no more than that it is not logged in.
func (a *App) warnOfKey(ctx context.Context, sb *sandbox.Sandbox, p ofProject, h workorder.Harness) error {
	q := *p.Project
	q.Harness = h
	names, ways := q.KeyNames(), q.WaysToModels()
	if len(names) == 0 || slices.ContainsFunc(ways, func(name string) bool { return p.secrets[name] != "" }) {
		return nil
	}
	argv := append([]string{"sh", "-c", keyScript, "sh", agents.Login(h.Name)}, ways...)
	r, err := sb.Run(ctx, sandbox.Command{Argv: argv, Dir: "/", Timeout: time.Minute, Unrecorded: true})
	if err != nil {
		return sandboxError(err)
	}
	if strings.TrimSpace(string(r.Stdout)) == "1" {
		a.warn(fmt.Sprintf("%s has no key in sandbox %s: none is set of %s; log in there, or make it anew of a project with a key: %s", h.Name, sb.Name(), strings.Join(names, ", "), q.KeyHint()))
	}
	return nil
}

// settle does what a new sandbox of a project or repository has before its first command. What fails keeps nobody from using it.
func (a *App) settle(ctx context.Context, sb *sandbox.Sandbox) error {
	s := sb.Spec()
	if s.Project == "" && s.BranchOf() == "" {
		return nil
	}
	if path.IsAbs(s.Repo) {
		missing, err := sb.Branch().AddSubmodules(ctx)
		if err != nil {
			return sandboxError(err)
		}
		for _, err := range missing {
			a.warn(err.Error())
		}
	}
	p, err := a.projectOf(ctx, s, false)
	if err != nil {
		return err
	}
	_, err = a.brief(ctx, sb, p)
	return errors.Join(err, a.runInit(ctx, sb, p))
}

// initTime bounds a command of a project's init.
const initTime = 10 * time.Minute

// projectInit is what a repository may bring of its own.
const projectInit = ".sandbox-agent/init"

// runInit runs what a project wants run in a new sandbox: what fails is told, and keeps nothing from running.
func (a *App) runInit(ctx context.Context, sb *sandbox.Sandbox, p ofProject) error {
	own := fmt.Sprintf("if [ -x %[1]s ]; then exec ./%[1]s; fi", projectInit)
	commands := slices.Clone(p.Init)
	if _, err := sb.Files().Lstat(ctx, path.Join(workdirOf(sb.Spec()), projectInit)); err == nil {
		commands = append(commands, own)
	}
	for _, command := range commands {
		r, err := sb.Run(ctx, sandbox.Command{Argv: []string{"sh", "-c", command}, Timeout: initTime})
		if err != nil {
			return sandboxError(err)
		}
		if r.ExitCode != 0 {
			first, _, _ := strings.Cut(command, "\n")
			if command == own {
				first = projectInit
			}
			a.warn(fmt.Sprintf("init: %s: exit code %d: %s", clip(first), r.ExitCode, clip(strings.TrimSpace(string(append(r.Stdout, r.Stderr...))))))
		}
	}
	return nil
}
