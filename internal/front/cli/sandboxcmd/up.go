// Package sandboxcmd has the commands that create, use and remove sandboxes, and list them beside tasks.
package sandboxcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type upOptions struct {
	spec               sandbox.Spec
	network            string
	memory, cpus, pids string
	runtime, fallback  string
	mounts, workspaces []string
	allow              cmdutil.RuleList
	repos              []string
	repo, ref, project string // repo is the only one of repos, without a name
	title              string
	json               bool
	idle, life         time.Duration
	env, ports         []string
	trust              string
}

// NewCmdUp makes the command.
func NewCmdUp(f *cmdutil.Factory) *cobra.Command {
	o := &upOptions{}
	cmd := &cobra.Command{
		Use: "up [SANDBOX]", Short: "Create a sandbox to run commands in",
		Long: `Creates a standalone sandbox. 'exec' runs commands in it until 'down' removes
it.

With --image, or with SANDBOX_AGENT_IMAGE set, it is a container; any image works,
and nothing has to be installed in it. Without, it is a jail: processes of this machine in bubblewrap, with this
machine's programs (/usr) and none of its files. A jail needs no engine. Its
files in /workspace and in the home directory stay.

Without a name, --title makes one that is unused, and --repo is the repository
of the current directory unless a flag says what is at /workspace.

With --repo it has a clone of a repository at /workspace. Each command that
changes files makes a commit on the branch sandbox/NAME of that repository; see
'log', 'diff' and 'merge'. Uncommitted files are not in the clone. Several
repositories need names: each is cloned to /workspace/NAME, and has a branch.

With --idle or --ttl it stops after that time. Its files stay, and the next
command starts it again.`,
		Example: `  sandbox-agent up scratch
  sandbox-agent up dev --image debian:trixie
  sandbox-agent up fix --repo . --title 'Fix the login'
  sandbox-agent up --title 'Fix the login' --from-ref v1.2
  sandbox-agent up shop --repo api=../api --repo web=../web
  sandbox-agent up quiet --image python:3.13 --network none --memory 512m
  sandbox-agent up unknown --trust sandboxed
  sandbox-agent exec dev uname -a`,
		Args: func(cmd *cobra.Command, args []string) error {
			least := 1
			if o.title != "" {
				least = 0
			}
			return cmdutil.Args(least, 1, "one name, or --title", "for example: sandbox-agent up dev --image debian:trixie")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error { return o.do(cmd.Context(), f, strings.Join(args, "")) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.runtime, "runtime", "", "runtime: jail, container, box or host (default: the one that fits)")
	flags.StringArrayVar(&o.workspaces, "workspace", nil, "directory to work in, at /workspace: `[NAME=]DIR[:ro]` (repeatable with names)")
	flags.StringArrayVarP(&o.mounts, "mount", "v", nil, "directory to mount: `DIR:TARGET[:ro]` (repeatable)")
	flags.StringVar(&o.spec.Image, "image", "", "image of the container (default: that of tasks)")
	flags.StringVarP(&o.project, "project", "p", "", "project name, or path of a project file, for services, tools and setup")
	flags.StringArrayVar(&o.repos, "repo", nil,
		"repository to clone at /workspace: `[NAME=]REPO`, a path or for a box a URL (repeatable with names)")
	flags.StringVar(&o.title, "title", "", "short description of the purpose")
	flags.StringVar(&o.spec.Author, "author", "", "who commits in the repository: `Name <email>` (default: the project's, or yours)")
	flags.StringVar(&o.spec.Worktree, "git-worktree", "", "repository to make a git worktree of at /workspace")
	flags.StringVar(&o.ref, "from-ref", "", "branch, tag or commit to start from (default: HEAD; of a URL, its default branch)")
	flags.StringVarP(&o.spec.User, "user", "u", "", "user of commands: name, uid or uid:gid (default: the image's)")
	flags.StringVarP(&o.spec.Dir, "workdir", "w", "", "directory in which commands start (default: the image's)")
	flags.StringArrayVarP(&o.env, "env", "e", nil, "set a variable for all commands: `NAME=value` (repeatable)")
	flags.StringVar(&o.network, "network", "", "network mode: full, restricted or none (default: the project's, or full)")
	flags.StringVar(&o.trust, "trust", "", "sandboxed: no network, mounts or secrets; trusted: full network")
	flags.Var(&o.allow, "allow", "allow a `RULE` in a restricted network: HOST, *.DOMAIN or ADDRESS, with :PORT (repeatable)")
	flags.StringVar(&o.memory, "memory", "", "memory limit, such as 512m or 2g, or none (default 2g)")
	flags.StringVar(&o.cpus, "cpus", "", "CPU limit, such as 0.5 or 2, or none (default 2)")
	flags.StringVar(&o.pids, "pids", "", "limit of processes and threads, or none (default 4096)")
	flags.StringVar(&o.spec.OCIRuntime, "oci-runtime", "", "OCI runtime of the engine, such as runsc or kata")
	cmdutil.DurationVar(flags, &o.idle, "idle", 0, "stop after this long without use (files are kept)")
	cmdutil.DurationVar(flags, &o.life, "ttl", 0, "stop after this long (files are kept)")
	flags.StringArrayVar(&o.ports, "port", nil, "publish a port on this machine's loopback: `[LOCAL:]PORT` (repeatable)")
	flags.BoolVar(&o.json, "json", false, "print JSON")
	cmdutil.FallbackVar(cmd, &o.fallback)
	f.CompleteProjectFlag(cmd)
	var kinds []string
	for _, k := range sandbox.AllRuntimes() {
		kinds = append(kinds, string(k))
	}
	for flag, values := range map[string][]string{
		"runtime": kinds, "trust": app.TrustLevels(),
		"network": {string(sandbox.NetworkFull), string(sandbox.NetworkRestricted), string(sandbox.NetworkNone)},
	} {
		// It can only fail for a flag that does not exist.
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

func (o *upOptions) do(ctx context.Context, f *cmdutil.Factory, name string) error {
	s := o.spec
	only, named, rerr := parseRepos(o.repos, o.ref)
	o.repo, s.Repos = only, named
	if name == "" && len(o.repos) == 0 && o.project == "" && s.Worktree == "" && len(o.workspaces) == 0 {
		o.repo = "."
	}
	s.Name, s.Network, s.IdleTimeout, s.TTL, s.Env = name, sandbox.NetworkMode(o.network), o.idle, o.life, o.env
	errs := []error{rerr}
	var err error
	s.Limits, err = cmdutil.ParseLimits(o.memory, o.cpus, o.pids)
	errs = append(errs, err)
	for _, t := range o.mounts {
		m, err := f.ParseMount(t)
		s.Mounts, errs = append(s.Mounts, m), append(errs, err)
	}
	work, err := parseWorkspaces(f, o.workspaces)
	if errs = append(errs, err); len(work) > 0 {
		s.Mounts, s.Dir = append(s.Mounts, work...), cmp.Or(s.Dir, sandbox.CloneDir)
		s.Env = append([]string{"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
			s.Env...) // the files belong to the user, whichever user runs the command
		if len(o.repos) > 0 {
			errs = append(errs, errors.New("--workspace and --repo cannot be combined"))
		}
	}
	switch {
	case s.Worktree != "" && len(o.repos) > 0:
		errs = append(errs, fmt.Errorf("--git-worktree and --repo each say what is at %s", sandbox.CloneDir))
	case len(named) > 0 && o.project != "":
		errs = append(errs, errors.New("--project describes a sandbox with one repository: it cannot be combined with named ones"))
	case o.ref != "" && s.Worktree == "" && o.repo == "" && len(o.repos) == 0 && o.project == "":
		errs = append(errs, errors.New("--from-ref needs --repo, --git-worktree or --project"))
	}
	if o.allow != "" {
		s.Allow, s.Network = strings.Split(string(o.allow), ","), cmp.Or(s.Network, sandbox.NetworkRestricted)
	}
	if _, err := workorder.ParseIdentity(s.Author); s.Author != "" && err != nil {
		errs = append(errs, fmt.Errorf("--author: %w", err))
	} else if s.Author != "" && o.repo == "" && o.project == "" && s.Worktree == "" {
		errs = append(errs, errors.New("--author needs a repository: --repo, --git-worktree or --project"))
	}
	errs = append(errs, app.Trust(o.trust).Apply(&s, o.runtime))
	ports, err := app.ParsePorts(o.ports)
	if err := errors.Join(append(errs, err)...); err != nil {
		return exiterr.New(workorder.ExitUsage, err, "")
	}
	s.Title = o.title
	start := time.Now()
	up, err := f.Sandboxes().Up(ctx, app.UpRequest{
		Spec: s, Runtime: o.runtime, Fallback: o.fallback, Project: o.project, Repo: o.repo, Ref: o.ref, Ports: ports,
		Trust: app.Trust(o.trust),
	})
	if err != nil {
		return err
	}
	if o.json {
		return f.JSON(up)
	}
	name = up.Spec.Name
	fmt.Fprintf(f.Stdout, "%s is up (%s, %s)\n", name, up.Runtime, time.Since(start).Round(time.Millisecond))
	for _, line := range up.Notes {
		f.Say(line)
	}
	tellEndpoints(f, up.Ports)
	var repos []string
	for _, c := range up.Spec.Clones() {
		repos = append(repos, c.Repo)
	}
	if len(repos) > 0 {
		fmt.Fprintf(f.Stdout, "each command is a commit of %s in %s: `sandbox-agent log %s`, `diff`, `merge`\n",
			app.BranchName(name), strings.Join(repos, " and "), name)
	}
	return nil
}

// parseRepos reads [NAME=]REPO: one repository without a name, or all with names.
func parseRepos(texts []string, ref string) (only string, named []sandbox.NamedRepo, err error) {
	var errs []error
	for _, t := range texts {
		name, repo, ok := strings.Cut(t, "=")
		switch {
		case ok && sandbox.ValidRepoName(name):
			named = append(named, sandbox.NamedRepo{Name: name, Repo: repo, Ref: ref})
		case len(texts) > 1:
			errs = append(errs, fmt.Errorf("--repo %q: one of several needs a name, as %s=%s",
				t, cmp.Or(strings.Trim(filepath.Base(t), "./"), "main"), t))
		default:
			only = t
		}
	}
	return only, named, errors.Join(errs...)
}

// parseWorkspaces reads [NAME=]DIR[:ro].
func parseWorkspaces(f *cmdutil.Factory, texts []string) (all []sandbox.Mount, err error) {
	var errs []error
	for _, t := range texts {
		inside, dir := sandbox.CloneDir, t
		if name, rest, ok := strings.Cut(t, "="); ok && sandbox.ValidRepoName(name) {
			inside, dir = sandbox.CloneDir+"/"+name, rest
		} else if len(texts) > 1 {
			errs = append(errs, fmt.Errorf("--workspace %q: one of several needs a name, as src=%s", t, t))
			continue
		}
		dir, ro := strings.CutSuffix(dir, ":ro")
		m, err := f.ParseMount(dir + ":" + inside)
		if err == nil {
			if st, serr := os.Stat(m.Source); serr != nil {
				err = fmt.Errorf("--workspace %q: %w", t, serr)
			} else if !st.IsDir() {
				err = fmt.Errorf("--workspace %q is not a directory", t)
			}
		}
		m.ReadOnly = ro
		all, errs = append(all, m), append(errs, err)
	}
	return all, errors.Join(errs...)
}
