// Package agents starts agents' programs at a terminal, with a user who can answer, in a sandbox that isolates them.
package agents

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/agentkind"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Start is what an agent begins with.
type Start struct {
	Harness workorder.Harness
	// Prompt is the first message to the agent; "" waits for the user.
	Prompt string
	// Briefing describes the sandbox to the agent; File is its path in the sandbox.
	Briefing, File string
	Workdir        string
	// NoProviderTools: requests with tools that the models' provider runs, such as a web search, are refused.
	NoProviderTools bool
	// Env has the values of Variables.
	Env map[string]string
}

var (
	claudeCode  = agentkind.Of(agentkind.ClaudeCode)
	codexCLI    = agentkind.Of(agentkind.Codex)
	opencodeCLI = agentkind.Of(agentkind.Opencode)
)

// Variables are the sandbox's variables that Start.Env needs.
func Variables() []string {
	return []string{
		"HOME", claudeCode.DirVariable, codexCLI.DirVariable, agentkind.AnthropicKey, agentkind.OpenAIKey, agentkind.CodexKey,
		workorder.APIAnthropic.BaseURLVariable(), workorder.APIOpenAI.BaseURLVariable(),
	}
}

// Command is a program with its variables and its files.
type Command struct {
	Argv []string
	Env  []string // NAME=value
	// Files are to be written before the start, by their paths in the sandbox. Each function gets the present content, nil without a file,
	// and returns the new one.
	Files map[string]func(old []byte) ([]byte, error)
}

// Line returns the command that starts the agent's program. The program asks the user nothing before it works, except for a login if
// there is no key.
func Line(s Start) (Command, error) {
	switch h := s.Harness; h.Name {
	case workorder.HarnessClaudeCode:
		return claude(s), nil
	case workorder.HarnessCodex:
		return codex(s), nil
	case workorder.HarnessOpencode:
		return opencode(s)
	case workorder.HarnessCommand:
		return Command{
			Argv: append(slices.Clone(h.Command), h.Args...),
			Env:  []string{"SANDBOX_AGENT_BRIEFING_FILE=" + s.File, "SANDBOX_AGENT_PROMPT=" + s.Prompt},
		}, nil
	}
	return Command{}, fmt.Errorf("agent %q: use one of %v", s.Harness.Name, workorder.Harnesses())
}

// claude has no questions of its first start in a sandbox that is made for it.
func claude(s Start) Command {
	argv := model(append(slices.Clone(claudeCode.Terminal), "--append-system-prompt", s.Briefing), s.Harness)
	return Command{
		Argv: prompted(argv, s.Prompt), Env: append([]string{"IS_SANDBOX=1"}, claudeCode.Env...),
		Files: map[string]func([]byte) ([]byte, error){
			path.Join(cmp.Or(s.Env[claudeCode.DirVariable], s.Env["HOME"]), ".claude.json"): s.claudeAnswers,
		},
	}
}

// claudeAnswers answers the questions of Claude Code at its first start, at the first start in a directory, and about a key that it has
// not seen. Its other settings in the file stay.
func (s Start) claudeAnswers(old []byte) ([]byte, error) {
	var all map[string]any
	known := json.NewDecoder(bytes.NewReader(old))
	known.UseNumber() // of any size
	if err := known.Decode(&all); err != nil && len(old) > 0 {
		return old, nil // the program reports it
	}
	if all == nil {
		all = map[string]any{}
	}
	all["hasCompletedOnboarding"], all["bypassPermissionsModeAccepted"] = true, true
	project := object(object(all, "projects"), s.Workdir)
	project["hasTrustDialogAccepted"], project["hasCompletedProjectOnboarding"] = true, true
	if key := s.Env[agentkind.AnthropicKey]; key != "" {
		const kept = 20 // characters at the end of a key, by which it is known
		end := key[max(0, len(key)-kept):]
		answers := object(all, "customApiKeyResponses")
		approved, _ := answers["approved"].([]any)
		if !slices.Contains(approved, any(end)) {
			answers["approved"] = append(approved, end)
		}
	}
	return json.Marshal(all)
}

