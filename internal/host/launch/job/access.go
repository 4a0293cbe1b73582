package job

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Line is a line of a plan.
type Line struct{ Name, Text string }

// Access lists what the order lets the agent reach, which servers the gateway fronts, and
// who gets which secret. It has no values of secrets.
func Access(o *workorder.Order) []Line {
	lines := []Line{{"network", networkText(&o.Network)}}
	for _, r := range o.Gateway.Routes {
		text := fmt.Sprintf("%s at %s", r.API, withoutPassword(r.BaseURL))
		if len(r.Keys) > 0 {
			text += ", with " + strings.Join(r.Keys, " ")
		} else {
			text += ", without a key"
		}
		lines = append(lines, Line{"gateway", text})
	}
	if n := o.Gateway.RequestsPerMinute; n > 0 {
		lines = append(lines, Line{"gateway", fmt.Sprintf("at most %d requests a minute", n)})
	}
	for _, use := range workorder.SecretUses() {
		var names []string
		for _, n := range o.SecretNames {
			if o.SecretUse(n) == use {
				names = append(names, n)
			}
		}
		if slices.Sort(names); len(names) > 0 {
			lines = append(lines, Line{"secrets", usersOf(use) + ": " + strings.Join(names, " ")})
		}
	}
	return lines
}

// usersOf names the consumers of a secret.
func usersOf(u workorder.SecretUse) string {
	switch u {
	case workorder.ForCommands:
		return "setup, agent and validate"
	case workorder.ForGateway:
		return "the gateway only"
	}
	return string(u) + " only"
}

func networkText(n *workorder.Network) string {
	var s string
	switch n.Mode {
	case workorder.NetworkFull:
		s = "full: everything but metadata services of clouds"
	case workorder.NetworkNone:
		s = "none: only the sandbox's services, git and the model gateway"
	default:
		s = string(n.Mode) + ": " + cmp.Or(strings.Join(n.Allow, " "), "nothing but the sandbox's services, git and the model gateway")
		if n.Learn {
			s += " (learning: what has a name is reported, not refused)"
		}
	}
	if len(n.DNS) > 0 {
		s += "; names from " + strings.Join(n.DNS, " ")
	}
	return s
}

// withoutPassword is a URL without its password, fit to be shown.
func withoutPassword(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return "?" // orders were checked before
	}
	return u.Redacted()
}
