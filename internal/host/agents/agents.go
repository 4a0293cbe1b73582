// Package agents knows how agents' programs are started at a terminal: a person is there, and the sandbox protects.
package agents

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Start is what an agent begins with.
type Start struct {
	Harness workorder.Harness
	// Prompt is the first message to the agent; "" waits for the user.
	Prompt string
	// Briefing describes the sandbox to the agent; File is its path in the sandbox.
	Briefing, File string
	// Workdir is where it works in the sandbox.
	Workdir string
	// NoProviderTools says that requests with tools which the models' provider runs, as a search of the web, are refused.
	NoProviderTools bool
	// Env has those of Variables that the program will have.
	Env map[string]string
}

// The variables of keys that programs of agents look at.
const (
	anthropicKey = "ANTHROPIC_API_KEY"
	openaiKey    = "OPENAI_API_KEY"
	codexKey     = "CODEX_API_KEY"
)

// Variables are those of the sandbox that a Start tells of.
func Variables() []string {
	return []string{
		"HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", anthropicKey, openaiKey, codexKey, workorder.APIAnthropic.BaseURLVariable(),
		workorder.APIOpenAI.BaseURLVariable(),
	}
}

// Command is a program with its variables and its files.
type Command struct {
	Argv []string
	Env  []string // NAME=value
	// Files are by their paths in the sandbox. Each gets what is there, nil for nothing, and returns what is to be there when the program starts.
	Files map[string]func(old []byte) ([]byte, error)
}

// Line is how the agent's program is started: it asks nothing that a person would have to answer before it works, but for a login where there is no key.
func Line(s Start) (Command, error) {
	switch h := s.Harness; h.Name {
	case workorder.HarnessClaudeCode:
		return claude(s), nil
	case workorder.HarnessCodex:
		return codex(s), nil
	case workorder.HarnessOpencode:
		return opencode(s)
	case workorder.HarnessCommand:
		return Command{Argv: append(slices.Clone(h.Command), h.Args...), Env: []string{
			"SANDBOX_AGENT_BRIEFING_FILE=" + s.File,
			"SANDBOX_AGENT_PROMPT=" + s.Prompt,
		}}, nil
	}
	return Command{}, fmt.Errorf("agent %q: use one of %v", s.Harness.Name, workorder.Harnesses())
}

// Login is the file of the home folder in which a program keeps its login.
func Login(harness string) string {
	return map[string]string{
		workorder.HarnessClaudeCode: ".claude/.credentials.json", workorder.HarnessCodex: ".codex/auth.json",
		workorder.HarnessOpencode: ".local/share/opencode/auth.json",
	}[harness]
}

// claude has no questions of its first start in a sandbox that is made for it.
func claude(s Start) Command {
	argv := model([]string{"claude", "--dangerously-skip-permissions", "--append-system-prompt", s.Briefing}, s.Harness)
	return Command{
		Argv: prompted(argv, s.Prompt), Env: []string{"IS_SANDBOX=1", "DISABLE_AUTOUPDATER=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1"},
		Files: map[string]func([]byte) ([]byte, error){path.Join(cmp.Or(s.Env["CLAUDE_CONFIG_DIR"], s.Env["HOME"]),
			".claude.json"): s.claudeAnswers},
	}
}

// claudeAnswers answers what Claude Code asks at its first start, at the first in a folder, and of a key that it has not seen. What it keeps there itself stays.
func (s Start) claudeAnswers(old []byte) ([]byte, error) {
	var all map[string]any
	known := json.NewDecoder(bytes.NewReader(old))
	known.UseNumber() // of any size
	if err := known.Decode(&all); err != nil && len(old) > 0 {
		return old, nil // it says so itself
	}
	if all == nil {
		all = map[string]any{}
	}
	all["hasCompletedOnboarding"], all["bypassPermissionsModeAccepted"] = true, true
	project := object(object(all, "projects"), s.Workdir)
	project["hasTrustDialogAccepted"], project["hasCompletedProjectOnboarding"] = true, true
	if key := s.Env[anthropicKey]; key != "" {
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

// object is the object of that name in another, made where there is none.
func object(in map[string]any, name string) map[string]any {
	o, ok := in[name].(map[string]any)
	if !ok {
		o = map[string]any{}
		in[name] = o
	}
	return o
}

// codex takes a key in place of a login only of a provider that is configured.
func codex(s Start) Command {
	argv := []string{"codex", "--dangerously-bypass-approvals-and-sandbox"}
	config := func(format string, args ...any) { argv = append(argv, "-c", fmt.Sprintf(format, args...)) }
	config("analytics.enabled=false")
	// Without these it asks servers of its maker, and waits for ever for one that does not answer.
	argv = append(argv, "--disable", "plugins", "--disable", "apps")
	argv = append(argv, "--disable", "shell_snapshot") // a file with all variables, keys too
	if s.NoProviderTools {
		config(`web_search="disabled"`)
	}
	config(`projects={%s={trust_level="trusted"}}`, quoted(s.Workdir))
	for _, name := range []string{openaiKey, codexKey} {
		if s.Env[name] == "" || slices.ContainsFunc(s.Harness.Args, ownProvider) {
			continue
		}
		config(`model_providers.sandbox={name="OpenAI",base_url=%s,env_key=%s,wire_api="responses"}`, quoted(s.server(workorder.APIOpenAI)),
			quoted(name))
		config(`model_provider="sandbox"`)
		break
	}
	return Command{
		Argv: prompted(model(argv, s.Harness), s.Prompt),
		Files: map[string]func([]byte) ([]byte, error){path.Join(cmp.Or(s.Env["CODEX_HOME"], path.Join(s.Env["HOME"], ".codex")),
			"AGENTS.md"): s.codexBriefing},
	}
}

func (s Start) codexBriefing(old []byte) ([]byte, error) {
	if old != nil {
		return old, nil
	}
	return []byte("Read " + s.File + " first: it describes this sandbox.\n"), nil
}

// ownProvider reports whether an argument of codex names another provider than OpenAI.
func ownProvider(arg string) bool {
	return strings.Contains(arg, "model_provider") || arg == "--oss" || arg == "-p" || strings.HasPrefix(arg, "--profile")
}

// quoted is a string of TOML.
func quoted(s string) string {
	b, _ := json.Marshal(s) // a string always encodes, and as TOML reads it, too
	return string(b)
}

// server is the URL of an API, with its version.
func (s Start) server(api workorder.ModelAPI) string {
	base := cmp.Or(s.Env[api.BaseURLVariable()], api.DefaultBaseURL())
	return strings.TrimSuffix(strings.TrimRight(base, "/"), "/v1") + "/v1"
}

// opencode gets the addresses of its models, whatever the repository configures, and asks no server for a list.
func opencode(s Start) (Command, error) {
	providers := map[string]any{}
	h := s.Harness
	env := []string{"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1"}
	keys := map[workorder.ModelAPI]string{
		workorder.APIOpenAI:    cmp.Or(s.Env[openaiKey], s.Env[codexKey]),
		workorder.APIAnthropic: s.Env[anthropicKey],
	}
	if key := keys[workorder.APIOpenAI]; s.Env[openaiKey] != key {
		env = append(env, openaiKey+"="+key)
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
	argv := model([]string{"opencode"}, h)
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
