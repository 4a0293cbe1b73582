// Package trust answers for a project file that came with a repository: what it asks for beyond what the repository's
// own code may do in the box, and whether the user said yes to just that content at just that place. A user who clones a
// repository has not read its project file; it may name a command of this machine, or a file of it, or how the box is held.
package trust

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/forge/github"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Ask is one thing that a file asks for.
type Ask struct {
	Key   string `json:"key"` // of the file, such as secrets.STRIPE
	Value string `json:"value"`
	Why   string `json:"why"` // what it means to the user
	// Claim says that nothing is asked where a commit of the remote lies in the file's repository: then that is a clone of it, and
	// not an archive whose .git/config says so.
	Claim bool `json:"-"`
}

// User is what the user said beside the file.
type User struct {
	// Gives reports whether the user gives a key himself, so that the file's value does not count.
	Gives func(key string) bool
	// Network is the mode that the user gives; empty means none, and a full one is what a project without a word has.
	Network workorder.NetworkMode
	// Own reports whether a repository is the one that the file lies in.
	Own func(repo string) bool
	// Token says that a git token is set which is for no particular server: it goes to that of whatever repository is named.
	Token bool
	// Borrows are folders outside of the file's repository whose objects that one has without a copy.
	Borrows []string
	// Repo is the repository that the user gives; empty means the file's.
	Repo string
	// AnyRepo says that he may give whatever repository later.
	AnyRepo bool
}

// Asks lists what the file, as it was read and before anything replaced its values, asks for beyond the box. The box's own
// affairs (services, setup, packages, limits) are what the repository's code may do there anyway.
func Asks(p *projects.Project, u User) (list []Ask) {
	add := func(key, value, why string) { list = append(list, Ask{Key: key, Value: value, Why: why}) }
	switch given := p.Repo == "" || u.Gives("repo"); {
	case given:
	case !u.Own(p.Repo):
		add("repo", p.Repo, "another repository than the file's own is given to its commands, and your git token to its server")
	case u.Token && p.Transport() != projects.TransportLocal:
		add("repo", p.Repo, "SANDBOX_AGENT_GIT_TOKEN goes to this server, and only the repository's own .git/config says that it comes from there")
	case p.Transport() != projects.TransportLocal:
		const why = "your credential for it is used, and only the repository's own .git/config says that it comes from there: " +
			"it has no commit that the remote has now (`git fetch` brings one, if it is your clone), or borrows its objects"
		list = append(list, Ask{Key: "repo", Value: p.Repo, Why: why, Claim: true})
	}
	for _, folder := range u.Borrows {
		add("repo", "objects of "+folder, "the repository has its objects from there, and all that it names of them is given to its commands")
	}
	list = append(list, forgeAsks(p, u)...)
	for _, s := range p.Secrets {
		if !harnessKey(p, s) {
			add("secrets."+s.Name, s.Scheme+"://"+s.Target, meaning(s))
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
	return list
}

// forgeAsks are what the file says of the pull request. Its own repository's is none: whoever may push there may open one.
func forgeAsks(p *projects.Project, u User) (list []Ask) {
	if p.PR == nil {
		return nil
	}
	repo := cmp.Or(u.Repo, p.Repo)
	own, known := github.Parse(repo)
	if named := p.PR.Repository; named != "" && (u.AnyRepo || !known || !strings.EqualFold(named, own.Owner+"/"+own.Name)) {
		list = append(list, Ask{Key: "pr.repository", Value: named, Why: "pull requests are opened and answered there with your token, and it is not the repository that is cloned"})
	}
	switch api := p.PR.APIURL; {
	case api == "":
	case u.Token:
		list = append(list, Ask{Key: "pr.api_url", Value: api, Why: "SANDBOX_AGENT_GIT_TOKEN goes to this server"})
	case repo != "" && !isPath(repo) && !github.SameHost(repo, api): // of a path pr.repository is asked, and without that it has none
		list = append(list, Ask{Key: "pr.api_url", Value: api, Why: "your token for this server is used there, and it is not the server of the repository that is cloned"})
	}
	return list
}

func isPath(repo string) bool {
	t, err := projects.RepoTransport(repo)
	return err == nil && t == projects.TransportLocal
}

// networkAsks are what the file adds to a network that the user made narrower than the default.
func networkAsks(p *projects.Project, u User) (list []Ask) {
	if t := p.Gateway.ProviderTools; t != nil && *t && u.Network != "" && u.Network != workorder.NetworkFull {
		list = append(list, Ask{Key: "gateway.provider_tools", Value: "true", Why: "the provider searches and fetches for the agent, beside your network rules"})
	}
	n := p.Network
	if u.Network != workorder.NetworkRestricted {
		return list
	}
	const why = "is reached as well when you restrict the network"
	if len(n.Allow) > 0 {
		list = append(list, Ask{Key: "network.allow", Value: strings.Join(n.Allow, ", "), Why: why})
	}
	if n.Learn {
		list = append(list, Ask{Key: "network.learn", Value: "true", Why: "everything that has a name " + why})
	}
	if len(n.DNS) > 0 {
		list = append(list, Ask{Key: "network.dns", Value: strings.Join(n.DNS, ", "), Why: "these resolvers say where the names lie that you allow"})
	}
	return list
}

// harnessKey reports whether the secret is a key of the harness's own models which only the gateway gets, under the name that it has here.
func harnessKey(p *projects.Project, s projects.Secret) bool {
	api := workorder.ModelAPIOfKey(s.Target)
	return s.Scheme == projects.SecretEnv && s.Use == workorder.ForGateway && api != "" && api == routeOf(p, s.Name) && slices.Contains(p.Harness.APIs(), api)
}

// routeOf is the API whose server gets the secret; empty means none, or several.
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
func meaning(s projects.Secret) string {
	what := map[string]string{
		projects.SecretCmd:  "runs on this machine, as you; what it prints",
		projects.SecretFile: "a file of this machine",
		projects.SecretEnv:  "a variable of this machine",
	}[s.Scheme]
	who := map[workorder.SecretUse]string{
		workorder.ForCommands: "the repository's commands and the agent", workorder.ForSetup: "the repository's setup commands",
		workorder.ForAgent: "the agent", workorder.ForValidate: "the repository's validate commands", workorder.ForGateway: "the server of the agent's models",
	}[s.Use]
	return what + " is given to " + who
}
