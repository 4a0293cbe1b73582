package app

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/agentkind"
	"github.com/sandbox-agent/sandbox-agent/projects"
)

// permitted returns the first arguments of an agent's program at a terminal, with the permissions that it reads from arguments.
func (o agentOptions) permitted(a agentkind.Agent) []string {
	argv := slices.Clone(a.Terminal)
	if !o.Permissions.Asks() {
		return argv
	}
	switch a.Name {
	case agentkind.ClaudeCode:
		// Settings of the command line come before those of the user and the project; deny rules of all files add up.
		settings, _ := json.Marshal(map[string]any{"permissions": map[string]any{ // it cannot fail for these types
			"allow": append([]string{}, o.Permissions.Allow...), "deny": append([]string{}, o.Permissions.Deny...),
			"defaultMode": "default", "disableBypassPermissionsMode": "disable",
		}})
		return append(without(argv, "--dangerously-skip-permissions"), "--settings", string(settings))
	case agentkind.Codex:
		// The sandbox isolates; codex only asks.
		return append(without(argv, "--dangerously-bypass-approvals-and-sandbox"), "--ask-for-approval", "untrusted",
			"--sandbox", "danger-full-access")
	}
	return argv
}

func without(argv []string, arg string) []string {
	return slices.DeleteFunc(argv, func(a string) bool { return a == arg })
}

// codexRules returns the rules file of codex. Without permissions there is none, or an empty one instead of an earlier one.
func (o agentOptions) codexRules(old []byte) ([]byte, error) {
	var b strings.Builder
	if !o.Permissions.Asks() && old == nil {
		return nil, nil
	}
	for _, list := range []struct {
		decision string
		rules    []string
	}{{"allow", o.Permissions.Allow}, {"forbidden", o.Permissions.Deny}} {
		for _, rule := range list.rules {
			words, ok := projects.CommandPrefix(rule)
			if !ok {
				continue // checkAgent reports it
			}
			for i, w := range words {
				words[i] = agentkind.TOMLString(w) // the same as a string of Starlark
			}
			b.WriteString("prefix_rule(pattern = [" + strings.Join(words, ", ") + "], decision = \"" + list.decision + "\")\n")
		}
	}
	return []byte(b.String()), nil
}

// opencodePermissions returns the permissions of opencode's configuration. The last rule that matches a command counts.
func (o agentOptions) opencodePermissions() map[string]any {
	names := map[string]string{
		"Bash": "bash", "Edit": "edit", "Write": "edit", "Read": "read", "WebFetch": "webfetch", "WebSearch": "websearch",
	}
	if !o.Permissions.Asks() {
		return map[string]any{"edit": "allow", "bash": "allow", "webfetch": "allow"}
	}
	all := map[string]any{"edit": "ask", "bash": "ask", "webfetch": "ask", "websearch": "ask", "read": "allow"}
	commands := []string{}
	for _, list := range []struct {
		decision string
		rules    []string
	}{{"allow", o.Permissions.Allow}, {"deny", o.Permissions.Deny}} {
		for _, rule := range list.rules {
			if words, ok := projects.CommandPrefix(rule); ok {
				pattern, _ := json.Marshal(strings.Join(words, " ") + "*")
				commands = append(commands, string(pattern)+":\""+list.decision+"\"")
				continue
			}
			all[names[rule]] = list.decision
		}
	}
	if bash, _ := all["bash"].(string); len(commands) > 0 && bash != "deny" {
		all["bash"] = json.RawMessage(`{"*":"` + bash + `",` + strings.Join(commands, ",") + "}") // its order matters
	}
	return all
}
