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

// Service is a container of the box's own engine.
type Service struct {
	Name    string            `json:"name"`
	Image   string            `json:"image"`
	Command []string          `json:"command,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	// Ports are container ports, "6379" or "53/udp"; "5433:5432" also serves it at the box's own port 5433. Without a
	// healthcheck, readiness is tested at the first TCP port.
	Ports       []string     `json:"ports,omitempty"`
	Healthcheck *Healthcheck `json:"healthcheck,omitempty"`
	// Volumes are "name:/path" (a volume of the box's own engine, removed with the box).
	Volumes []string `json:"volumes,omitempty"`
	// StartTimeoutSeconds limits the time from creation to readiness; 0 means the default.
	StartTimeoutSeconds float64 `json:"start_timeout_seconds,omitempty"`
	// Asked reports that the user requested the service while others were detected: its failure is an error.
	Asked bool `json:"asked,omitempty"`
}

// Healthcheck is a command that runs in the service's container.
type Healthcheck struct {
	Test            []string `json:"test"` // argv; a single element is run by the container's shell
	IntervalSeconds float64  `json:"interval_seconds,omitempty"`
	TimeoutSeconds  float64  `json:"timeout_seconds,omitempty"`
	Retries         int      `json:"retries,omitempty"`
}

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

// ModelPrice is in US dollars per million tokens.
type ModelPrice struct {
	Input      float64 `json:"input"`
	Output     float64 `json:"output"`
	CacheRead  float64 `json:"cache_read,omitempty"`
	CacheWrite float64 `json:"cache_write,omitempty"`
}

// GitCredential opens a repository.
type GitCredential struct {
	Username   string
	Token      string
	SSHKey     string
	KnownHosts string
	CA         string // the only accepted authority of the remote's certificate, in PEM; "" means the box's authorities
	Renew      bool   // Token expires after an hour
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
