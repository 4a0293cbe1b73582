package workorder

import "slices"

// Harnesses of this version.
const (
	HarnessClaudeCode = "claude-code"
	HarnessCodex      = "codex"
	HarnessOpencode   = "opencode"
	HarnessCommand    = "command" // any program
)

// harness is a kind of agent, as both sides of the box have to know it.
type harness struct {
	name string
	// apis are those of the models that it works with by itself. One that is a command of the repository's has none.
	apis []ModelAPI
}

// harnesses is the table. Its order is that of lists which a user sees.
var harnesses = []harness{
	{HarnessClaudeCode, []ModelAPI{APIAnthropic}},
	{HarnessCodex, []ModelAPI{APIOpenAI}},
	{HarnessOpencode, []ModelAPI{APIOpenAI, APIAnthropic}},
	{HarnessCommand, nil},
}

// Harnesses lists their names.
func Harnesses() (names []string) {
	for _, h := range harnesses {
		names = append(names, h.name)
	}
	return names
}

// APIs are those of the models that the harness works with by itself.
func (h Harness) APIs() []ModelAPI {
	if i := slices.IndexFunc(harnesses, func(k harness) bool { return k.name == h.Name }); i >= 0 {
		return slices.Clone(harnesses[i].apis)
	}
	return nil
}
