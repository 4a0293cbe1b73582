// Package trust decides whether the project file of a repository may be used: what it requests beyond the sandbox, and
// whether the user trusted exactly that content at that path.
package trust

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/forge/setup"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Permission is one request of a project file.
type Permission struct {
	Key    string `json:"key"` // the file's key, such as secrets.STRIPE
	Value  string `json:"value"`
	Reason string `json:"why"` // what it means for the user
	// Claim means that the request is void if the file's repository has a commit of the remote. Then it is a clone, and not
	// an archive whose .git/config names the remote.
	Claim bool `json:"-"`
}

// UserOverrides are the user's own settings, which override the file.
type UserOverrides struct {
	Gives   func(key string) bool  // reports whether the user sets a key
	Network workorder.NetworkMode  // "" if the user set none
	Own     func(repo string) bool // reports whether a repository is the file's own
	// Token means that SANDBOX_AGENT_GIT_TOKEN is set, which is sent to the server of every named repository.
	Token   bool
	Borrows []string // directories outside of the file's repository whose objects it uses without a copy
	Repo    string   // the repository that the user names; "" means the file's
	AnyRepo bool     // the user may name any repository later
	// MemoryBytes is the memory of a sandbox without a limit. 0 means unknown; then each limit of memory is a request.
	MemoryBytes int64
}

// Permissions lists the file's requests before flags replace its values. Settings within the sandbox (services, setup,
// packages) are not requests, because the repository's code may do the same there. Limits above the defaults are requests.
func Permissions(p *projects.Project, u UserOverrides) (list []Permission) {
	add := func(key, value, why string) { list = append(list, Permission{Key: key, Value: value, Reason: why}) }
	switch given := p.Repo == "" || u.Gives("repo"); {
	case given:
	case !u.Own(p.Repo):
		add("repo", p.Repo, "a repository other than the file's own is given to its commands, and your git token to its server")
	case u.Token && p.Transport() != projects.TransportLocal:
		add("repo", p.Repo, "SANDBOX_AGENT_GIT_TOKEN is sent to this server, and only the repository's own .git/config says that the "+
			"repository comes from there")
	case p.Transport() != projects.TransportLocal:
		const why = "your credential for it is used, and only the repository's own .git/config says that the repository comes from there: " +
			"it has no commit that the remote has now (run `git fetch` if it is your clone), or it borrows its objects"
		list = append(list, Permission{Key: "repo", Value: p.Repo, Reason: why, Claim: true})
	}
	for _, r := range p.Repos {
		add("repos."+r.Name, r.Repo, "a further repository is given to this one's commands and is pushed to: your git token goes to its server")
	}
	for _, dir := range u.Borrows {
		add("repo", "objects of "+dir, "the repository's objects come from there, and its commands can read them")
	}
	list = append(list, forgeAsks(p, u)...)
	for _, s := range p.Secrets {
		for _, from := range s.From {
			if !harnessKey(p, s, from) {
				add("secrets."+s.Name, from.String(), meaning(s, from))
			}
		}
	}
	for _, r := range p.Gateway.Routes {
		if r.BaseURL != r.API.DefaultBaseURL() {
			why := "the agent's requests to the model go to this server, over this machine's network"
			if len(r.Keys) > 0 {
				why += ", with " + strings.Join(r.Keys, ", ")
			}
			add("gateway."+string(r.API)+".base_url", r.BaseURL, why)
		}
	}
	if n := len(p.Gateway.Prices); n > 0 {
		add("gateway.prices", fmt.Sprintf("%d models", n), "your budget is counted with the file's prices")
	}
	list = append(list, networkAsks(p, u)...)
	if p.Isolation != workorder.IsolationConfined && !u.Gives("isolation") {
		add("isolation", p.Isolation, "the sandbox has little isolation: root in it is root on this machine")
	}
	if p.OCIRuntime != "" && !u.Gives("oci_runtime") {
		add("oci_runtime", p.OCIRuntime, "the sandbox runs with another runtime of the engine")
	}
	if p.Image != "" && !u.Gives("image") {
		add("image", p.Image, "the sandbox, which gets your keys, is created from this image")
	}
	return append(list, limitAsks(p, u)...)
}

