package workorder

import (
	"path"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

// BoxSpec describes a box: its image and isolation, contents, network and limits.
type BoxSpec struct {
	Image string `json:"image,omitempty"` // the requested image; "" means the default
	// Parts of the default image that the box needs, by Parts.
	Parts []string `json:"parts,omitempty"`
	// ImageID is the engine's id of the box's image. Orders of older CLIs omit it; no setup cache is kept then.
	ImageID string `json:"image_id,omitempty"`
	// Isolation is IsolationConfined or IsolationPrivileged. Orders of older CLIs omit it.
	Isolation string `json:"isolation,omitempty"`
	// OCIRuntime is the engine's OCI runtime for the box; "" means the engine's default.
	OCIRuntime string `json:"oci_runtime,omitempty"`

	Supabase bool              `json:"supabase,omitempty"`
	Services []Service         `json:"services,omitempty"`
	Env      map[string]string `json:"env,omitempty"`
	// ImageEnv has variables like Env. In their values $NAME and ${NAME} are the image's variables and $$ is a dollar sign.
	ImageEnv map[string]string `json:"image_env,omitempty"`
	// SecretNames lists the names in Envelope.Secrets. Both sides compare them, so that a lost secret is an error.
	SecretNames []string `json:"secret_names,omitempty"`
	// SecretUses has the consumers of secrets by name; the default is SecretForCommands.
	SecretUses map[string]SecretUse `json:"secret_uses,omitempty"`
	Gateway    Gateway              `json:"gateway,omitzero"`
	Packages   []string             `json:"packages,omitempty"`
	// Tools are the requested versions by tool: a version, a prefix of one, or a range.
	Tools map[string]string `json:"tools,omitempty"`
	Setup []string          `json:"setup,omitempty"`
	// SetupCache names a setup cache of its own; "" means that of the repository's base branch.
	SetupCache string `json:"setup_cache,omitempty"`
	// Found reports that services, packages, tools, setup and checks were detected in the repository, not declared. A
	// failure of a part is then a warning, which the agent receives. A check that fails on base does not fail the task.
	Found bool `json:"found,omitempty"`
	// SetupAsked reports that the user requested the setup commands nevertheless: a failure is an error.
	SetupAsked bool          `json:"setup_asked,omitempty"`
	Network    NetworkPolicy `json:"network"`
	Limits     Limits        `json:"limits"`
	// HostImages are the service images that the host can stream into the box on request (EventImageRequest), so that
	// no registry is needed: the host's image id by name. A cached image with another id is outdated.
	HostImages map[string]string `json:"host_images,omitempty"`
	// MTU is that of the box's network, in bytes. 0 means the guest reads its own.
	MTU int `json:"mtu,omitempty"`
}

// Values of Spec.Isolation.
const (
	IsolationConfined   = "confined"   // a list of capabilities, no device of the host
	IsolationPrivileged = "privileged" // the engine's own --privileged
)

// Service is a container of the inner engine for the task.
type Service struct {
	Name    string            `json:"name"`
	Image   string            `json:"image"`
	Command []string          `json:"command,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	// Ports are container ports, "6379" or "53/udp"; "5433:5432" also serves it at the box's own port 5433. Without a
	// healthcheck, readiness is tested at the first TCP port.
	Ports       []string     `json:"ports,omitempty"`
	Healthcheck *Healthcheck `json:"healthcheck,omitempty"`
	// Volumes are "name:/path" (a volume of the inner engine, removed with the box).
	Volumes []string `json:"volumes,omitempty"`
	// StartTimeoutSeconds limits the time from creation to readiness. 0 means DefaultServiceStart.
	StartTimeoutSeconds float64 `json:"start_timeout_seconds,omitempty"`
	// Asked reports that the user requested it while the others were detected: its failure is an error.
	Asked bool `json:"asked,omitempty"`
}

// Healthcheck is a command that runs in the service's container.
type Healthcheck struct {
	Test            []string `json:"test"` // argv; a single element is run by the container's shell
	IntervalSeconds float64  `json:"interval_seconds,omitempty"`
	TimeoutSeconds  float64  `json:"timeout_seconds,omitempty"`
	Retries         int      `json:"retries,omitempty"`
}

// StartTimeout returns the limit of the time from creation to readiness.
func (s *Service) StartTimeout() time.Duration {
	return seconds(s.StartTimeoutSeconds, DefaultServiceStart)
}

// Limits are the limits of a box. Zero means the default.
type Limits struct {
	MemoryBytes int64   `json:"memory_bytes,omitempty"`
	CPUs        float64 `json:"cpus,omitempty"`
	// PIDs limits processes and threads of setup, agent, checks and inner containers. The box itself has ReservedPIDs more.
	PIDs int64 `json:"pids,omitempty"`
	// DiskBytes limits the task's disk use in addition to the image, including inner images and containers. Exceeding
	// it ends the attempt.
	DiskBytes int64 `json:"disk_bytes,omitempty"`
}

const (
	// defaultPIDs ends a fork bomb before it affects the machine, and is several times the need of large builds.
	defaultPIDs = 4096
	// ReservedPIDs is for boot, git and the inner engine with a parent process per container.
	ReservedPIDs = 4096
	// MemoryReserve is the memory, in bytes, that the agent cannot use, so that the work can land when the agent's
	// memory is exhausted; at most a quarter of the box's. The inner engine takes some 150 MB of it, boot some 60.
	MemoryReserve = 512 << 20
)

// AgentPIDs returns the agent's limit of processes and threads.
func (l Limits) AgentPIDs() int64 {
	if l.PIDs > 0 {
		return l.PIDs
	}
	return defaultPIDs
}

var (
	serviceName = lazyregexp.New(`^[a-z0-9][a-z0-9_.-]{0,62}$`)
	envName     = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// ValidServiceName reports whether s is a valid service name: a lower-case host name, since it must resolve by DNS.
func ValidServiceName(s string) bool { return serviceName.MatchString(s) }

// ValidEnvName reports whether s is a valid name of an environment variable.
func ValidEnvName(s string) bool { return envName.MatchString(s) }

func (s *BoxSpec) checkSpec(p *problems) {
	p.require(slices.Contains([]string{"", IsolationConfined, IsolationPrivileged}, s.Isolation), "isolation %q is unknown", s.Isolation)
	s.Network.check(p)
	s.checkGateway(p)
	s.checkServices(p)
	s.checkTools(p)
	for k := range s.Env {
		p.require(ValidEnvName(k), "environment name %q is not valid", k)
	}
	for k := range s.ImageEnv {
		_, twice := s.Env[k]
		p.require(ValidEnvName(k) && !twice, "environment name %q is not valid, or given twice", k)
	}
}

func (s *BoxSpec) checkServices(p *problems) {
	seen := map[string]bool{}
	for i := range s.Services {
		one := &s.Services[i]
		p.require(ValidServiceName(one.Name), "service name %q is not a host name", one.Name)
		p.require(!seen[one.Name], "service %q is given twice", one.Name)
		seen[one.Name] = true
		p.require(one.Image != "", "service %q has no image", one.Name)
		for _, v := range one.Volumes {
			name, target, ok := strings.Cut(v, ":")
			p.require(ok && name != "" && !strings.ContainsAny(name, "/\\") && path.IsAbs(target),
				"service %q: volume %q is not name:/path: host directories are not available in the sandbox", one.Name, v)
		}
	}
}
