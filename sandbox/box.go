package sandbox

import (
	"encoding/json"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// BoxSpec configures a box. It omits the fields that Spec has itself: image, network mode and most limits. Its JSON has the
// names of workorder.BoxSpec.
type BoxSpec struct {
	// Parts of the default image that the box needs: agents by name, "supabase" and "browser".
	Parts     []string `json:"parts,omitempty"`
	Isolation string   `json:"isolation,omitempty"` // "confined", the default, or "privileged"
	// Supabase starts the Supabase stack of the repository.
	Supabase bool              `json:"supabase,omitempty"`
	Services []Service         `json:"services,omitempty"`
	Env      map[string]string `json:"env,omitempty"`       // Spec.Env takes precedence
	ImageEnv map[string]string `json:"image_env,omitempty"` // like Spec.ImageEnv
	// SecretNames lists the names in Secrets.Values.
	SecretNames []string `json:"secret_names,omitempty"`
	// SecretUses has the consumers of secrets by name: commands (the default), setup, agent, validate or gateway.
	SecretUses map[string]string `json:"secret_uses,omitempty"`
	Gateway    Gateway           `json:"gateway,omitzero"`
	Packages   []string          `json:"packages,omitempty"` // packages of the distribution
	// Tools are the requested versions by tool: a version, a prefix of one, or a range.
	Tools map[string]string `json:"tools,omitempty"`
	Setup []string          `json:"setup,omitempty"` // has the shell commands that prepare the repository
	// Found reports that services, packages, tools and setup were detected in the repository: a failure is then a warning.
	Found bool `json:"found,omitempty"`
	// SetupAsked reports that the user requested the setup commands nevertheless: a failure is an error.
	SetupAsked bool       `json:"setup_asked,omitempty"`
	Network    BoxNetwork `json:"network"`
	Limits     BoxLimits  `json:"limits"`
}

// BoxNetwork configures the network of a box in addition to Spec.Network and Spec.Allow.
type BoxNetwork struct {
	Allow []string `json:"allow,omitempty"` // has rules in addition to Spec.Allow
	// Learn, only with NetworkRestricted, allows every host with a name and reports what would be refused.
	Learn bool     `json:"learn,omitempty"`
	DNS   []string `json:"dns,omitempty"` // the addresses of resolvers; empty means the engine's
}

// BoxLimits apply in addition to Limits.
type BoxLimits struct {
	// DiskBytes limits the disk use in addition to the image; 0 means the default.
	DiskBytes int64 `json:"disk_bytes,omitempty"`
}

// Values of a BoxSpec that a work order has as well.
type (
	// Service is a container of the box's own engine.
	Service = workorder.Service
	// Healthcheck is a command that runs in the service's container.
	Healthcheck = workorder.Healthcheck
	// ModelPrice is in US dollars per million tokens.
	ModelPrice = workorder.ModelPrice
	// GitCredential opens a repository.
	GitCredential = workorder.GitCredential
)

// Gateway configures the gateway to models.
type Gateway struct {
	Routes            []ModelRoute `json:"routes,omitempty"`
	RequestsPerMinute int          `json:"requests_per_minute,omitempty"` // limits all routes together; 0 means no limit
	// ProviderTools allows tools that the provider runs itself; nil means only with NetworkFull.
	ProviderTools *bool `json:"provider_tools,omitempty"`
	// Prices override the built-in table, by model.
	Prices map[string]ModelPrice `json:"prices,omitempty"`
}

// ModelRoute is the server of a model API.
type ModelRoute struct {
	API     string   `json:"api"` // anthropic or openai
	BaseURL string   `json:"base_url"`
	Keys    []string `json:"keys,omitempty"` // the secrets with keys of this API
}

// Secrets are the secrets of a box. They are not part of its Spec, and no label or file of the host contains them.
type Secrets struct {
	Values map[string]string // has the secrets by the names in Spec.Box.SecretNames
	// Git opens the repository; nil if it needs no credential.
	Git *GitCredential
}

// order returns the part of a work order; of a nil BoxSpec an empty one.
func (b *BoxSpec) order() (workorder.BoxSpec, error) {
	var o workorder.BoxSpec
	doc, err := json.Marshal(b)
	if err == nil {
		err = json.Unmarshal(doc, &o)
	}
	return o, err
}
