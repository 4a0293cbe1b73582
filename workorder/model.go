package workorder

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/agentkind"
)

// ModelAPI is the type of a model's HTTP API.
type ModelAPI string

// APIs that the gateway supports.
const (
	// APIAnthropic is the Messages API: POST /v1/messages.
	APIAnthropic ModelAPI = agentkind.Anthropic
	// APIOpenAI has chat completions and responses: POST /v1/chat/completions, /v1/responses.
	APIOpenAI ModelAPI = agentkind.OpenAI
)

// ModelAPIs returns all supported APIs.
func ModelAPIs() []ModelAPI { return []ModelAPI{APIAnthropic, APIOpenAI} }

// DefaultBaseURL returns the URL of the provider's own server, without a version in its path.
func (a ModelAPI) DefaultBaseURL() string {
	if a == APIOpenAI {
		return "https://api.openai.com"
	}
	return "https://api.anthropic.com"
}

// VersionedURL returns base with the API's version as the end of its path; of the provider's own server if base is empty.
func (a ModelAPI) VersionedURL(base string) string {
	return strings.TrimSuffix(strings.TrimRight(cmp.Or(base, a.DefaultBaseURL()), "/"), "/v1") + "/v1"
}

// BaseURLVariable returns the environment variable that sets the server in programs.
func (a ModelAPI) BaseURLVariable() string {
	if a == APIOpenAI {
		return "OPENAI_BASE_URL"
	}
	return "ANTHROPIC_BASE_URL"
}

// KeyVariables returns the environment variables from which programs read the key. A secret of such a name is for the
// gateway unless the project declares otherwise.
func (a ModelAPI) KeyVariables() []string {
	if a == APIOpenAI {
		return []string{agentkind.OpenAIKey, agentkind.CodexKey}
	}
	return []string{agentkind.AnthropicKey, agentkind.AnthropicToken, agentkind.ClaudeToken}
}

// ModelAPIOfKey returns the API whose key a variable has; "" if none.
func ModelAPIOfKey(variable string) ModelAPI {
	for _, a := range ModelAPIs() {
		if slices.Contains(a.KeyVariables(), variable) {
			return a
		}
	}
	return ""
}

// Gateway configures the model gateway.
type Gateway struct {
	Routes []ModelRoute `json:"routes,omitempty"`
	// RequestsPerMinute limits all routes together. 0 means no limit.
	RequestsPerMinute int `json:"requests_per_minute,omitempty"`
	// ProviderTools allows tools that the provider runs itself: searches, MCP servers, code, files. nil means the
	// default of RunsProviderTools. URLs are always checked against Network.Allow.
	ProviderTools *bool `json:"provider_tools,omitempty"`
	// Prices override the built-in table, by model.
	Prices map[string]ModelPrice `json:"prices,omitempty"`
}

// Without returns the gateway without these keys. Routes without any remaining key are removed, unless they have a
// server of their own, which may need no key.
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

// LeaveOut removes secrets that have no value on the host.
func (s *BoxSpec) LeaveOut(names []string) {
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

// RunsProviderTools reports whether the provider may run tools for the agent: by default only if the box has unrestricted network access.
func (g *Gateway) RunsProviderTools(mode NetworkMode) bool {
	if g.ProviderTools != nil {
		return *g.ProviderTools
	}
	return mode == NetworkFull
}

// ModelRoute is an API behind the gateway.
type ModelRoute struct {
	API ModelAPI `json:"api"`
	// BaseURL is the server, http or https, without credentials. A final /v1 is ignored.
	BaseURL string `json:"base_url"`
	// Keys are the secrets with keys of this API. In the box each variable has a placeholder, which the gateway
	// replaces. Empty means a server that needs no key.
	Keys []string `json:"keys,omitempty"`
}

// ModelPrice is in US dollars per million tokens.
type ModelPrice struct {
	Input      float64 `json:"input"`
	Output     float64 `json:"output"`
	CacheRead  float64 `json:"cache_read,omitempty"`
	CacheWrite float64 `json:"cache_write,omitempty"`
}

// SecretUse is the only consumer of a secret.
type SecretUse string

// Consumers of secrets.
const (
	// SecretForCommands: the environment of setup, agent and validate commands. The default.
	SecretForCommands SecretUse = "commands"
	SecretForSetup    SecretUse = "setup"
	SecretForAgent    SecretUse = "agent"
	SecretForValidate SecretUse = "validate"
	// SecretForGateway: the model gateway; no process of user sandbox has it. The default of ModelAPI.KeyVariables.
	SecretForGateway SecretUse = "gateway"
)

// SecretUses returns all consumers.
func SecretUses() []SecretUse {
	return []SecretUse{SecretForCommands, SecretForSetup, SecretForAgent, SecretForValidate, SecretForGateway}
}

// SecretUse returns the consumer of a secret.
func (s *BoxSpec) SecretUse(name string) SecretUse {
	if u := s.SecretUses[name]; u != "" {
		return u
	}
	return SecretForCommands
}

func (s *BoxSpec) checkGateway(c *problems) {
	keys := map[string]bool{}
	apis := map[ModelAPI]bool{}
	for _, r := range s.Gateway.Routes {
		c.require(slices.Contains(ModelAPIs(), r.API), "gateway: api %q is unknown (known: %v)", r.API, ModelAPIs())
		c.require(!apis[r.API], "gateway: %s is given twice", r.API)
		apis[r.API] = true
		if err := CheckBaseURL(r.BaseURL); err != nil {
			c.errs = append(c.errs, fmt.Errorf("gateway: %s: %w", r.API, err))
		}
		for _, k := range r.Keys {
			c.require(s.SecretUse(k) == SecretForGateway && slices.Contains(s.SecretNames, k),
				"gateway: %s: key %s is not a secret for the gateway", r.API, k)
			keys[k] = true
		}
	}
	c.require(s.Gateway.RequestsPerMinute >= 0, "gateway: requests_per_minute %d must not be negative", s.Gateway.RequestsPerMinute)
	for m, p := range s.Gateway.Prices {
		for _, usd := range []float64{p.Input, p.Output, p.CacheRead, p.CacheWrite} {
			c.require(usd == 0 || positive(usd), "gateway: price %v of %s is not a price in dollars", usd, m)
		}
	}
	for name, use := range s.SecretUses {
		c.require(slices.Contains(SecretUses(), use), "secret %s: consumer %q is unknown (known: %v)", name, use, SecretUses())
		c.require(slices.Contains(s.SecretNames, name), "secret_uses: %s is not a secret of this order", name)
		c.require(use != SecretForGateway || keys[name], "secret %s is for the gateway, but no route uses it", name)
	}
}

// CheckBaseURL validates the URL of a model server.
func CheckBaseURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return fmt.Errorf("%q is not a URL", s)
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return fmt.Errorf("%q is not an http or https URL", s)
	case u.User != nil:
		return fmt.Errorf("%s has a credential: declare it as a secret", u.Redacted())
	case u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("%q has a query or a fragment", s)
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil && IsMetadata(a) {
		return fmt.Errorf("%s is an address of metadata services, which is no server of models", a)
	}
	return nil
}
