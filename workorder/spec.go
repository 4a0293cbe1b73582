package workorder

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Spec is what a box is, whatever it is for: how it is made and held, what it has in it, what it reaches, and what bounds it.
type Spec struct {
	// Image is the image that was asked for; empty means the default one.
	Image string `json:"image,omitempty"`
	// ImageID is the engine's id of the image that the box is made of. Orders of older CLIs do not say it; then nothing that setup left is kept.
	ImageID string `json:"image_id,omitempty"`
	// Isolation is how the engine holds the box: IsolationConfined or IsolationPrivileged. Orders of older CLIs do not say it.
	Isolation string `json:"isolation,omitempty"`
	// OCIRuntime is the engine's runtime for the box; empty means the engine's default.
	OCIRuntime string `json:"oci_runtime,omitempty"`

	Supabase bool              `json:"supabase,omitempty"`
	Services []Service         `json:"services,omitempty"`
	Env      map[string]string `json:"env,omitempty"`
	// ImageEnv are variables like those of Env, in whose values $NAME and ${NAME} stand for the image's variables and $$ for a dollar.
	ImageEnv map[string]string `json:"image_env,omitempty"`
	// SecretNames lists the environment names whose values arrive in
	// Envelope.Secrets; both sides compare it, so that a lost secret is an error.
	SecretNames []string `json:"secret_names,omitempty"`
	// SecretUses says who gets a secret, by name; one that is not there is ForCommands.
	SecretUses map[string]SecretUse `json:"secret_uses,omitempty"`
	Gateway    Gateway              `json:"gateway,omitzero"`
	Packages   []string             `json:"packages,omitempty"`
	// Tools are the versions that are asked for, by tool: a version, a beginning of one, or a range.
	Tools map[string]string `json:"tools,omitempty"`
	Setup []string          `json:"setup,omitempty"`
	// Found says that services, packages, tools and setup were found in the repository and nobody declared them: one that fails is a
	// warning, and the agent is told.
	Found bool `json:"found,omitempty"`
	// SetupAsked says that somebody has asked for the setup commands all the same: one that fails is not forgiven.
	SetupAsked bool    `json:"setup_asked,omitempty"`
	Network    Network `json:"network"`
	Limits     Limits  `json:"limits"`
	// HostImages are the service images that the host can stream into the box on
	// request (EventImageRequest), so that no registry is needed for them: the
	// host's id by name. A cached image of another id is an older one.
	HostImages map[string]string `json:"host_images,omitempty"`
	// MTU of the network the box is on, in bytes. 0 means the guest reads its own.
	MTU int `json:"mtu,omitempty"`
}

// The ways a box can be held.
const (
	IsolationConfined   = "confined"   // a list of capabilities, no device of the host
	IsolationPrivileged = "privileged" // the engine's own --privileged
)

// Service is a container of the inner engine that the task needs.
type Service struct {
	Name    string            `json:"name"`
	Image   string            `json:"image"`
	Command []string          `json:"command,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	// Ports are container ports, "6379" or "53/udp"; "5433:5432" can be reached at the box's own port 5433 too. The
	// first TCP port is what readiness is judged by when there is no healthcheck.
	Ports       []string     `json:"ports,omitempty"`
	Healthcheck *Healthcheck `json:"healthcheck,omitempty"`
	// Volumes are "name:/path" (a volume of the inner engine, gone with the box).
	Volumes []string `json:"volumes,omitempty"`
	// StartTimeoutSeconds bounds creation to readiness. 0: DefaultServiceStart.
	StartTimeoutSeconds float64 `json:"start_timeout_seconds,omitempty"`
	// Asked says that somebody has asked for it where the others were found: its failure is not forgiven.
	Asked bool `json:"asked,omitempty"`
}

// Healthcheck is a command run inside the service's container.
type Healthcheck struct {
	// Test is argv; a single element is run by the container's shell.
	Test            []string `json:"test"`
	IntervalSeconds float64  `json:"interval_seconds,omitempty"`
	TimeoutSeconds  float64  `json:"timeout_seconds,omitempty"`
	Retries         int      `json:"retries,omitempty"`
}

// StartTimeout is the bound on the service's way from creation to ready.
func (s *Service) StartTimeout() time.Duration {
	return seconds(s.StartTimeoutSeconds, DefaultServiceStart)
}

// Limits bound the box. Zero means the default.
type Limits struct {
	MemoryBytes int64   `json:"memory_bytes,omitempty"`
	CPUs        float64 `json:"cpus,omitempty"`
	// PIDs bounds the processes and threads of the agent's side: setup, agent, checks and inner containers. The box itself
	// has ReservedPIDs more.
	PIDs int64 `json:"pids,omitempty"`
	// DiskBytes bounds what the task takes of the disk beside the image, inner images and containers included. The run ends when it is more.
	DiskBytes int64 `json:"disk_bytes,omitempty"`
}

const (
	// defaultPIDs ends a fork bomb before the machine feels it, and is several times what large builds were seen to need.
	defaultPIDs = 4096
	// ReservedPIDs are for boot, git and the inner engine with a parent process per container.
	ReservedPIDs = 4096
	// MemoryReserve is the memory, in bytes, that the agent's side cannot have, so that the work can land when it has used up its own; at
	// most a quarter of the box's. The inner engine takes some 150 MB of it, boot some 60.
	MemoryReserve = 512 << 20
)

// AgentPIDs is the limit of processes on the agent's side.
func (l Limits) AgentPIDs() int64 {
	if l.PIDs > 0 {
		return l.PIDs
	}
	return defaultPIDs
}

var (
	serviceName = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,62}$`)
	envName     = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// ValidServiceName reports whether s can name a service (a host name label set
// in lower case, as it must resolve by DNS).
func ValidServiceName(s string) bool { return serviceName.MatchString(s) }

// ValidEnvName reports whether s can name an environment variable.
func ValidEnvName(s string) bool { return envName.MatchString(s) }

func (s *Spec) checkSpec(c *check) {
	c.that(slices.Contains([]string{"", IsolationConfined, IsolationPrivileged}, s.Isolation), "isolation %q is not known", s.Isolation)
	s.Network.check(c)
	s.checkGateway(c)
	s.checkServices(c)
	s.checkTools(c)
	for k := range s.Env {
		c.that(ValidEnvName(k), "environment name %q is not valid", k)
	}
	for k := range s.ImageEnv {
		_, twice := s.Env[k]
		c.that(ValidEnvName(k) && !twice, "environment name %q is not valid, or given twice", k)
	}
}

func (s *Spec) checkServices(c *check) {
	seen := map[string]bool{}
	for i := range s.Services {
		one := &s.Services[i]
		c.that(ValidServiceName(one.Name), "service name %q is not a host name", one.Name)
		c.that(!seen[one.Name], "service %q is given twice", one.Name)
		seen[one.Name] = true
		c.that(one.Image != "", "service %q has no image", one.Name)
		for _, v := range one.Volumes {
			name, target, ok := strings.Cut(v, ":")
			c.that(ok && name != "" && !strings.ContainsAny(name, "/\\") && path.IsAbs(target),
				"service %q: volume %q is not name:/path: the sandbox has no host folder to bind", one.Name, v)
		}
	}
}
