package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
)

// Runtime isolates a sandbox.
type Runtime string

// Runtimes.
const (
	// RuntimeAuto is the first runtime that meets a Spec.
	RuntimeAuto Runtime = ""
	// RuntimeJail runs processes of this machine in bubblewrap, with the machine's programs. It needs no engine and has no image.
	RuntimeJail Runtime = "jail"
	// RuntimeContainer is a container of the engine, from any image.
	RuntimeContainer Runtime = "container"
	// RuntimeBox is the box of tasks for a standalone sandbox: the default image with a Docker engine inside, services,
	// a network by host names and a gateway to models.
	RuntimeBox Runtime = "box"
	// RuntimeHost is the machine itself without isolation. RuntimeAuto never chooses it, and it is refused unless
	// Options.AllowHost or the configuration allows it.
	RuntimeHost Runtime = "host"
)

var aliases = map[string]Runtime{
	"auto": RuntimeAuto, "docker": RuntimeContainer, "dind": RuntimeBox, "bwrap": RuntimeJail, "noop": RuntimeHost,
}

// refused are known isolation methods that are not supported, with the reason.
var refused = map[string]string{
	"podman":  "podman is an engine: point DOCKER_HOST at its API and use the runtime container",
	"nspawn":  "systemd-nspawn has no advantage over a jail",
	"apple":   "Apple's containers are untested",
	"microvm": "microVMs are untested",
}

// ParseRuntime parses a runtime or an alias. The error is an ErrUnsupported for a known name without support, otherwise an
// ErrInvalidSpec.
func ParseRuntime(name string) (Runtime, error) {
	if k, ok := aliases[name]; ok {
		return k, nil
	}
	if slices.Contains(allRuntimes, Runtime(name)) {
		return Runtime(name), nil
	}
	if why, ok := refused[name]; ok {
		return "", fmt.Errorf("runtime %s: %w: %s", name, ErrUnsupported, why)
	}
	return "", fmt.Errorf("runtime %q: %w: use %s", name, ErrInvalidSpec, strings.Join(runtimeNames(), ", "))
}

// allRuntimes are in the order in which RuntimeAuto tries them. It never tries the last.
var allRuntimes = []Runtime{RuntimeJail, RuntimeContainer, RuntimeBox, RuntimeHost}

// AllRuntimes returns all runtimes in the order in which RuntimeAuto tries them.
func AllRuntimes() []Runtime { return slices.Clone(allRuntimes) }

func runtimeNames() []string {
	names := make([]string, 0, len(allRuntimes))
	for _, k := range allRuntimes {
		names = append(names, string(k))
	}
	return names
}

// Capability is a feature that a Spec can require and not every runtime has.
type Capability = runtime.Capability

// Capabilities.
const (
	CapImage             = runtime.CapImage             // any image of the engine
	CapRootFS            = runtime.CapRootFS            // Spec.Root
	CapUser              = runtime.CapUser              // commands as another user than the caller
	CapPersistent        = runtime.CapPersistent        // files outside of mounts survive a stop
	CapNetworkNone       = runtime.CapNetworkNone       // only the loopback
	CapNetworkFull       = runtime.CapNetworkFull       // everything that the machine reaches
	CapNetworkRestricted = runtime.CapNetworkRestricted // only listed hosts
	CapNetworkProxy      = runtime.CapNetworkProxy      // only listed hosts, for a LifetimeEphemeral sandbox: see NetworkRestricted
	CapNetworkUpdate     = runtime.CapNetworkUpdate     // change of the network policy of a running sandbox
	CapMemory            = runtime.CapMemory            // Limits.MemoryBytes
	CapCPUs              = runtime.CapCPUs              // Limits.CPUs
	CapPIDs              = runtime.CapPIDs              // Limits.PIDs
	CapMounts            = runtime.CapMounts            // directories of the host
	CapOCIRuntime        = runtime.CapOCIRuntime        // Spec.OCIRuntime
	CapSnapshots         = runtime.CapSnapshots         // files can be kept as a snapshot or in a fork
	CapServices          = runtime.CapServices          // Spec.Box: services such as databases
	CapDocker            = runtime.CapDocker            // a Docker engine inside
	CapRepository        = runtime.CapRepository        // Spec.Repo on this machine
	CapRemoteRepository  = runtime.CapRemoteRepository  // Spec.Repo on another machine
	CapNested            = runtime.CapNested            // Spec.Nested
)

// UnsupportedError lists the capabilities that a Spec requires and a runtime lacks here. It is an ErrUnsupported.
type UnsupportedError struct {
	Runtime Runtime
	Missing []Capability
}

func (e *UnsupportedError) Error() string {
	wishes := make([]string, 0, len(e.Missing))
	for _, w := range e.Missing {
		wishes = append(wishes, string(w))
	}
	return fmt.Sprintf("runtime %s does not support %s here", e.Runtime, strings.Join(wishes, ", "))
}

