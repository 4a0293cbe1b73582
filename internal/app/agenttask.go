package app

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/host/credentials"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// AgentTask is a task that an agent asks for.
type AgentTask struct {
	Text    string
	Project string // a name; "" with Repo, or for the project of the current directory
	Repo    string // a URL
	Branch  string // to start from
	Harness string
}

// maxProjects bounds the list of projects in an error.
const maxProjects = 20

// check refuses what an agent must not choose: files of this machine, as projects or repositories, and a project's secrets
// for another repository.
func (q AgentTask) check(getenv func(string) string) error {
	if q.Project != "" && q.Repo != "" {
		return Usagef("name a project or a repository: a project is for its own repository")
	}
	if q.Project != "" {
		opts, err := projects.SystemOptions()
		if err != nil {
			return err
		}
		if dir := getenv(EnvName("projects-dir")); dir != "" {
			opts.Dirs = append([]string{dir}, opts.Dirs...)
		}
		isPath := func(n string) bool { return path.Ext(n) == ".yaml" || path.Ext(n) == ".yml" }
		names := slices.DeleteFunc(projects.Names(opts), isPath)
		if !slices.Contains(names, q.Project) {
			return Usagef("unknown project %.80q; the user has: %s", q.Project, strings.Join(names[:min(len(names), maxProjects)], ", "))
		}
	}
	if q.Repo != "" {
		if kind, err := projects.RepoTransport(q.Repo); err != nil || kind == projects.TransportLocal {
			return Usagef("repository %.200q: name the URL of one on a server; "+
				"one of this machine needs a project of the user's, or to be the current one", q.Repo)
		}
	}
	return nil
}

// CreateFor starts a task that an agent asks for. It asks no person, and returns once the task goes on without this program.
func (t *Tasks) CreateFor(ctx context.Context, q AgentTask) (id string, err error) {
	if err := q.check(t.Getenv); err != nil {
		return "", err
	}
	env := *t.Env
	if q.Repo != "" {
		// The project of the current directory has secrets and rules for its own repository, and none for one that an agent
		// names. Nor is a token sent there that is for no particular server.
		env.Getenv = func(name string) string {
			if name == EnvName("project") || name == credentials.GitToken {
				return ""
			}
			return t.Getenv(name)
		}
	}
	given := map[string]string{"project": q.Project, "repo": q.Repo, "branch": q.Branch, "harness": q.Harness, "detach": "true"}
	maps.DeleteFunc(given, func(_, value string) bool { return value == "" })
	flags, err := TaskSettings(given, env.Getenv)
	if err != nil {
		return "", err
	}
	if q.Repo != "" {
		flags.ProjectSource = taskstore.Detected
	}
	asked := *t
	asked.Env, asked.Resolver = &env, env.Resolver(false)
	r := TaskRequest{Flags: flags}
	r.Text = q.Text
	out, err := asked.Create(ctx, r)
	if err == nil && out.Result != nil && workorder.ExitCode(out.Result.Status, out.Result.EndedBy) != workorder.ExitOK {
		err = fmt.Errorf("the task ended before it began: %s", reason(out.Result))
	}
	return out.Task, err
}