// limitAsks returns the limits above their defaults. Limits without a default (processors, disk) can only lower.
func limitAsks(p *projects.Project, u UserOverrides) (list []Permission) {
	if m := p.Limits.MemoryBytes; m > u.MemoryBytes {
		list = append(list, Permission{
			Key: "limits.memory", Value: fmt.Sprintf("%d MiB", m>>20),
			Reason: "the sandbox may take more of this machine's memory than a sandbox without a limit",
		})
	}
	if n := p.Limits.PIDs; n > (workorder.Limits{}).AgentPIDs() {
		list = append(list, Permission{
			Key: "limits.pids", Value: fmt.Sprint(n),
			Reason: "the sandbox may have more processes than one without a limit: a fork bomb in it could stop this machine",
		})
	}
	return list
}

// forgeAsks returns the requests of pull requests outside of the cloned repository.
func forgeAsks(p *projects.Project, u UserOverrides) (list []Permission) {
	if p.PR == nil {
		return nil
	}
	repo := cmp.Or(u.Repo, p.Repo)
	own, known := setup.Parse(repo)
	if named := p.PR.Repository; named != "" && (u.AnyRepo || !known || !strings.EqualFold(named, own.String())) {
		list = append(list, Permission{
			Key: "pr.repository", Value: named,
			Reason: "pull requests are opened and answered there with your token, and it is not the repository that is cloned",
		})
	}
	switch api := p.PR.APIURL; {
	case api == "":
	case u.Token:
		list = append(list, Permission{Key: "pr.api_url", Value: api, Reason: "SANDBOX_AGENT_GIT_TOKEN goes to this server"})
	// For a path, pr.repository is the request.
	case repo != "" && !isPath(repo) && !setup.SameHost(repo, api):
		list = append(list, Permission{
			Key: "pr.api_url", Value: api,
			Reason: "your token for this server is used there, and it is not the server of " +
				"the repository that is cloned",
		})
	}
	return list
}

func isPath(repo string) bool {
	t, err := projects.RepoTransport(repo)
	return err == nil && t == projects.TransportLocal
}

// networkAsks returns what the file adds to a network that the user restricted.
func networkAsks(p *projects.Project, u UserOverrides) (list []Permission) {
	if t := p.Gateway.ProviderTools; t != nil && *t && u.Network != "" && u.Network != workorder.NetworkFull {
		list = append(list, Permission{
			Key: "gateway.provider_tools", Value: "true",
			Reason: "the provider searches and fetches for the agent, outside of your network rules",
		})
	}
	n := p.Network
	if u.Network != workorder.NetworkRestricted {
		return list
	}
	const why = "can be reached even if you restrict the network"
	if len(n.Allow) > 0 {
		list = append(list, Permission{Key: "network.allow", Value: strings.Join(n.Allow, ", "), Reason: why})
	}
	if n.Learn {
		list = append(list, Permission{Key: "network.learn", Value: "true", Reason: "every named host " + why})
	}
	if len(n.DNS) > 0 {
		list = append(list, Permission{
			Key: "network.dns", Value: strings.Join(n.DNS, ", "),
			Reason: "these resolvers choose the addresses of the names that you allow",
		})
	}
	return list
}

// harnessKey reports whether the secret is a key of the harness's own models that only the gateway gets.
func harnessKey(p *projects.Project, s projects.Secret, from projects.Ref) bool {
	api := workorder.ModelAPIOfKey(from.Target)
	return from.Scheme == projects.SecretEnv && s.Use == workorder.SecretForGateway && api != "" && api == routeOf(p, s.Name) &&
		slices.Contains(p.Harness.APIs(), api)
}

// routeOf returns the API whose server gets the secret, or "" if none or several do.
func routeOf(p *projects.Project, name string) (api workorder.ModelAPI) {
	for _, r := range p.Gateway.Routes {
		if !slices.Contains(r.Keys, name) {
			continue
		}
		if api != "" {
			return ""
		}
		api = r.API
	}
	return api
}

// meaning says what resolving the secret does on this machine, and who gets the value.
func meaning(s projects.Secret, from projects.Ref) string {
	what := map[string]string{
		projects.SecretCmd:   "the output of a command on this machine, run as you,",
		projects.SecretFile:  "a file of this machine",
		projects.SecretEnv:   "a variable of this machine",
		projects.SecretLogin: "the login of an agent on this machine",
	}[from.Scheme]
	who := map[workorder.SecretUse]string{
		workorder.SecretForCommands: "the repository's commands and the agent", workorder.SecretForSetup: "the repository's setup commands",
		workorder.SecretForAgent: "the agent", workorder.SecretForValidate: "the repository's validate commands",
		workorder.SecretForGateway: "the server of the agent's models",
	}[s.Use]
	return what + " is given to " + who
}
