package projects

import "slices"

// claudeKeys are what Claude Code can prove itself to its provider with.
var claudeKeys = []string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"}

// claudeClouds make Claude Code use another provider, with that one's own keys.
var claudeClouds = []string{"CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY"}

// NoKeyHint is what to do about a harness without a key.
const NoKeyHint = "add to the project file  secrets: {ANTHROPIC_API_KEY: env://ANTHROPIC_API_KEY}  or one of ANTHROPIC_AUTH_TOKEN, CLAUDE_CODE_OAUTH_TOKEN"

// LacksKey reports whether the harness cannot work because the project gives it
// no key of its provider.
func (p *Project) LacksKey() bool {
	if p.Harness.Name != HarnessClaudeCode {
		return false
	}
	return !slices.ContainsFunc(append(slices.Clone(claudeKeys), claudeClouds...), func(name string) bool {
		_, env := p.Env[name]
		return env || slices.Contains(p.SecretNames(), name)
	})
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
