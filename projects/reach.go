package projects

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/yamlkeys"

	"golang.org/x/net/idna"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Rules of the network and servers of models.

// AllowRule returns a canonical rule of network.allow, with an internationalised name in its xn-- form.
func AllowRule(s string) (string, error) {
	if strings.Contains(s, "://") {
		return "", errors.New("give a host name, not a URL")
	}
	ascii, err := asciiRule(s)
	if err != nil {
		return "", err
	}
	r, err := workorder.ParseAllowRule(ascii)
	if err != nil {
		// The caller names the rule.
		return "", errors.New(strings.TrimPrefix(err.Error(), fmt.Sprintf("allow rule %q: ", ascii)))
	}
	return r.String(), nil
}

func asciiRule(s string) (string, error) {
	if !strings.ContainsFunc(s, func(r rune) bool { return r > 0x7f }) {
		return s, nil
	}
	place, inside := strings.CutSuffix(s, "@private")
	host, port, ported := strings.Cut(place, ":")
	host, sub := strings.CutPrefix(host, "*.")
	if strings.ContainsAny(place, "/@?#*") && !sub {
		return s, nil // the error is about the whole
	}
	host, err := idna.Lookup.ToASCII(host)
	if err != nil {
		return "", errors.New("this is no internationalised host name")
	}
	if sub {
		host = "*." + host
	}
	if ported {
		host += ":" + port
	}
	if inside {
		host += "@private"
	}
	return host, nil
}

func checkAllow(d *decoder, v *value) {
	if _, err := AllowRule(v.Text); err != nil {
		d.Report(v.Node, yamlkeys.CodeValue, allowHint(v.Text), "%s %q: %s", v.Path, v.Text, err)
	}
}

// allowHint suggests a correction of a rule.
func allowHint(s string) string {
	if u, err := url.Parse(s); err == nil && u.Host != "" {
		if rule, err := AllowRule(u.Host); err == nil {
			return fmt.Sprintf("write %q", rule)
		}
	}
	if a, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil && a.Zone() == "" {
		return "remove it"
	}
	return "write example.com, *.example.com, example.com:8443 or 192.0.2.7:5432"
}

func checkAddress(d *decoder, v *value) {
	if a, err := netip.ParseAddr(v.Text); err != nil || a.Zone() != "" {
		d.Report(v.Node, yamlkeys.CodeValue, "write an address such as 192.0.2.53", "%s %q is not an address", v.Path, v.Text)
	}
}

func checkNetwork(d *decoder, v *value) {
	mode := v.Get("mode").Str()
	if mode == "" || mode == string(workorder.NetworkRestricted) {
		return
	}
	what := map[string]string{
		string(workorder.NetworkFull): "mode full already allows everything", string(workorder.NetworkNone): "mode none allows nothing",
	}[mode]
	if allow := v.Get("allow"); allow != nil && len(allow.Items) > 0 {
		d.Report(allow.Node, codeConflict, "remove allow, or write `mode: restricted`: "+what, "network.allow has no meaning with mode %s", mode)
	}
	if learn := v.Get("learn"); learn.Bool() {
		d.Report(learn.Node, codeConflict, "remove learn, or write `mode: restricted`: "+what, "network.learn has no meaning with mode %s", mode)
	}
}

func checkBaseURL(d *decoder, v *value) {
	if err := workorder.CheckBaseURL(v.Text); err != nil {
		reportBaseURL(d, v, err)
	}
}

// reportBaseURL never prints what may be a credential.
func reportBaseURL(d *decoder, v *value, err error) {
	hint := "compare it with " + workorder.APIAnthropic.DefaultBaseURL()
	if u, perr := url.Parse(v.Text); perr == nil && u.User != nil {
		if p, ok := u.User.Password(); ok {
			d.Hide(p)
		}
		d.Hide(u.User.Username())
		hint = "remove everything before the @; give the key under `secrets:`"
	}
	d.Report(v.Node, yamlkeys.CodeValue, hint, "%s: %s", v.Path, err)
}

func checkKeyName(d *decoder, v *value) {
	if !workorder.ValidEnvName(v.Text) {
		// The value may be the key itself: do not print it.
		d.Hide(v.Text)
		d.Report(v.Node, yamlkeys.CodeSecret, "write the name that it has under `secrets:`", "%s is not the name of a secret", v.Path)
	}
}

// checkAccess reports contradictions between secrets, env and gateway.
func checkAccess(d *decoder, root *value) {
	secrets := root.Get("secrets")
	named := map[string]bool{}
	for _, a := range workorder.ModelAPIs() {
		for _, k := range root.Get("gateway").Get(string(a)).Get("keys").Elements() {
			named[k.Text] = true
			s := secrets.Get(k.Text)
			switch use := s.Get("for"); {
			case !workorder.ValidEnvName(k.Text): // already reported
			case s == nil:
				d.Report(k.Node, yamlkeys.CodeMissing, fmt.Sprintf("add it under secrets: `%s: env://%s`", k.Text, k.Text),
					"%s names %s, which is no secret of this project", k.Path, k.Text)
			case use != nil && use.Text != string(workorder.SecretForGateway):
				d.Report(use.Node, codeConflict, "remove it here, or from "+k.Path, "secret %s is for %s, and a key of the gateway (line %d)",
					k.Text, use.Text, k.Node.Line)
			}
		}
	}
	for _, s := range secrets.Entries() {
		checkLoginUse(d, s, secretUse(s.Name, s.Value, named))
		use := s.Get("for")
		if use.Str() == string(workorder.SecretForGateway) && !named[s.Name] && workorder.ModelAPIOfKey(s.Name) == "" {
			d.Report(use.Node, codeConflict, fmt.Sprintf("name it where it belongs: `gateway: {anthropic: {keys: [%s]}}`, or openai", s.Name),
				"secret %s is for the gateway, and no route uses it", s.Name)
		}
	}
	for _, a := range workorder.ModelAPIs() {
		checkRoute(d, root, a, named)
	}
}

