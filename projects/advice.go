package projects

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/agentkind"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// KeyHint is the hint for a harness without a key.
func (p *Project) KeyHint() string {
	names := p.KeyNames()
	return fmt.Sprintf("add to the project file  secrets: {%s: env://%s}  or one of %s", names[0], names[0], strings.Join(names[1:], ", "))
}

// keyAPIs returns the APIs of which the harness needs one, or nil if it has another way to its models.
func (p *Project) keyAPIs() []workorder.ModelAPI {
	h, apis := p.Harness, p.Harness.APIs()
	if h.Name == workorder.HarnessCodex && len(h.Args) > 0 {
		return nil // it may have another provider
	}
	if provider, _, has := strings.Cut(h.Model, "/"); has && h.Name == workorder.HarnessOpencode {
		return slices.DeleteFunc(apis, func(a workorder.ModelAPI) bool { return string(a) != provider })
	}
	return apis
}

// WaysToModels returns the variables of which the harness needs one: a key, a server, or another cloud.
func (p *Project) WaysToModels() []string {
	names := p.KeyNames()
	for _, api := range p.keyAPIs() {
		names = append(names, api.BaseURLVariable())
	}
	return append(names, agentkind.Of(p.Harness.Name).Clouds...)
}

// LacksKey reports whether the project gives the harness neither a route of the gateway nor a key.
func (p *Project) LacksKey() bool {
	apis := p.keyAPIs()
	if slices.ContainsFunc(p.Gateway.Routes, func(r workorder.ModelRoute) bool { return slices.Contains(apis, r.API) }) {
		return false
	}
	var keys []string
	for _, api := range apis {
		keys = append(keys, api.KeyVariables()...)
	}
	keys = append(keys, agentkind.Of(p.Harness.Name).Clouds...)
	return len(apis) > 0 && !slices.ContainsFunc(keys, func(name string) bool {
		_, env := p.Env[name]
		return env || slices.ContainsFunc(p.Secrets, func(s Secret) bool { return s.Name == name && s.agents() })
	})
}

// agents reports whether the agent has the value in its environment.
func (s Secret) agents() bool {
	return s.Use == workorder.SecretForAgent || s.Use == workorder.SecretForCommands
}

// Advice is a valid setting that may surprise.
type Advice struct{ Message, Hint string }

// Advice returns all advice for the project.
func (p *Project) Advice() (all []Advice) {
	if len(p.Validate) == 0 {
		all = append(all, Advice{
			"nothing judges the agent's work: the project has no checks",
			"name a command under validate of the project file, such as `validate: {test: npm test}`; `sandbox-agent project init` writes one",
		})
	}
	for _, s := range p.Secrets {
		if workorder.ModelAPIOfKey(s.Name) != "" && s.agents() {
			all = append(all, Advice{
				fmt.Sprintf("the agent holds the key %s: secrets.%s is for %s, and not for the gateway", s.Name, s.Name, s.Use),
				"leave `for` out: the gateway adds the key to requests, counts what they cost and keeps the budget",
			})
		}
	}
	if n := p.Network; n.Mode == workorder.NetworkRestricted && len(n.Allow) == 0 && !n.Learn {
		all = append(all, Advice{
			"the network is restricted and nothing is allowed: only the sandbox's own services, git and the model gateway can be reached",
			"run it once with network: {mode: restricted, learn: true}; `sandbox-agent network suggest` proposes rules from that run",
		})
	}
	return all
}
