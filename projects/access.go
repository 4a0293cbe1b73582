package projects

import (
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// The keys of the file that say what the agent can reach and who gets what.

// maxRequestRate is far above what providers grant one key in a minute.
const maxRequestRate = 100_000

func secrets() *schema {
	var uses []string
	for _, u := range workorder.SecretUses() {
		uses = append(uses, string(u))
	}
	const doc = "env://VARIABLE, file://PATH (relative to this file, ~ allowed), cmd://COMMAND, or for a key of models login://HARNESS, the login of its program on this machine."
	from := func() *schema {
		return &schema{kind: text, doc: doc, check: checkSecret, examples: []string{"env://STRIPE_KEY", "file://~/.config/stripe/key", "cmd://pass show stripe"}}
	}
	return &schema{
		kind: mapping, doc: "Secrets whose values are read on the host right before the sandbox starts: NAME: reference. A value itself is refused.",
		names: workorder.ValidEnvName, namesRule: "letters, digits and _, not starting with a digit",
		item: &schema{kind: object, doc: "A reference, or a mapping that also says who gets the value. It has either from or any_of.", alt: from(), check: checkPlaces, keys: []key{
			{name: "from", required: true, instead: "any_of", slips: []string{"ref", "reference", "source"}, schema: from()},
			{name: "any_of", slips: []string{"one_of", "anyof", "first_of"}, schema: &schema{
				kind: list, check: checkAnyOf, doc: "References instead of from: the first that is there counts. A command is there when it prints something.", item: from(),
			}},
			{name: "optional", slips: []string{"maybe"}, schema: &schema{kind: boolean, def: "false", doc: "Go without it, and say so once, where it is not there. Default: the run is refused."}},
			{name: "for", slips: []string{"use", "to", "scope", "consumer"}, schema: &schema{
				kind: text, enum: uses,
				doc: "Who gets it, and nobody else: commands (environment of setup, agent and validate commands), one of setup, agent, validate, or gateway. Default: gateway for the keys of models, commands for all others.",
			}},
		}},
	}
}

func network() *schema {
	var modes []string
	for _, m := range workorder.NetworkModes() {
		modes = append(modes, string(m))
	}
	mode := func() *schema {
		return &schema{
			kind: text, def: string(workorder.NetworkFull), enum: modes,
			doc: "Outbound network of the agent, of all commands and of inner containers: full, restricted (what allow names), or none. The model gateway, git and the sandbox's own services are there in all of them.",
		}
	}
	inner := mode()
	inner.def, inner.examples = "", []string{string(workorder.NetworkRestricted)}
	return &schema{
		kind: object, doc: "Outbound network: a mode, or a mapping.", alt: mode(), def: string(workorder.NetworkFull), check: checkNetwork,
		keys: []key{
			{name: "mode", required: true, slips: []string{"policy", "type"}, schema: inner},
			{name: "allow", slips: []string{"allowed", "allowed_hosts", "allowed_domains", "domains", "hosts", "allowlist", "whitelist", "rules"}, schema: &schema{
				kind: list, doc: "Hosts that may be reached when mode is restricted; `sandbox-agent policy learn` proposes it from a run.",
				item: &schema{
					kind: text, check: checkAllow, examples: []string{"example.com", "*.example.com", "example.com:8443", "192.0.2.7:5432", "db.example.com:5432@private"},
					doc: "A host name, *.domain (all subdomains and not the domain itself) or an address, with :port for another one than 80 and 443. A name that resolves to private addresses is refused there unless @private ends the rule, or a rule allows the address.",
				},
			}},
			{name: "learn", schema: &schema{kind: boolean, def: "false", doc: "With mode restricted: refuse nothing that has a name, and report what would have been refused."}},
			{name: "dns", slips: []string{"resolver", "resolvers", "nameservers"}, schema: &schema{
				kind: list, doc: "Resolvers that the sandbox asks. Default: the engine's.", item: &schema{kind: text, doc: "Address.", check: checkAddress, examples: []string{"192.0.2.53"}},
			}},
		},
	}
}

func gateway() *schema {
	price := func(doc string) *schema {
		return &schema{kind: number, zero: true, doc: doc + ", in US dollars for a million tokens."}
	}
	api := func(a workorder.ModelAPI, doc string) *schema {
		return &schema{kind: object, doc: doc, keys: []key{
			{name: "base_url", slips: []string{"url", "endpoint", "base"}, schema: &schema{
				kind: text, doc: "The server, http or https, without credentials. Default: " + a.BaseURLVariable() + " of env, else " + a.DefaultBaseURL() + ".",
				check: checkBaseURL, examples: []string{"http://litellm.example:4000", "http://host.docker.internal:11434"},
			}},
			{name: "keys", slips: []string{"key", "api_key", "secret"}, schema: &schema{
				kind: list, doc: "Names under secrets that are keys of this API, beside those that are by their name.",
				item: &schema{kind: text, doc: "Name of a secret.", check: checkKeyName, examples: []string{"LITELLM_KEY"}},
			}},
		}}
	}
	return &schema{kind: object, doc: "The agent's way to its models. The gateway holds the keys, counts tokens and cost, and keeps the budget; the agent has placeholders.", keys: []key{
		{name: "requests_per_minute", slips: []string{"rate_limit", "rpm"}, schema: &schema{kind: integer, max: maxRequestRate, doc: "Most requests to models in a minute. Default: no limit.", examples: []string{"60"}}},
		{name: "provider_tools", slips: []string{"server_tools", "hosted_tools", "web_search"}, schema: &schema{kind: boolean, doc: "Let the provider run tools and fetch files by itself: web search, MCP servers, code. URLs that it is to fetch obey network.allow in any case. Default: true when network is full, else false."}},
		{name: "prices", slips: []string{"pricing", "costs"}, schema: &schema{
			kind: mapping, doc: "Prices by model; they come before the built-in table.", names: plainWord.MatchString, namesRule: "the model's name as the API has it",
			item: &schema{kind: object, doc: "Prices of a model.", keys: []key{
				{name: "input", required: true, schema: price("Input without cached tokens")},
				{name: "output", required: true, schema: price("Output")},
				{name: "cache_read", schema: price("Input read from the cache")},
				{name: "cache_write", schema: price("Input written to the cache")},
			}},
		}},
		{name: string(workorder.APIAnthropic), schema: api(workorder.APIAnthropic, "Servers with the Messages API of Anthropic.")},
		{name: string(workorder.APIOpenAI), schema: api(workorder.APIOpenAI, "Servers with chat completions or responses of OpenAI.")},
	}}
}
