package projects

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/idna"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// The agent can reach what rules of the network allow, and the servers of models.

// AllowRule is a rule under network.allow as the order has it: canonical, and an
// internationalised name in its xn-- form.
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
		// The rule is named by who asks.
		return "", errors.New(strings.TrimPrefix(err.Error(), fmt.Sprintf("allow rule %q: ", ascii)))
	}
	return r.String(), nil
}

// asciiRule converts the name of a rule that is not ASCII.
func asciiRule(s string) (string, error) {
	if !strings.ContainsFunc(s, func(r rune) bool { return r > 0x7f }) {
		return s, nil
	}
	place, inside := strings.CutSuffix(s, "@private")
	host, port, ported := strings.Cut(place, ":")
	host, sub := strings.CutPrefix(host, "*.")
	if strings.ContainsAny(place, "/@?#*") && !sub {
		return s, nil // what is wrong there is said of the whole
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
	if _, err := AllowRule(v.text); err != nil {
		d.report(v.node, codeValue, allowHint(v.text), "%s %q: %s", v.path, v.text, err)
	}
}

// allowHint is how a rule may have been meant.
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
	if a, err := netip.ParseAddr(v.text); err != nil || a.Zone() != "" {
		d.report(v.node, codeValue, "write an address such as 192.0.2.53", "%s %q is not an address", v.path, v.text)
	}
}

func checkNetwork(d *decoder, v *value) {
	mode := v.get("mode").str()
	if mode == "" || mode == string(workorder.NetworkRestricted) {
		return
	}
	what := map[string]string{
		string(workorder.NetworkFull): "mode full already allows everything", string(workorder.NetworkNone): "mode none allows nothing",
	}[mode]
	if allow := v.get("allow"); allow != nil && len(allow.items) > 0 {
		d.report(allow.node, codeConflict, "remove allow, or write `mode: restricted`: "+what, "network.allow has no meaning with mode %s", mode)
	}
	if learn := v.get("learn"); learn.bool() {
		d.report(learn.node, codeConflict, "remove learn, or write `mode: restricted`: "+what, "network.learn has no meaning with mode %s", mode)
	}
}

func checkBaseURL(d *decoder, v *value) {
	if err := workorder.CheckBaseURL(v.text); err != nil {
		d.reportBaseURL(v, err)
	}
}

// reportBaseURL never repeats what may be a credential.
func (d *decoder) reportBaseURL(v *value, err error) {
	hint := "compare it with " + workorder.APIAnthropic.DefaultBaseURL()
	if u, perr := url.Parse(v.text); perr == nil && u.User != nil {
		if p, ok := u.User.Password(); ok {
			d.src.hide(p)
		}
		d.src.hide(u.User.Username())
		hint = "remove everything before the @; give the key under `secrets:`"
	}
	d.report(v.node, codeValue, hint, "%s: %s", v.path, err)
}

func checkKeyName(d *decoder, v *value) {
	if !workorder.ValidEnvName(v.text) {
		// It may be the key itself: it must not appear anywhere.
		d.src.hide(v.text)
		d.report(v.node, codeSecret, "write the name that it has under `secrets:`", "%s is not the name of a secret", v.path)
	}
}

// checkAccess reports what does not fit between secrets, env and gateway.
func checkAccess(d *decoder, root *value) {
	secrets := root.get("secrets")
	named := map[string]bool{}
	for _, a := range workorder.ModelAPIs() {
		for _, k := range root.get("gateway").get(string(a)).get("keys").entriesOf() {
			named[k.text] = true
			s := secrets.get(k.text)
			switch use := s.get("for"); {
			case !workorder.ValidEnvName(k.text): // said already
			case s == nil:
				d.report(k.node, codeMissing, fmt.Sprintf("add it under secrets: `%s: env://%s`", k.text, k.text), "%s names %s, which is no secret of this project", k.path, k.text)
			case use != nil && use.text != string(workorder.ForGateway):
				d.report(use.node, codeConflict, "remove it here, or from "+k.path, "secret %s is for %s, and a key of the gateway (line %d)", k.text, use.text, k.node.Line)
			}
		}
	}
	for _, s := range secrets.entries() {
		checkLoginUse(d, s, secretUse(s.name, s.value, named))
		use := s.get("for")
		if use.str() == string(workorder.ForGateway) && !named[s.name] && workorder.ModelAPIOfKey(s.name) == "" {
			d.report(use.node, codeConflict, fmt.Sprintf("name it where it belongs: `gateway: {anthropic: {keys: [%s]}}`, or openai", s.name),
				"secret %s is for the gateway, and no route uses it", s.name)
		}
	}
	for _, a := range workorder.ModelAPIs() {
		checkRoute(d, root, a, named)
	}
}

