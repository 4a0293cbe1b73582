package app

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/agentkind"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// agentOptions configure the start of an agent.
type agentOptions struct {
	Harness workorder.Harness
	// Prompt is the first message to the agent; "" waits for the user.
	Prompt string
	// Briefing describes the sandbox to the agent; File is its path in the sandbox.
	Briefing, File string
	Workdir        string
	// NoProviderTools: requests with tools that the models' provider runs, such as a web search, are refused.
	NoProviderTools bool
	Permissions     projects.Permissions
	// Env has the values of Variables.
	Env map[string]string
}

var (
	claudeCode  = agentkind.Of(agentkind.ClaudeCode)
	codexCLI    = agentkind.Of(agentkind.Codex)
	opencodeCLI = agentkind.Of(agentkind.Opencode)
)

// agentEnvNames returns the variables of the sandbox that agentOptions.Env needs.
func agentEnvNames() []string {
	return []string{
		"HOME", claudeCode.DirVariable, codexCLI.DirVariable, agentkind.AnthropicKey, agentkind.OpenAIKey, agentkind.CodexKey,
		workorder.APIAnthropic.BaseURLVariable(), workorder.APIOpenAI.BaseURLVariable(),
	}
}

// agentInvocation is an agent's command with its variables and files.
type agentInvocation struct {
	Argv []string
	Env  []string // NAME=value
	// Files are to be written before the start, by their paths in the sandbox. Each function gets the present content,
	// nil without a file, and returns the new one.
	Files map[string]func(old []byte) ([]byte, error)
}

// agentCommand returns the command that starts the agent's program. The program asks the user nothing before it
// works, except for a login if there is no key.
func agentCommand(o agentOptions) (agentInvocation, error) {
	switch h := o.Harness; h.Name {
	case workorder.HarnessClaudeCode:
		return claudeCommand(o), nil
	case workorder.HarnessCodex:
		return codexCommand(o), nil
	case workorder.HarnessOpencode:
		return opencodeCommand(o)
	case workorder.HarnessCommand:
		return agentInvocation{
			Argv: append(slices.Clone(h.Command), h.Args...),
			Env:  []string{"SANDBOX_AGENT_BRIEFING_FILE=" + o.File, "SANDBOX_AGENT_PROMPT=" + o.Prompt},
		}, nil
	}
	return agentInvocation{}, fmt.Errorf("agent %q: use one of %v", o.Harness.Name, workorder.Harnesses())
}

// claude has no questions of its first start in a sandbox that is made for it.
func claudeCommand(o agentOptions) agentInvocation {
	argv := model(append(o.permitted(claudeCode), "--append-system-prompt", o.Briefing), o.Harness)
	return agentInvocation{
		Argv: prompted(argv, o.Prompt), Env: append([]string{"IS_SANDBOX=1"}, claudeCode.Env...),
		Files: map[string]func([]byte) ([]byte, error){
			path.Join(cmp.Or(o.Env[claudeCode.DirVariable], o.Env["HOME"]), ".claude.json"): o.claudeAnswers,
		},
	}
}

// claudeAnswers answers the questions of Claude Code at its first start, at the first start in a directory, and about a key that it has
// not seen. Its other settings in the file stay.
func (o agentOptions) claudeAnswers(old []byte) ([]byte, error) {
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
	project := object(object(all, "projects"), o.Workdir)
	project["hasTrustDialogAccepted"], project["hasCompletedProjectOnboarding"] = true, true
	if key := o.Env[agentkind.AnthropicKey]; key != "" {
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
func codexCommand(o agentOptions) agentInvocation {
	argv := o.permitted(codexCLI)
	config := func(format string, args ...any) { argv = append(argv, "-c", fmt.Sprintf(format, args...)) }
	argv = append(argv, "--disable", "shell_snapshot") // a file with all variables, keys too
	if o.NoProviderTools {
		config(`web_search="disabled"`)
	}
	config(`projects={%s={trust_level="trusted"}}`, agentkind.TOMLString(o.Workdir))
	for _, name := range []string{agentkind.OpenAIKey, agentkind.CodexKey} {
		if o.Env[name] == "" || agentkind.CodexOwnProvider(o.Harness.Args) {
			continue
		}
		config(`model_providers.sandbox={name="OpenAI",base_url=%s,env_key=%s,wire_api="responses"}`,
			agentkind.TOMLString(o.server(workorder.APIOpenAI)), agentkind.TOMLString(name))
		config(`model_provider="sandbox"`)
		break
	}
	dir := codexCLI.DirIn(func(name string) string { return o.Env[name] })
	return agentInvocation{
		Argv: prompted(model(argv, o.Harness), o.Prompt),
		Files: map[string]func([]byte) ([]byte, error){
			path.Join(dir, "AGENTS.md"):                    o.codexBriefing,
			path.Join(dir, "rules", "sandbox-agent.rules"): o.codexRules,
		},
	}
}

func (o agentOptions) codexBriefing(old []byte) ([]byte, error) {
	if old != nil {
		return old, nil
	}
	return []byte("Read " + o.File + " first: it describes this sandbox.\n"), nil
}

// server returns the URL of an API, with its version.
func (o agentOptions) server(api workorder.ModelAPI) string {
	return api.VersionedURL(o.Env[api.BaseURLVariable()])
}

// opencode gets the addresses of its models here, whatever the repository configures, and does not request a list of models.
func opencodeCommand(o agentOptions) (agentInvocation, error) {
	providers := map[string]any{}
	h := o.Harness
	env := slices.Clone(opencodeCLI.Env)
	keys := map[workorder.ModelAPI]string{
		workorder.APIOpenAI:    cmp.Or(o.Env[agentkind.OpenAIKey], o.Env[agentkind.CodexKey]),
		workorder.APIAnthropic: o.Env[agentkind.AnthropicKey],
	}
	if key := keys[workorder.APIOpenAI]; o.Env[agentkind.OpenAIKey] != key {
		env = append(env, agentkind.OpenAIKey+"="+key)
	}
	var first, last string
	for _, api := range []workorder.ModelAPI{workorder.APIOpenAI, workorder.APIAnthropic} {
		if name := string(api); keys[api] != "" { // its providers have the names of the APIs
			providers[name] = map[string]any{"options": map[string]any{"baseURL": o.server(api)}}
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
		"instructions": []string{o.File}, "permission": o.opencodePermissions(),
		"autoupdate": false, "share": "disabled", "provider": providers,
	})
	if err != nil {
		return agentInvocation{}, err
	}
	argv := model(slices.Clone(opencodeCLI.Terminal), h)
	if o.Prompt != "" {
		argv = append(argv, "--prompt="+o.Prompt) // it may begin with a hyphen
	}
	return agentInvocation{Argv: argv, Env: append(env, "OPENCODE_CONFIG_CONTENT="+string(config))}, nil
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
