package sandbox

import (
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/wire"
)

// Network is what a sandbox reaches.
type Network string

// The networks of sandboxes.
const (
	// NetworkFull reaches what the engine's containers do.
	NetworkFull Network = "full"
	// NetworkNone reaches nothing. Dial works all the same.
	NetworkNone Network = "none"
)

// Lifetime is how long a sandbox stays.
type Lifetime string

// The lifetimes of sandboxes.
const (
	// Named stays until Remove.
	Named Lifetime = "named"
	// Session ends with the program that made it.
	Session Lifetime = "session"
)

// NoLimit lifts a limit; a limit of 0 is the default.
const NoLimit = -1

// DefaultSilence is four signs of life.
const DefaultSilence = time.Minute

// Defaults of the limits.
const (
	DefaultMemoryBytes = 2 << 30
	DefaultCPUs        = 2
	DefaultPIDs        = 4096
)

// Limits are what all of a sandbox may use at a time.
type Limits struct {
	MemoryBytes int64   `json:"memory_bytes"`
	CPUs        float64 `json:"cpus"`
	PIDs        int64   `json:"pids"` // processes and threads
}

// minMemory is the least memory with which the guest itself works, in bytes.
const minMemory = 32 << 20

// Spec is what a sandbox is made of.
type Spec struct {
	// Name is letters a–z, digits, - and _, with a letter or digit first, 63 at most. A Session without one gets one.
	Name string `json:"name"`
	// Image is one that the engine has.
	Image string `json:"image"`
	// User runs commands: a name, uid or uid:gid of the image; "" means the image's user.
	User string `json:"user,omitempty"`
	// Dir is where commands begin, an absolute path; "" means the image's.
	Dir string `json:"dir,omitempty"`
	// Env is NAME=value, added to the image's for each command.
	Env []string `json:"env,omitempty"`
	// Network is NetworkFull if empty.
	Network Network `json:"network"`
	Limits  Limits  `json:"limits"`
	// OCIRuntime is one that the engine has; "" means its default.
	OCIRuntime string `json:"oci_runtime,omitempty"`
	// Lifetime is Named if empty.
	Lifetime Lifetime `json:"lifetime"`
	// Silence ends a Session whose program has given no sign of life for so long; 0 means DefaultSilence.
	Silence time.Duration `json:"silence,omitempty"`
	// Idle ends the sandbox when nobody has used it for so long, and keeps its files; 0 never does.
	Idle time.Duration `json:"idle,omitempty"`
	// Life ends the sandbox after that time, likewise; 0 never does.
	Life time.Duration `json:"life,omitempty"`
}

// complete returns the spec with defaults, or all that is wrong with it.
func (s Spec) complete() (Spec, error) {
	if s.Lifetime == "" {
		s.Lifetime = Named
	}
	if s.Name == "" && s.Lifetime == Session {
		s.Name = "session-" + strings.ToLower(rand.Text())
	}
	if s.Network == "" {
		s.Network = NetworkFull
	}
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !validName.MatchString(s.Name) {
		wrong("name %q: use letters a–z, digits, - and _, a letter or digit first, 63 at most", s.Name)
	}
	if s.Image == "" {
		wrong("there is no image")
	}
	if s.Network != NetworkFull && s.Network != NetworkNone {
		wrong("network %q: use %s or %s", s.Network, NetworkFull, NetworkNone)
	}
	if s.Lifetime != Named && s.Lifetime != Session {
		wrong("lifetime %q: use %s or %s", s.Lifetime, Named, Session)
	}
	if s.Dir != "" && !strings.HasPrefix(s.Dir, "/") {
		wrong("folder %q: use an absolute path", s.Dir)
	}
	if s.Idle < 0 || s.Life < 0 || s.Silence < 0 {
		wrong("a time of less than nothing: idle %s, life %s, silence %s", s.Idle, s.Life, s.Silence)
	}
	if s.Silence == 0 && s.Lifetime == Session {
		s.Silence = DefaultSilence
	}
	if err := (wire.Command{Argv: []string{"x"}, Env: s.Env}).Check(); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, s.Limits.complete())
	if err := errors.Join(errs...); err != nil {
		return Spec{}, fmt.Errorf("sandbox %s is %w: %w", s.Name, ErrSpec, err)
	}
	return s, nil
}

// complete fills in defaults, or returns all that is wrong.
func (l *Limits) complete() error {
	var errs []error
	switch {
	case l.MemoryBytes == 0:
		l.MemoryBytes = DefaultMemoryBytes
	case l.MemoryBytes != NoLimit && l.MemoryBytes < minMemory:
		errs = append(errs, fmt.Errorf("memory of %d bytes: use at least %d", l.MemoryBytes, minMemory))
	}
	switch {
	case l.CPUs == 0:
		l.CPUs = DefaultCPUs
	case l.CPUs != NoLimit && (l.CPUs < 0.01 || math.IsNaN(l.CPUs) || math.IsInf(l.CPUs, 0)):
		errs = append(errs, fmt.Errorf("%g CPUs: use at least 0.01", l.CPUs))
	}
	switch {
	case l.PIDs == 0:
		l.PIDs = DefaultPIDs
	case l.PIDs != NoLimit && l.PIDs < minPIDs:
		errs = append(errs, fmt.Errorf("%d processes: use at least %d", l.PIDs, minPIDs))
	}
	return errors.Join(errs...)
}

// minPIDs is the least number of processes and threads: the guest has some 30 itself, and 10 for each command.
const minPIDs = 64

// limit is what an engine takes for one: 0 for none.
func limit(n int64) int64 { return max(n, 0) }
