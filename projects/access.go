package projects

import (
	"github.com/sandbox-agent/sandbox-agent/internal/yamlkeys"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Keys of network access and secrets.

// maxRequestRate is far above what providers grant one key in a minute.
const maxRequestRate = 100_000

func secrets() *schema {
	var uses []string
	for _, u := range workorder.SecretUses() {
		uses = append(uses, string(u))
	}
	const doc = "env://VARIABLE, file://PATH (relative to this file, ~ allowed), cmd://COMMAND, op://VAULT/ITEM/FIELD (1Password's op), " +
		"vault://PATH.FIELD (HashiCorp's vault), or for a key of models login://HARNESS, the login of its program on this machine."
	from := func() *schema {
		return &schema{Kind: yamlkeys.Text, Doc: doc, Check: checkSecret, Examples: []string{
			"env://STRIPE_KEY",
			"file://~/.config/stripe/key", "cmd://pass show stripe",
		}}
	}
	return &schema{
		Kind: yamlkeys.Mapping, Doc: "Secrets whose values are read on the host right before the sandbox starts: NAME: reference. A " +
			"value itself is refused.",
		Names: workorder.ValidEnvName, NamesRule: "letters, digits and _, not starting with a digit",
		Item: &schema{
			Kind: yamlkeys.Object, Doc: "A reference, or a mapping that also says who gets the value. It has either from or any_of.",
			Alt: from(), Check: checkPlaces, Keys: []key{
				{Name: "from", Required: true, Instead: "any_of", Slips: []string{"ref", "reference", "source"}, Schema: from()},
				{Name: "any_of", Slips: []string{"one_of", "anyof", "first_of"}, Schema: &schema{
					Kind: yamlkeys.List, Check: checkAnyOf,
					Doc: "References instead of from: the first that is there counts. A command is there when it prints something.", Item: from(),
				}},
				{Name: "optional", Slips: []string{"maybe"}, Schema: &schema{
					Kind: yamlkeys.Boolean, Def: "false",
					Doc: "Go without it, and say so once, where it is not there. Default: the run is refused.",
				}},
				{Name: "for", Slips: []string{"use", "to", "scope", "consumer"}, Schema: &schema{
					Kind: yamlkeys.Text, Enum: uses,
					Doc: "The only consumer: commands (environment of setup, agent and validate commands), one of setup, agent, validate, or " +
						"gateway. Default: gateway for the keys of models, commands for all others.",
				}},
			},
		},
	}
}

func network() *schema {
	var modes []string
	for _, m := range workorder.NetworkModes() {
		modes = append(modes, string(m))
	}
	mode := func() *schema {
		return &schema{
			Kind: yamlkeys.Text, Def: string(workorder.NetworkFull), Enum: modes,
			Doc: "Outbound network of the agent, of all commands and of inner containers: full, restricted (what allow names), or none. " +
				"The model gateway, git and the sandbox's own services are there in all of them.",
		}
	}
	inner := mode()
	inner.Def, inner.Examples = "", []string{string(workorder.NetworkRestricted)}
	return &schema{
		Kind: yamlkeys.Object, Doc: "Outbound network: a mode, or a mapping.", Alt: mode(), Def: string(workorder.NetworkFull),
		Check: checkNetwork,
		Keys: []key{
			{Name: "mode", Required: true, Slips: []string{"policy", "type"}, Schema: inner},
			{Name: "allow", Slips: []string{
				"allowed", "allowed_hosts", "allowed_domains", "domains", "hosts", "allowlist", "whitelist",
				"rules",
			}, Schema: &schema{
				Kind: yamlkeys.List, Doc: "Hosts that may be reached when mode is restricted; `sandbox-agent network suggest` proposes it from a run.",
				Item: &schema{
					Kind: yamlkeys.Text, Check: checkAllow, Examples: []string{
						"example.com", "*.example.com", "example.com:8443",
						"192.0.2.7:5432", "db.example.com:5432@private",
					},
					Doc: "A host name, *.domain (all subdomains and not the domain itself) or an address, with :port for another one than 80 and " +
						"443. A name that resolves to private addresses is refused there unless @private ends the rule, or a rule allows the address.",
				},
			}},
			{Name: "learn", Schema: &schema{
				Kind: yamlkeys.Boolean, Def: "false",
				Doc: "With mode restricted: refuse nothing that has a name, and report what would have been refused.",
			}},
			{Name: "dns", Slips: []string{"resolver", "resolvers", "nameservers"}, Schema: &schema{
				Kind: yamlkeys.List, Doc: "Resolvers that the sandbox asks. Default: the engine's.", Item: &schema{
					Kind: yamlkeys.Text,
					Doc:  "Address.", Check: checkAddress, Examples: []string{"192.0.2.53"},
				},
			}},
		},
	}
}

func gateway() *schema {
	price := func(doc string) *schema {
		return &schema{Kind: yamlkeys.Number, Zero: true, Doc: doc + ", in US dollars for a million tokens."}
	}
	api := func(a workorder.ModelAPI, doc string) *schema {
		return &schema{Kind: yamlkeys.Object, Doc: doc, Keys: []key{
			{Name: "base_url", Slips: []string{"url", "endpoint", "base"}, Schema: &schema{
				Kind: yamlkeys.Text, Doc: "The server, http or https, without credentials. Default: " + a.BaseURLVariable() + " of env, else " +
					a.DefaultBaseURL() + ".",
				Check: checkBaseURL, Examples: []string{"http://litellm.example:4000", "http://host.docker.internal:11434"},
			}},
			{Name: "keys", Slips: []string{"key", "api_key", "secret"}, Schema: &schema{
				Kind: yamlkeys.List, Doc: "Names under secrets that are keys of this API, beside those that are by their name.",
				Item: &schema{Kind: yamlkeys.Text, Doc: "Name of a secret.", Check: checkKeyName, Examples: []string{"LITELLM_KEY"}},
			}},
		}}
	}
	return &schema{
		Kind: yamlkeys.Object,
		Doc: "The agent's way to its models. The gateway holds the keys, counts tokens and cost, and keeps the budget; the agent has " +
			"placeholders.", Keys: []key{
			{Name: "requests_per_minute", Slips: []string{"rate_limit", "rpm"}, Schema: &schema{
				Kind: yamlkeys.Integer, Max: maxRequestRate,
				Doc: "Most requests to models in a minute. Default: no limit.", Examples: []string{"60"},
			}},
			{Name: "provider_tools", Slips: []string{"server_tools", "hosted_tools", "web_search"}, Schema: &schema{
				Kind: yamlkeys.Boolean,
				Doc: "Let the provider run tools and fetch files by itself: web search, MCP servers, code. URLs that it is to fetch obey " +
					"network.allow in any case. Default: true when network is full, else false.",
			}},
			{Name: "prices", Slips: []string{"pricing", "costs"}, Schema: &schema{
				Kind: yamlkeys.Mapping, Doc: "Prices by model; they come before the built-in table.", Names: plainWord.MatchString,
				NamesRule: "the model's name as the API has it",
				Item: &schema{Kind: yamlkeys.Object, Doc: "Prices of a model.", Keys: []key{
					{Name: "input", Required: true, Schema: price("Input without cached tokens")},
					{Name: "output", Required: true, Schema: price("Output")},
					{Name: "cache_read", Schema: price("Input read from the cache")},
					{Name: "cache_write", Schema: price("Input written to the cache")},
				}},
			}},
			{Name: string(workorder.APIAnthropic), Schema: api(workorder.APIAnthropic, "Servers with the Messages API of Anthropic.")},
			{Name: string(workorder.APIOpenAI), Schema: api(workorder.APIOpenAI, "Servers with chat completions or responses of OpenAI.")},
		},
	}
}
