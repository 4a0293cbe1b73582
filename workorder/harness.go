package workorder

import "github.com/sandbox-agent/sandbox-agent/internal/agentkind"

// Harnesses of this version.
const (
	HarnessClaudeCode = agentkind.ClaudeCode
	HarnessCodex      = agentkind.Codex
	HarnessOpencode   = agentkind.Opencode
	HarnessCommand    = agentkind.Command // any program
)

// Harnesses returns the names of all harnesses.
func Harnesses() []string { return agentkind.Names() }

// APIs returns the model APIs that the harness uses by itself.
func (h Harness) APIs() (apis []ModelAPI) {
	for _, api := range agentkind.Of(h.Name).APIs {
		apis = append(apis, ModelAPI(api))
	}
	return apis
}