// Unwrap returns ErrUnsupported.
func (e *UnsupportedError) Unwrap() error { return ErrUnsupported }

// RuntimeInfo describes a runtime on this machine.
type RuntimeInfo struct {
	Runtime      Runtime      `json:"kind"`
	Healthy      bool         `json:"healthy"`
	Reason       string       `json:"reason,omitempty"` // why the runtime is unavailable; "" if it is available
	Capabilities []Capability `json:"capabilities,omitempty"`
}

// Runtimes returns for some runtimes, or for all, whether each is available here, and its capabilities. It checks them concurrently.
func (m *Manager) Runtimes(ctx context.Context, some ...Runtime) []RuntimeInfo {
	if len(some) == 0 {
		some = allRuntimes
	}
	all := make([]RuntimeInfo, 0, len(some))
	for _, p := range m.creator.all {
		if slices.Contains(some, p.kind) {
			all = append(all, RuntimeInfo{Runtime: p.kind})
		}
	}
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			caps, err := m.creator.all.find(all[i].Runtime).capabilities(ctx)
			if err != nil {
				all[i].Reason = err.Error()
				return
			}
			all[i].Healthy, all[i].Capabilities = true, caps
		})
	}
	wg.Wait()
	return all
}

// backends are all runtimes, in the order in which RuntimeAuto tries them.
type backends []*backend

// backend is one runtime. It opens at its first use.
type backend struct {
	kind Runtime
	// prefix distinguishes containers of standalone sandboxes; "" for a runtime without an engine.
	prefix string
	open   func() (runtime.SandboxRuntime, error)
}

func (p *backend) capabilities(ctx context.Context) ([]Capability, error) {
	r, err := p.open()
	if err != nil {
		return nil, err
	}
	list, err := r.Capabilities(ctx)
	return list, public(err)
}

// choose returns the backend for a spec without defaults, and its capabilities: the spec's runtime, or the first that meets the spec.
func (bs backends) choose(ctx context.Context, s Spec) (*backend, []Capability, error) {
	var errs []error
	wishes := s.required()
	for _, p := range bs {
		if s.Runtime != p.kind && (s.Runtime != RuntimeAuto || p.kind == RuntimeHost) {
			continue
		}
		if why := p.imageError(s); why != nil {
			errs = append(errs, why)
			continue
		}
		// An image in the spec means a container: a box has its own image.
		if s.Image != "" && s.Runtime == RuntimeAuto && p.kind == RuntimeBox && s.Box == nil {
			errs = append(errs, &UnsupportedError{p.kind, []Capability{CapImage}})
			continue
		}
		has, err := p.capabilities(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("runtime %s: %w", p.kind, err))
			continue
		}
		if err := lacks(p.kind, has, wishes); err != nil {
			errs = append(errs, err)
			continue
		}
		return p, has, nil
	}
	// Errors that a user can fix come first.
	slices.SortStableFunc(errs, func(a, b error) int { return rank(a) - rank(b) })
	err := errors.Join(errs...)
	if errors.Is(err, ErrUnavailable) { // with the engine it may be possible, whatever the other runtimes lack
		err = &kindError{ErrUnavailable, errors.New(err.Error())}
	}
	return nil, nil, err
}

func rank(err error) int {
	if errors.Is(err, ErrUnavailable) {
		return 0
	}
	return 1
}

// imageError returns an error for a container without an image. It also keeps RuntimeAuto from choosing a box for
// another image, or only because no jail is available.
func (p *backend) imageError(s Spec) error {
	boxless := s.Runtime == RuntimeAuto && s.Box == nil && s.Repo == ""
	switch {
	case p.kind == RuntimeContainer && s.Image == "":
		return fmt.Errorf("runtime %s: %w: no image", p.kind, ErrInvalidSpec)
	case p.kind == RuntimeBox && boxless && s.Image != "":
		return fmt.Errorf("runtime %s: %w: name the runtime if %s is the image of a box", p.kind, ErrUnsupported, s.Image)
	case p.kind == RuntimeBox && boxless && s.Network != NetworkRestricted:
		return fmt.Errorf("runtime %s: %w: name the runtime, or use a repository or a network with rules", p.kind, ErrUnsupported)
	}
	return nil
}

func lacks(k Runtime, has, wishes []Capability) error {
	wishes = slices.DeleteFunc(slices.Clone(wishes), func(w Capability) bool { return slices.Contains(has, w) })
	if len(wishes) == 0 {
		return nil
	}
	return &UnsupportedError{k, wishes}
}

// find returns the backend of a runtime; nil if the kind is not available.
func (bs backends) find(k Runtime) *backend {
	if i := slices.IndexFunc(bs, func(p *backend) bool { return p.kind == k }); i >= 0 {
		return bs[i]
	}
	return nil
}

func (p *backend) onEngine() bool { return p.prefix == namePrefix }
