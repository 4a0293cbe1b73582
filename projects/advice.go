package projects

import (
	"fmt"
	"slices"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// claudeClouds make Claude Code use another provider, with that one's own keys.
var claudeClouds = []string{"CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY"}

// NoKeyHint is what to do about a harness without a key.
const NoKeyHint = "add to the project file  secrets: {ANTHROPIC_API_KEY: env://ANTHROPIC_API_KEY}  or one of ANTHROPIC_AUTH_TOKEN, CLAUDE_CODE_OAUTH_TOKEN"

// LacksKey reports whether the harness cannot work because the project gives it
// no way to its provider: neither a route of the gateway nor a key of its own.
func (p *Project) LacksKey() bool {
	if p.Harness.Name != HarnessClaudeCode {
		return false
	}
	if slices.ContainsFunc(p.Gateway.Routes, func(r workorder.ModelRoute) bool { return r.API == workorder.APIAnthropic }) {
		return false
	}
	return !slices.ContainsFunc(append(workorder.APIAnthropic.KeyVariables(), claudeClouds...), func(name string) bool {
		_, env := p.Env[name]
		return env || slices.ContainsFunc(p.Secrets, func(s Secret) bool { return s.Name == name && s.agents() })
	})
}

// agents reports whether the agent has the value in its environment.
func (s Secret) agents() bool {
	return s.Use == workorder.ForAgent || s.Use == workorder.ForCommands
}

// Advice is what is no mistake in a project file and may surprise.
type Advice struct{ Message, Hint string }

// Advice lists what may surprise.
func (p *Project) Advice() (all []Advice) {
	if p.LacksKey() {
		all = append(all, Advice{fmt.Sprintf("the harness %s has no key: create will refuse to start", p.Harness.Name), NoKeyHint})
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
			"run it once with network: {mode: restricted, learn: true}; `sandbox-agent policy learn` proposes rules from that run",
		})
	}
	return all
}

// Ignored lists the keys that are read and checked, and not acted on by this version.
func (p *Project) Ignored() (keys []string) {
	for _, k := range []struct {
		name string
		set  bool
	}{
		{"dev", p.Dev != nil},
		{"pr", p.PR != nil},
	} {
		if k.set {
			keys = append(keys, k.name)
		}
	}
	return keys
}
