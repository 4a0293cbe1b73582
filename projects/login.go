package projects

import (
	"maps"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/yamlkeys"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// logins has the variables that the login of a harness on the user's machine can stand for.
var logins = map[string][]string{
	workorder.HarnessClaudeCode: {"CLAUDE_CODE_OAUTH_TOKEN"},
	workorder.HarnessCodex:      {"OPENAI_API_KEY", "CODEX_API_KEY"},
	workorder.HarnessOpencode:   {"OPENAI_API_KEY", "ANTHROPIC_API_KEY"},
}

// Logins lists the harnesses whose login can be used.
func Logins() []string { return slices.Sorted(maps.Keys(logins)) }

// LoginKeys are the names of secrets that the login of a harness can be.
func LoginKeys(harness string) []string { return slices.Clone(logins[harness]) }

// LoginNames are the names of secrets that the login of a harness can be, of those that the project's harness takes.
func (p *Project) LoginNames() []string {
	takes := p.KeyNames()
	return slices.DeleteFunc(slices.Clone(logins[p.Harness.Name]), func(name string) bool { return !slices.Contains(takes, name) })
}

// checkLogin reports a login that cannot be used under this name.
func checkLogin(d *decoder, v *value, name, harness string) {
	names, known := logins[harness]
	switch {
	case !known:
		d.Report(v.Node, yamlkeys.CodeValue, "write login://"+strings.Join(Logins(), " or login://"),
			"secret %s: there is no login of %q", name, harness)
	case !slices.Contains(names, name):
		d.Report(v.Node, yamlkeys.CodeValue, "call it "+strings.Join(names, " or "), "secret %s: the login of %s is no such key", name, harness)
	}
}

// checkLoginUse makes sure that nothing but the gateway gets a login.
func checkLoginUse(d *decoder, secret field, use workorder.SecretUse) {
	for _, from := range placesOf(secret.Value) {
		if strings.HasPrefix(from.Text, SecretLogin+"://") && use != workorder.ForGateway {
			d.Report(secret.Key, codeConflict, "remove `for`: a login goes to the gateway alone", "secret %s is a login, and for %s",
				secret.Name, use)
		}
	}
}