// checkRoute reports a server that the route of an API cannot have.
func checkRoute(d *decoder, root *value, a workorder.ModelAPI, named map[string]bool) {
	if root.get("gateway").get(string(a)).get("base_url") != nil {
		return
	}
	_, routed := routeOf(root, a, named)
	if !routed {
		return
	}
	if e := root.either("env").get(a.BaseURLVariable()); e != nil {
		if err := workorder.CheckBaseURL(e.text); err != nil {
			d.reportBaseURL(e, err)
		}
	}
	for _, s := range root.get("secrets").entries() {
		if s.name == a.BaseURLVariable() {
			d.report(s.key, codeConflict, fmt.Sprintf("write it as `gateway: {%s: {base_url: ...}}`: the key alone is the secret", a),
				"%s is a secret, and the gateway has to know its server", s.name)
		}
	}
}

// routeOf is the route of an API, when there is one: the API has a key that is the
// gateway's, or a server of its own. A server that env names counts unless the project
// gives the agent a key of that API by itself, which needs no gateway then.
func routeOf(root *value, a workorder.ModelAPI, named map[string]bool) (workorder.ModelRoute, bool) {
	own := root.get("gateway").get(string(a))
	r := workorder.ModelRoute{API: a, BaseURL: own.get("base_url").str(), Keys: own.get("keys").strs()}
	routed, held := r.BaseURL != "", false
	for _, k := range a.KeyVariables() {
		if root.either("env").get(k) != nil {
			held = true
		}
		s := root.get("secrets").get(k)
		switch {
		case s == nil || named[k]:
		case secretUse(k, s, named) == workorder.ForGateway:
			r.Keys = append(r.Keys, k)
		default:
			held = true
		}
	}
	slices.Sort(r.Keys)
	r.Keys = slices.Compact(r.Keys)
	env := strings.ReplaceAll(root.either("env").get(a.BaseURLVariable()).str(), "$$", "$")
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

// secretUse is who gets a secret.
func secretUse(name string, s *value, named map[string]bool) workorder.SecretUse {
	switch use := s.get("for"); {
	case use != nil:
		return workorder.SecretUse(use.text)
	case named[name], workorder.ModelAPIOfKey(name) != "":
		return workorder.ForGateway
	}
	return workorder.ForCommands
}

// keysNamed are the secrets that the file calls keys of an API.
func keysNamed(root *value) map[string]bool {
	named := map[string]bool{}
	for _, a := range workorder.ModelAPIs() {
		for _, k := range root.get("gateway").get(string(a)).get("keys").strs() {
			named[k] = true
		}
	}
	return named
}

func bindNetwork(v *value) workorder.Network {
	n := workorder.Network{Mode: workorder.NetworkMode(v.str()), Learn: v.get("learn").bool(), DNS: v.get("dns").strs()}
	if m := v.get("mode"); m != nil {
		n.Mode = workorder.NetworkMode(m.text)
	}
	for _, s := range v.get("allow").strs() {
		// It was checked when it was read.
		if rule, err := AllowRule(s); err == nil && !slices.Contains(n.Allow, rule) {
			n.Allow = append(n.Allow, rule)
		}
	}
	return n
}

func bindGateway(root *value) workorder.Gateway {
	v, named := root.get("gateway"), keysNamed(root)
	g := workorder.Gateway{RequestsPerMinute: int(v.get("requests_per_minute").number())}
	if t := v.get("provider_tools"); t != nil {
		g.ProviderTools = new(t.bool())
	}
	for _, f := range v.get("prices").entries() {
		if g.Prices == nil {
			g.Prices = map[string]workorder.ModelPrice{}
		}
		g.Prices[f.name] = workorder.ModelPrice{
			Input: f.get("input").number(), Output: f.get("output").number(),
			CacheRead: f.get("cache_read").number(), CacheWrite: f.get("cache_write").number(),
		}
	}
	for _, a := range workorder.ModelAPIs() {
		if r, ok := routeOf(root, a, named); ok {
			g.Routes = append(g.Routes, r)
		}
	}
	return g
}