// checkRoute reports a server that an API's route cannot have.
func checkRoute(d *decoder, root *value, a workorder.ModelAPI, named map[string]bool) {
	if root.Get("gateway").Get(string(a)).Get("base_url") != nil {
		return
	}
	_, routed := routeOf(root, a, named)
	if !routed {
		return
	}
	if e := either(root, "env").Get(a.BaseURLVariable()); e != nil {
		if err := workorder.CheckBaseURL(e.Text); err != nil {
			reportBaseURL(d, e, err)
		}
	}
	for _, s := range root.Get("secrets").Entries() {
		if s.Name == a.BaseURLVariable() {
			d.Report(s.Key, codeConflict, fmt.Sprintf("write it as `gateway: {%s: {base_url: ...}}`: the key alone is the secret", a),
				"%s is a secret, and the gateway has to know its server", s.Name)
		}
	}
}

// routeOf returns the route of an API, if it has a key for the gateway or a server of its own. A server in env counts
// unless the project gives the agent itself a key of that API, which then needs no gateway.
func routeOf(root *value, a workorder.ModelAPI, named map[string]bool) (workorder.ModelRoute, bool) {
	own := root.Get("gateway").Get(string(a))
	r := workorder.ModelRoute{API: a, BaseURL: own.Get("base_url").Str(), Keys: own.Get("keys").Strs()}
	routed, held := r.BaseURL != "", false
	for _, k := range a.KeyVariables() {
		if either(root, "env").Get(k) != nil {
			held = true
		}
		s := root.Get("secrets").Get(k)
		switch {
		case s == nil || named[k]:
		case secretUse(k, s, named) == workorder.SecretForGateway:
			r.Keys = append(r.Keys, k)
		default:
			held = true
		}
	}
	slices.Sort(r.Keys)
	r.Keys = slices.Compact(r.Keys)
	env := strings.ReplaceAll(either(root, "env").Get(a.BaseURLVariable()).Str(), "$$", "$")
	routed = routed || len(r.Keys) > 0 || env != "" && !held
	switch {
	case r.BaseURL != "":
	case env != "":
		r.BaseURL = env
	default:
		r.BaseURL = a.DefaultBaseURL()
	}
	return r, routed
}

func secretUse(name string, s *value, named map[string]bool) workorder.SecretUse {
	switch use := s.Get("for"); {
	case use != nil:
		return workorder.SecretUse(use.Text)
	case named[name], workorder.ModelAPIOfKey(name) != "":
		return workorder.SecretForGateway
	}
	return workorder.SecretForCommands
}

// keysNamed returns the secrets that the file declares as keys of an API.
func keysNamed(root *value) map[string]bool {
	named := map[string]bool{}
	for _, a := range workorder.ModelAPIs() {
		for _, k := range root.Get("gateway").Get(string(a)).Get("keys").Strs() {
			named[k] = true
		}
	}
	return named
}

func bindNetwork(v *value) workorder.NetworkPolicy {
	n := workorder.NetworkPolicy{Mode: workorder.NetworkMode(v.Str()), Learn: v.Get("learn").Bool(), DNS: v.Get("dns").Strs()}
	if m := v.Get("mode"); m != nil {
		n.Mode = workorder.NetworkMode(m.Text)
	}
	for _, s := range v.Get("allow").Strs() {
		// Checked when it was read.
		if rule, err := AllowRule(s); err == nil && !slices.Contains(n.Allow, rule) {
			n.Allow = append(n.Allow, rule)
		}
	}
	return n
}

func bindGateway(root *value) workorder.Gateway {
	v, named := root.Get("gateway"), keysNamed(root)
	g := workorder.Gateway{RequestsPerMinute: int(v.Get("requests_per_minute").Number())}
	if t := v.Get("provider_tools"); t != nil {
		g.ProviderTools = new(t.Bool())
	}
	for _, f := range v.Get("prices").Entries() {
		if g.Prices == nil {
			g.Prices = map[string]workorder.ModelPrice{}
		}
		g.Prices[f.Name] = workorder.ModelPrice{
			Input: f.Get("input").Number(), Output: f.Get("output").Number(),
			CacheRead: f.Get("cache_read").Number(), CacheWrite: f.Get("cache_write").Number(),
		}
	}
	for _, a := range workorder.ModelAPIs() {
		if r, ok := routeOf(root, a, named); ok {
			g.Routes = append(g.Routes, r)
		}
	}
	return g
}
