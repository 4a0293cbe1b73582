// Package trust decides about a project file that came with a repository: what it requests beyond what the repository's own
// code may do in the box, and whether the user trusted exactly that content at that place. A user who clones a repository
// has not read its project file, which may name a command or a file of this machine, or the box's isolation.
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

// Permission is one request of a file.
type Permission struct {
	Key    string `json:"key"` // of the file, such as secrets.STRIPE
	Value  string `json:"value"`
	Reason string `json:"why"` // what it means for the user
	// Claim reports that the request is void if the file's repository has a commit of the remote: then it is a clone, and not an
	// archive whose .git/config names the remote.
	Claim bool `json:"-"`
}

// UserOverrides has the user's own settings, which override the file.
type UserOverrides struct {
	// Gives reports whether the user gives a key himself, so that the file's value does not count.
	Gives func(key string) bool
	// Network is the user's mode; empty if none, and full is also the default of a project without one.
	Network workorder.NetworkMode
	// Own reports whether a repository is the one with the file.
	Own func(repo string) bool
	// Token reports that a git token for no particular server is set: it is sent to the server of every repository that is named.
	Token bool
	// Borrows are folders outside of the file's repository whose objects that repository uses without a copy.
	Borrows []string
	// Repo is the repository that the user gives; if empty the file's.
	Repo string
	// AnyRepo reports that the user may name any repository later.
	AnyRepo bool
	// MemoryBytes is what a sandbox has without a limit. 0 means that it is not known: then each limit of memory is a request.
	MemoryBytes int64
}

// Permissions lists the requests of the file beyond the box, as it was read and before flags replaced its values. Settings in
// the box (services, setup, packages) are not requests: the repository's code may do the same there. Limits above the
// defaults are: those keep this machine usable.
func Permissions(p *projects.Project, u UserOverrides) (list []Permission) {
	add := func(key, value, why string) { list = append(list, Permission{Key: key, Value: value, Reason: why}) }
	switch given := p.Repo == "" || u.Gives("repo"); {
	case given:
	case !u.Own(p.Repo):
		add("repo", p.Repo, "another repository than the file's own is given to its commands, and your git token to its server")
	case u.Token && p.Transport() != projects.TransportLocal:
		add("repo", p.Repo, "SANDBOX_AGENT_GIT_TOKEN goes to this server, and only the repository's own .git/config says that it comes "+
			"from there")
	case p.Transport() != projects.TransportLocal:
		const why = "your credential for it is used, and only the repository's own .git/config says that it comes from there: " +
			"it has no commit that the remote has now (`git fetch` brings one, if it is your clone), or borrows its objects"
		list = append(list, Permission{Key: "repo", Value: p.Repo, Reason: why, Claim: true})
	}
	for _, folder := range u.Borrows {
		add("repo", "objects of "+folder, "the repository has its objects from there, and all that it names of them is given to its commands")
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
			why := "what the agent says goes to this server, by this machine's network"
			if len(r.Keys) > 0 {
				why += ", with " + strings.Join(r.Keys, ", ")
			}
			add("gateway."+string(r.API)+".base_url", r.BaseURL, why)
		}
	}
	if n := len(p.Gateway.Prices); n > 0 {
		add("gateway.prices", fmt.Sprintf("%d models", n), "your budget is counted by the file's prices")
	}
	list = append(list, networkAsks(p, u)...)
	if p.Isolation != workorder.IsolationConfined && !u.Gives("isolation") {
		add("isolation", p.Isolation, "the sandbox is hardly held: root in it is root on this machine")
	}
	if p.OCIRuntime != "" && !u.Gives("oci_runtime") {
		add("oci_runtime", p.OCIRuntime, "another runtime of the engine holds the sandbox")
	}
	if p.Image != "" && !u.Gives("image") {
		add("image", p.Image, "the sandbox, which gets your keys, is made of this image")
	}
	return append(list, limitAsks(p, u)...)
}

// limitAsks are the limits that lift a default. A default without a number (processors, disk) can only be lowered.
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

// forgeAsks are the requests about the pull request. One in the file's own repository is no request: who may push there may open one.
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
	// for a path, pr.repository is the request; without it there is no pull request
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

// networkAsks are the file's additions to a network that the user made narrower than the default.
func networkAsks(p *projects.Project, u UserOverrides) (list []Permission) {
	if t := p.Gateway.ProviderTools; t != nil && *t && u.Network != "" && u.Network != workorder.NetworkFull {
		list = append(list, Permission{
			Key: "gateway.provider_tools", Value: "true",
			Reason: "the provider searches and fetches for the agent, beside your network rules",
		})
	}
	n := p.Network
	if u.Network != workorder.NetworkRestricted {
		return list
	}
	const why = "is reached as well when you restrict the network"
	if len(n.Allow) > 0 {
		list = append(list, Permission{Key: "network.allow", Value: strings.Join(n.Allow, ", "), Reason: why})
	}
	if n.Learn {
		list = append(list, Permission{Key: "network.learn", Value: "true", Reason: "everything that has a name " + why})
	}
	if len(n.DNS) > 0 {
		list = append(list, Permission{
			Key: "network.dns", Value: strings.Join(n.DNS, ", "),
			Reason: "these resolvers say where the names lie that you allow",
		})
	}
	return list
}

// harnessKey reports whether the secret, as it is read from there, is a key of the harness's own models which only the
// gateway gets, under the name that it has here.
func harnessKey(p *projects.Project, s projects.Secret, from projects.Ref) bool {
	api := workorder.ModelAPIOfKey(from.Target)
	return from.Scheme == projects.SecretEnv && s.Use == workorder.SecretForGateway && api != "" && api == routeOf(p, s.Name) &&
		slices.Contains(p.Harness.APIs(), api)
}

// routeOf is the API whose server gets the secret; empty if there is none, or several.
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

// meaning is what resolving the secret does on this machine, and who gets the value.
func meaning(s projects.Secret, from projects.Ref) string {
	what := map[string]string{
		projects.SecretCmd:   "runs on this machine, as you; what it prints",
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