// object returns the object of that name in another, and creates it if it is missing.
func object(in map[string]any, name string) map[string]any {
	o, ok := in[name].(map[string]any)
	if !ok {
		o = map[string]any{}
		in[name] = o
	}
	return o
}

// codex configures a provider: only for such a one the program accepts a key instead of a login.
func codex(s Start) Command {
	argv := slices.Clone(codexCLI.Terminal)
	config := func(format string, args ...any) { argv = append(argv, "-c", fmt.Sprintf(format, args...)) }
	argv = append(argv, "--disable", "shell_snapshot") // a file with all variables, keys too
	if s.NoProviderTools {
		config(`web_search="disabled"`)
	}
	config(`projects={%s={trust_level="trusted"}}`, agentkind.TOMLString(s.Workdir))
	for _, name := range []string{agentkind.OpenAIKey, agentkind.CodexKey} {
		if s.Env[name] == "" || agentkind.CodexOwnProvider(s.Harness.Args) {
			continue
		}
		config(`model_providers.sandbox={name="OpenAI",base_url=%s,env_key=%s,wire_api="responses"}`,
			agentkind.TOMLString(s.server(workorder.APIOpenAI)), agentkind.TOMLString(name))
		config(`model_provider="sandbox"`)
		break
	}
	return Command{
		Argv: prompted(model(argv, s.Harness), s.Prompt),
		Files: map[string]func([]byte) ([]byte, error){
			path.Join(codexCLI.DirIn(func(name string) string { return s.Env[name] }), "AGENTS.md"): s.codexBriefing,
		},
	}
}

func (s Start) codexBriefing(old []byte) ([]byte, error) {
	if old != nil {
		return old, nil
	}
	return []byte("Read " + s.File + " first: it describes this sandbox.\n"), nil
}

// server returns the URL of an API, with its version.
func (s Start) server(api workorder.ModelAPI) string {
	return api.VersionedURL(s.Env[api.BaseURLVariable()])
}

// opencode gets the addresses of its models here, whatever the repository configures, and does not request a list of models.
func opencode(s Start) (Command, error) {
	providers := map[string]any{}
	h := s.Harness
	env := slices.Clone(opencodeCLI.Env)
	keys := map[workorder.ModelAPI]string{
		workorder.APIOpenAI:    cmp.Or(s.Env[agentkind.OpenAIKey], s.Env[agentkind.CodexKey]),
		workorder.APIAnthropic: s.Env[agentkind.AnthropicKey],
	}
	if key := keys[workorder.APIOpenAI]; s.Env[agentkind.OpenAIKey] != key {
		env = append(env, agentkind.OpenAIKey+"="+key)
	}
	var first, last string
	for _, api := range []workorder.ModelAPI{workorder.APIOpenAI, workorder.APIAnthropic} {
		if name := string(api); keys[api] != "" { // its providers have the names of the APIs
			providers[name] = map[string]any{"options": map[string]any{"baseURL": s.server(api)}}
			first, last = cmp.Or(first, name), name
		}
	}
	if h.Model != "" && !strings.Contains(h.Model, "/") && first != "" {
		if strings.HasPrefix(h.Model, "claude") {
			first = last
		}
		h.Model = first + "/" + h.Model
	}
	config, err := json.Marshal(map[string]any{
		"instructions": []string{s.File}, "permission": map[string]string{"edit": "allow", "bash": "allow", "webfetch": "allow"},
		"autoupdate": false, "share": "disabled", "provider": providers,
	})
	if err != nil {
		return Command{}, err
	}
	argv := model(slices.Clone(opencodeCLI.Terminal), h)
	if s.Prompt != "" {
		argv = append(argv, "--prompt="+s.Prompt) // it may begin with a hyphen
	}
	return Command{Argv: argv, Env: append(env, "OPENCODE_CONFIG_CONTENT="+string(config))}, nil
}

func model(argv []string, h workorder.Harness) []string {
	if h.Model != "" {
		argv = append(argv, "--model", h.Model)
	}
	return append(argv, h.Args...)
}

func prompted(argv []string, prompt string) []string {
	if prompt == "" {
		return argv
	}
	return append(argv, "--", prompt)
}
