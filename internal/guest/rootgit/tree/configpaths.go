package tree

import (
	"context"
	"path"
	"strings"
)

// configPaths are the files that can make agents run programs, or ask for fewer permissions. Each counts in
// every directory of the repository, because an agent may be started in any. "/**" means everything below.
// Source: the agents' documentation as of 2026-11; files of other agents keep the branch's version.
var configPaths = []string{
	".claude/settings.json",       // Claude Code: hooks, permissions, environment, plugins, status line
	".claude/settings.local.json", // the same, with precedence
	".claude/hooks/**",            // usual place of its hooks
	".claude/agents/**",           // sub-agents: their front matter names hooks, tools and MCP servers
	".claude/commands/**",         // commands: lines with ! run programs
	".claude/skills/**",           // skills: front matter with hooks, and scripts
	".claude/plugins/**",          // plugins: hooks and MCP servers
	".mcp.json",                   // Claude Code, Copilot and others: MCP servers, which are programs
	"opencode.json",               // opencode: MCP servers, plugins, permissions
	"opencode.jsonc",              // the same
	".opencode/**",                // its plugins, tools, agents and commands
	".codex/**",                   // Codex: config.toml with MCP servers, notify and sandbox; hooks, rules
	".gemini/settings.json",       // Gemini CLI: hooks, MCP servers, tool discovery commands
	".gemini/.env",                // its environment, the endpoint of its model included
	".gemini/hooks/**",            // usual place of its hooks
	".gemini/extensions/**",       // extensions bring MCP servers and hooks
	".gemini/commands/**",         // commands: !{...} runs programs
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

// maxLinks bounds how many links of the base lead from one such file to the next.
const maxLinks = 8

// ConfigMatcher matches the paths of agents' settings: those of configPaths, and the targets of the base's links at such paths.
type ConfigMatcher map[string]string

// Has reports whether a path of the repository is a setting of agents.
func (g ConfigMatcher) Has(name string) bool {
	if configPath(name) {
		return true
	}
	for target, link := range g {
		if rest, ok := strings.CutPrefix(name, target); ok && (rest == "" || rest[0] == '/') && configPath(link+rest) {
			return true
		}
	}
	return false
}

// configPath reports whether a path is one of configPaths, is below one, or is a file where one of them needs
// a directory.
func configPath(name string) bool {
	for rest, more := name, true; more; _, rest, more = strings.Cut(rest, "/") {
		for _, p := range configPaths {
			p = strings.TrimSuffix(p, "/**")
			if rest == p || strings.HasPrefix(rest, p+"/") || strings.HasPrefix(p, rest+"/") {
				return true
			}
		}
	}
	return false
}

// NewConfigMatcher returns the guard for a base commit with the entries base, by path.
func (st *AgentConfig) NewConfigMatcher(ctx context.Context, base map[string]string) (ConfigMatcher, error) {
	g := ConfigMatcher{}
	done := map[string]bool{}
	for range maxLinks {
		more := false
		for name, entry := range base {
			id, link := strings.CutPrefix(entry, "120000 ")
			if !link || done[name] || !g.Has(name) {
				continue
			}
			done[name] = true
			target, err := st.Repos.Mirror().Output(ctx, "cat-file", "blob", id)
			if err != nil {
				return nil, err
			}
			to := path.Join(path.Dir(name), string(target))
			if path.IsAbs(string(target)) || to == "." || to == ".." || strings.HasPrefix(to, "../") {
				continue
			}
			// The target counts as the setting that the links start from.
			as := name
			if from, ok := g[name]; ok {
				as = from
			}
			g[to], more = as, true
		}
		if !more {
			break
		}
	}
	return g, nil
}
