package workorder

import "slices"

// Harnesses of this version.
const (
	HarnessClaudeCode = "claude-code"
	HarnessCodex      = "codex"
	HarnessOpencode   = "opencode"
	HarnessCommand    = "command" // any program
)

type harness struct {
	name string
	// apis are the model APIs that it uses by itself; empty for a command of the repository.
	apis []ModelAPI
}

// harnesses is in the order of lists for users.
var harnesses = []harness{
	{HarnessClaudeCode, []ModelAPI{APIAnthropic}},
	{HarnessCodex, []ModelAPI{APIOpenAI}},
	{HarnessOpencode, []ModelAPI{APIOpenAI, APIAnthropic}},
	{HarnessCommand, nil},
}

// Harnesses returns the names of all harnesses.
func Harnesses() (names []string) {
	for _, h := range harnesses {
		names = append(names, h.name)
	}
	return names
}

// APIs returns the model APIs that the harness uses by itself.
func (h Harness) APIs() []ModelAPI {
	if i := slices.IndexFunc(harnesses, func(k harness) bool { return k.name == h.Name }); i >= 0 {
		return slices.Clone(harnesses[i].apis)
	}
	return nil
}
