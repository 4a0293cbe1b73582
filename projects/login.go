package projects

import (
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/agentkind"
	"github.com/sandbox-agent/sandbox-agent/internal/yamlkeys"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Logins returns the harnesses whose login can be used.
func Logins() (names []string) {
	for _, name := range agentkind.Names() {
		if len(agentkind.Of(name).LoginKeys) > 0 {
			names = append(names, name)
		}
	}
	return names
}

// LoginNames returns the names of secrets that the project's harness accepts from a login.
func (p *Project) LoginNames() []string {
	takes, keys := p.KeyNames(), slices.Clone(agentkind.Of(p.Harness.Name).LoginKeys)
	return slices.DeleteFunc(keys, func(name string) bool { return !slices.Contains(takes, name) })
}

// checkLogin reports a login that cannot be used under this name.
func checkLogin(d *decoder, v *value, name, harness string) {
	names := agentkind.Of(harness).LoginKeys
	switch {
	case len(names) == 0:
		d.Report(v.Node, yamlkeys.CodeValue, "write login://"+strings.Join(Logins(), " or login://"),
			"secret %s: there is no login of %q", name, harness)
	case !slices.Contains(names, name):
		d.Report(v.Node, yamlkeys.CodeValue, "call it "+strings.Join(names, " or "), "secret %s: the login of %s is no such key", name, harness)
	}
}

// checkLoginUse checks that only the gateway gets a login.
func checkLoginUse(d *decoder, secret field, use workorder.SecretUse) {
	for _, from := range placesOf(secret.Value) {
		if strings.HasPrefix(from.Text, SecretLogin+"://") && use != workorder.SecretForGateway {
			d.Report(secret.Key, codeConflict, "remove `for`: a login goes to the gateway alone", "secret %s is a login, and for %s",
				secret.Name, use)
		}
	}
}
