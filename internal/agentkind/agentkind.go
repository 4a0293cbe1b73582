// Package agentkind is the table of agents' command line programs: names, start, configuration, logins and variables.
package agentkind

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Names of agents, as orders and project files have them.
const (
	ClaudeCode = "claude-code"
	Codex      = "codex"
	Opencode   = "opencode"
	Command    = "command" // any program
)

// Variables of keys and logins.
const (
	AnthropicKey   = "ANTHROPIC_API_KEY"
	AnthropicToken = "ANTHROPIC_AUTH_TOKEN"
	ClaudeToken    = "CLAUDE_CODE_OAUTH_TOKEN" // of a subscription
	OpenAIKey      = "OPENAI_API_KEY"
	CodexKey       = "CODEX_API_KEY"
)

// Model APIs, as orders and project files have them.
const (
	Anthropic = "anthropic"
	OpenAI    = "openai"
)

// Agent is one program. All lists are read-only.
type Agent struct {
	Name string
	// APIs are the model APIs that it uses by itself.
	APIs []string
	// Dir is the state directory, relative to HOME. If DirVariable is set, it is DirBelow in that directory.
	Dir, DirVariable, DirBelow string
	// LoginFile is the file in Dir with its login, which can be the value of each of LoginKeys.
	LoginFile string
	LoginKeys []string
	// Clouds are variables that select another provider, with that provider's own keys.
	Clouds []string
	// Terminal and Task are its first arguments at a terminal and in a task. The sandbox isolates: no user is asked.
	Terminal, Task []string
	// Env has variables for both: NAME=value.
	Env []string
	// Version prints the version as its first word.
	Version []string
}

var agents = []Agent{
	{
		Name: ClaudeCode, APIs: []string{Anthropic},
		Dir: ".claude", DirVariable: "CLAUDE_CONFIG_DIR", LoginFile: ".credentials.json", LoginKeys: []string{ClaudeToken},
		Clouds:   []string{"CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY"},
		Terminal: []string{"claude", "--dangerously-skip-permissions"},
		Task:     []string{"claude", "-p", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions"},
		Env:      []string{"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1"},
		Version:  []string{"claude", "--version"}, // "2.1.5 (Claude Code)"
	},
	{
		Name: Codex, APIs: []string{OpenAI},
		Dir: ".codex", DirVariable: "CODEX_HOME", LoginFile: "auth.json", LoginKeys: []string{OpenAIKey, CodexKey},
		// Without the disabled ones it contacts servers of its vendor, and waits indefinitely for one that does not answer.
		// Its own sandbox needs user namespaces and prevents the agent from committing.
		Terminal: []string{
			"codex", "--dangerously-bypass-approvals-and-sandbox", "-c", "analytics.enabled=false", "--disable", "plugins", "--disable", "apps",
		},
		Task: []string{
			"codex", "exec", "--json", "--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check",
			"-c", "analytics.enabled=false", "--disable", "plugins", "--disable", "apps", "--disable", "unbounded_connection_retries",
		},
		Version: []string{"sh", "-c", `v=$(codex --version) && echo "${v##* }"`}, // "codex-cli 0.169.0"
	},
	{
		Name: Opencode, APIs: []string{OpenAI, Anthropic},
		Dir: ".local/share/opencode", DirVariable: "XDG_DATA_HOME", DirBelow: "opencode",
		LoginFile: "auth.json", LoginKeys: []string{OpenAIKey, AnthropicKey},
		Terminal: []string{"opencode"},
		Task:     []string{"opencode", "run", "--format", "json", "--auto"},
		// The list of models is built in; an updated version would not be the tested one.
		Env:     []string{"OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1"},
		Version: []string{"opencode", "--version"},
	},
	{Name: Command},
}

// Names returns the names of all agents, in the order of lists for users.
func Names() (names []string) {
	for _, a := range agents {
		names = append(names, a.Name)
	}
	return names
}

// Of returns the agent of this name; an unknown one has no name.
func Of(name string) Agent {
	if i := slices.IndexFunc(agents, func(a Agent) bool { return a.Name == name }); i >= 0 {
		return agents[i]
	}
	return Agent{}
}

// DirIn returns the path of Dir by the environment; "" for an agent without one, and without HOME.
func (a Agent) DirIn(getenv func(string) string) string {
	if a.Dir == "" {
		return ""
	}
	if dir := getenv(a.DirVariable); dir != "" {
		return path.Join(dir, a.DirBelow)
	}
	if home := getenv("HOME"); home != "" {
		return path.Join(home, a.Dir)
	}
	return ""
}

// Program returns the name of its program.
func (a Agent) Program() string { return a.Terminal[0] }

// CodexOwnProvider reports whether arguments of Codex select a provider other than OpenAI.
func CodexOwnProvider(args []string) bool {
	return slices.ContainsFunc(args, func(arg string) bool {
		return strings.Contains(arg, "model_provider") || arg == "--oss" || arg == "-p" || strings.HasPrefix(arg, "--profile")
	})
}

// TOMLString returns s as a basic string of TOML.
func TOMLString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// Settings are the files in any directory of a repository that can make agents run programs, or ask for fewer
// permissions. "/**" means everything below. Files of other agents keep the branch's version.
var Settings = []string{
	".claude/settings.json",       // Claude Code: hooks, permissions, environment, plugins, status line
	".claude/settings.local.json", // the same, with precedence
	".claude/hooks/**",            // usual place of its hooks
	".mcp.json",                   // Claude Code, Copilot and others: MCP servers, which are programs
	"opencode.json",               // opencode: MCP servers, plugins, permissions
	"opencode.jsonc",              // the same
	".opencode/**",                // its plugins, tools, agents and commands
	".codex/**",                   // Codex: config.toml with MCP servers, notify and sandbox; hooks, rules
	".gemini/settings.json",       // Gemini CLI: hooks, MCP servers, tool discovery commands
	".gemini/.env",                // its environment, the endpoint of its model included
	".gemini/hooks/**",            // usual place of its hooks
	".gemini/extensions/**",       // extensions bring MCP servers and hooks
	".qwen/**",                    // Qwen Code: all of these under another name
	".cursor/mcp.json",            // Cursor: MCP servers
	".cursor/hooks.json",          // Cursor: hooks
	".cursor/hooks/**",            // usual place of its hooks
	".cursor/cli.json",            // Cursor: permissions
	".cursor/environment.json",    // Cursor: commands that run at the start
	".vscode/mcp.json",            // Copilot in VS Code: MCP servers
	".github/mcp.json",            // Copilot: MCP servers
	".github/hooks/**",            // Copilot: hooks
	".github/copilot/**",          // Copilot: settings
	".aider.conf.yml",             // Aider: commands for lint and test, and what is run without asking
	".amp/settings.json",          // Amp: MCP servers, permissions
	".continue/**",                // Continue: MCP servers, models and their endpoints
	".roo/mcp.json",               // Roo Code: MCP servers
	".kiro/**",                    // Kiro: hooks, MCP servers
}

// Prompts are instructions for agents that can also run programs, in the form of Settings.
var Prompts = []string{
	".claude/agents/**",   // sub-agents: their front matter names hooks, tools and MCP servers
	".claude/commands/**", // commands: lines with ! run programs
	".claude/skills/**",   // skills: front matter with hooks, and scripts
	".claude/plugins/**",  // plugins: hooks and MCP servers
	".gemini/commands/**", // commands: !{...} runs programs
}
