package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

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
	prompt string
	detach bool
}

func newStartCmd(a *App) *cobra.Command {
	o := &startOptions{}
	cmd := &cobra.Command{
		Use: "start SANDBOX [AGENT]", Short: "Start an agent in a sandbox, at a terminal",
		Long: `Starts an agent's program in tmux in the sandbox and shows it; where it runs
already, it is shown. Ctrl-B D leaves it running, as does a lost connection.
AGENT is a harness or one of the project's agents. The default is the project's
harness, or claude-code.

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
	g, err := a.standingOf(ctx, s)
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
	agent, h, err := p.harness(agent)
	if err != nil {
		return err
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
	if in, ok := a.Stdin.(*os.File); o.detach || !ok || !term.IsTerminal(int(in.Fd())) || !isTerminal(a.Stdout) {
		if began {
			fmt.Fprintf(a.Stdout, "%s runs in %s: `sandbox-agent start %s %s` shows it\n", agent, name, name, agent)
		} else {
			fmt.Fprintf(a.Stdout, "%s runs in %s already\n", agent, name)
		}
		return nil
	}
	c := sandbox.Command{Argv: append(slices.Clone(showAgent), "-t", tmuxSession+":"+agent), Stdin: a.Stdin, Env: []string{"TERM=" + cmp.Or(a.Getenv("TERM"), "xterm-256color")}}
	return a.runInTerminal(ctx, sb, c)
}

// showAgent shows a window of the agents' session.
var showAgent = []string{"tmux", "attach-session"}

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
		missing, err := sb.Submodules(ctx)
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
