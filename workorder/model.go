package workorder

import (
	"fmt"
	"net/url"
	"slices"
)

// ModelAPI is the shape of a model's HTTP API.
type ModelAPI string

// The shapes that the gateway understands.
const (
	// APIAnthropic is the Messages API: POST /v1/messages.
	APIAnthropic ModelAPI = "anthropic"
	// APIOpenAI has chat completions and responses: POST /v1/chat/completions, /v1/responses.
	APIOpenAI ModelAPI = "openai"
)

// ModelAPIs lists the shapes.
func ModelAPIs() []ModelAPI { return []ModelAPI{APIAnthropic, APIOpenAI} }

// DefaultBaseURL is the provider's own server, without a version in its path.
func (a ModelAPI) DefaultBaseURL() string {
	if a == APIOpenAI {
		return "https://api.openai.com"
	}
	return "https://api.anthropic.com"
}

// BaseURLVariable is the environment variable by which programs find the server.
func (a ModelAPI) BaseURLVariable() string {
	if a == APIOpenAI {
		return "OPENAI_BASE_URL"
	}
	return "ANTHROPIC_BASE_URL"
}

// KeyVariables are the environment variables in which programs look for a key. A
// secret of such a name goes to the gateway unless the project says otherwise.
func (a ModelAPI) KeyVariables() []string {
	if a == APIOpenAI {
		return []string{"OPENAI_API_KEY", "CODEX_API_KEY"}
	}
	return []string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"}
}

// ModelAPIOfKey is the API that a variable is the key of, "" when it is none.
func ModelAPIOfKey(variable string) ModelAPI {
	for _, a := range ModelAPIs() {
		if slices.Contains(a.KeyVariables(), variable) {
			return a
		}
	}
	return ""
}

// Gateway configures the agent's way to its models.
type Gateway struct {
	Routes []ModelRoute `json:"routes,omitempty"`
	// RequestsPerMinute limits all routes together. 0 means no limit.
	RequestsPerMinute int `json:"requests_per_minute,omitempty"`
	// ProviderTools allows what the provider runs or fetches by itself: searches, MCP servers, code, files. Nil is as
	// RunsProviderTools says. URLs are judged by Network.Allow in any case.
	ProviderTools *bool `json:"provider_tools,omitempty"`
	// Prices come before the built-in table, by model.
	Prices map[string]ModelPrice `json:"prices,omitempty"`
}

// Without is the gateway without these keys. A route that is left without any goes with them, unless its server is the project's own,
// which may want none.
func (g Gateway) Without(keys []string) Gateway {
	var routes []ModelRoute
	for _, r := range g.Routes {
		had := len(r.Keys) > 0
		r.Keys = slices.DeleteFunc(slices.Clone(r.Keys), func(k string) bool { return slices.Contains(keys, k) })
		if !had || len(r.Keys) > 0 || r.BaseURL != r.API.DefaultBaseURL() {
			routes = append(routes, r)
		}
	}
	g.Routes = routes
	return g
}

// LeaveOut takes secrets out of the box that the host has no value for.
func (s *Spec) LeaveOut(names []string) {
	if len(names) == 0 {
		return
	}
	gone := func(name string) bool { return slices.Contains(names, name) }
	s.SecretNames = slices.DeleteFunc(slices.Clone(s.SecretNames), gone)
	uses := map[string]SecretUse{}
	for name, use := range s.SecretUses {
		if !gone(name) {
			uses[name] = use
		}
	}
	s.SecretUses, s.Gateway = uses, s.Gateway.Without(names)
}

// RunsProviderTools reports whether the provider may run tools for the agent: unless the order says so, only
// where the box itself may reach everything.
func (g *Gateway) RunsProviderTools(mode NetworkMode) bool {
	if g.ProviderTools != nil {
		return *g.ProviderTools
	}
	return mode == NetworkFull
}

// ModelRoute is one API behind the gateway.
type ModelRoute struct {
	API ModelAPI `json:"api"`
	// BaseURL is the server, http or https, without credentials; a /v1 at its end counts
	// as not there.
	BaseURL string `json:"base_url"`
	// Keys are the secrets that are keys of this API: in the box each variable has a
	// placeholder, which the gateway replaces. None: a server that wants no key.
	Keys []string `json:"keys,omitempty"`
}

// ModelPrice is in US dollars for a million tokens.
type ModelPrice struct {
	Input      float64 `json:"input"`
	Output     float64 `json:"output"`
	CacheRead  float64 `json:"cache_read,omitempty"`
	CacheWrite float64 `json:"cache_write,omitempty"`
}

// SecretUse says who alone gets a secret.
type SecretUse string

// The consumers of secrets.
const (
	// ForCommands: the environment of setup, agent and validate commands. The default.
	ForCommands SecretUse = "commands"
	ForSetup    SecretUse = "setup"
	ForAgent    SecretUse = "agent"
	ForValidate SecretUse = "validate"
	// ForGateway: the model gateway; nothing that runs as user sandbox has it. The
	// default of ModelAPI.KeyVariables.
	ForGateway SecretUse = "gateway"
)

// SecretUses lists the consumers.
func SecretUses() []SecretUse {
	return []SecretUse{ForCommands, ForSetup, ForAgent, ForValidate, ForGateway}
}

// SecretUse is who gets the secret of that name.
func (s *Spec) SecretUse(name string) SecretUse {
	if u := s.SecretUses[name]; u != "" {
		return u
	}
	return ForCommands
}

func (s *Spec) checkGateway(c *check) {
	keys := map[string]bool{}
	apis := map[ModelAPI]bool{}
	for _, r := range s.Gateway.Routes {
		c.that(slices.Contains(ModelAPIs(), r.API), "gateway: api %q is not known (known: %v)", r.API, ModelAPIs())
		c.that(!apis[r.API], "gateway: %s is given twice", r.API)
		apis[r.API] = true
		if err := CheckBaseURL(r.BaseURL); err != nil {
			c.errs = append(c.errs, fmt.Errorf("gateway: %s: %w", r.API, err))
		}
		for _, k := range r.Keys {
			c.that(s.SecretUse(k) == ForGateway && slices.Contains(s.SecretNames, k), "gateway: %s: key %s is not a secret for the gateway", r.API, k)
			keys[k] = true
		}
	}
	c.that(s.Gateway.RequestsPerMinute >= 0, "gateway: requests_per_minute %d is negative", s.Gateway.RequestsPerMinute)
	for m, p := range s.Gateway.Prices {
		for _, usd := range []float64{p.Input, p.Output, p.CacheRead, p.CacheWrite} {
			c.that(usd == 0 || positive(usd), "gateway: price %v of %s is not a number of dollars", usd, m)
		}
	}
	for name, use := range s.SecretUses {
		c.that(slices.Contains(SecretUses(), use), "secret %s: consumer %q is not known (known: %v)", name, use, SecretUses())
		c.that(slices.Contains(s.SecretNames, name), "secret_uses names %s, which is no secret of this order", name)
		c.that(use != ForGateway || keys[name], "secret %s is for the gateway, and no route uses it", name)
	}
}

// CheckBaseURL says what is wrong with the URL of a model's server.
func CheckBaseURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return fmt.Errorf("%q is not a URL", s)
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return fmt.Errorf("%q is not an http or https URL", s)
	case u.User != nil:
		return fmt.Errorf("%s carries a credential: give it as a secret", u.Redacted())
	case u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("%q has a query or a fragment", s)
	}
	return nil
}
