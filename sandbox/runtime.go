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

// Kind names what isolates a sandbox.
type Kind string

// The kinds of sandboxes.
const (
	// Auto is the first kind that can give what a Spec asks for.
	Auto Kind = ""
	// KindJail is processes of this machine in bubblewrap, with its programs: it needs no engine and has no image.
	KindJail Kind = "jail"
	// KindContainer is a container of the engine, of any image.
	KindContainer Kind = "container"
	// KindBox is a task's box without a task: our image, with an engine of its own inside, services, a network by names and a gateway to models.
	KindBox Kind = "box"
	// KindHost is this machine itself, with nothing between: never chosen by Auto, and refused unless Options.AllowHost or the configuration allows it.
	KindHost Kind = "host"
)

// aliases are names that others give to our kinds.
var aliases = map[string]Kind{"auto": Auto, "docker": KindContainer, "dind": KindBox, "bwrap": KindJail, "noop": KindHost}

// refused are names of what could isolate a sandbox and does not here, with the reason.
var refused = map[string]string{
	"podman":  "podman is an engine: point DOCKER_HOST at its API and use the runtime container",
	"nspawn":  "systemd-nspawn gives nothing that a jail does not",
	"apple":   "Apple's containers were never tried",
	"microvm": "no machine with virtualization was there to try it",
}

// ParseKind reads the name of a kind, or one that others give to it. The error holds ErrUnsupported for a name that is known and refused, else ErrSpec.
func ParseKind(name string) (Kind, error) {
	if k, ok := aliases[name]; ok {
		return k, nil
	}
	if slices.Contains(kinds, Kind(name)) {
		return Kind(name), nil
	}
	if why, ok := refused[name]; ok {
		return "", fmt.Errorf("runtime %s: %w: %s", name, ErrUnsupported, why)
	}
	return "", fmt.Errorf("runtime %q is %w: there are %s", name, ErrSpec, strings.Join(kindNames(), ", "))
}

// kinds are all, in the order in which Auto tries them; the last is chosen by name only.
var kinds = []Kind{KindJail, KindContainer, KindBox, KindHost}

// Kinds are all kinds of sandboxes, in the order in which Auto tries them.
func Kinds() []Kind { return slices.Clone(kinds) }

func kindNames() []string {
	names := make([]string, 0, len(kinds))
	for _, k := range kinds {
		names = append(names, string(k))
	}
	return names
}

// Capability is something that a sandbox can be asked to have, and that not every kind of sandbox can give.
type Capability string

// The capabilities of sandboxes.
const (
	CapAnyImage          = Capability(runtime.CapAnyImage)          // made of any image of the engine
	CapAnyRoot           = Capability(runtime.CapAnyRoot)           // Spec.Root
	CapUsers             = Capability(runtime.CapUsers)             // commands as another user than the one that makes it
	CapPersistent        = Capability(runtime.CapPersistent)        // files outside of mounts stay over a stop
	CapNetworkNone       = Capability(runtime.CapNetworkNone)       // nothing but the loopback
	CapNetworkFull       = Capability(runtime.CapNetworkFull)       // what the machine reaches
	CapNetworkRestricted = Capability(runtime.CapNetworkRestricted) // hosts of a list
	CapNetworkSwitch     = Capability(runtime.CapNetworkSwitch)     // another network while it runs
	CapMemory            = Capability(runtime.CapMemory)            // Limits.MemoryBytes
	CapCPUs              = Capability(runtime.CapCPUs)              // Limits.CPUs
	CapPIDs              = Capability(runtime.CapPIDs)              // Limits.PIDs
	CapMounts            = Capability(runtime.CapMounts)            // folders of this machine
	CapOCIRuntime        = Capability(runtime.CapOCIRuntime)        // Spec.OCIRuntime
	CapSnapshots         = Capability(runtime.CapSnapshots)         // its files kept under a name, or in another sandbox
	CapServices          = Capability(runtime.CapServices)          // Spec.Box: databases and the like beside it
	CapDocker            = Capability(runtime.CapDocker)            // an engine of its own inside
	CapRepository        = Capability(runtime.CapRepository)        // Spec.Repo of this machine
	CapRemote            = Capability(runtime.CapRemote)            // Spec.Repo of another machine
	CapLeases            = Capability(runtime.CapLeases)            // Spec.Leases
)

// UnsupportedError says which wishes of a Spec a kind of sandbox cannot fulfil here. It holds ErrUnsupported.
type UnsupportedError struct {
	Kind   Kind
	Wishes []Capability
}

func (e *UnsupportedError) Error() string {
	wishes := make([]string, 0, len(e.Wishes))
	for _, w := range e.Wishes {
		wishes = append(wishes, string(w))
	}
	return fmt.Sprintf("runtime %s cannot give %s here", e.Kind, strings.Join(wishes, ", "))
}

// Unwrap makes it an ErrUnsupported.
func (e *UnsupportedError) Unwrap() error { return ErrUnsupported }

// RuntimeInfo is a row of Manager.Runtimes.
type RuntimeInfo struct {
	Kind    Kind `json:"kind"`
	Healthy bool `json:"healthy"`
	// Reason is why there can be no such sandbox here; "" where there can.
	Reason       string       `json:"reason,omitempty"`
	Capabilities []Capability `json:"capabilities,omitempty"`
}

// Runtimes says of each kind whether there can be such sandboxes here, and what they can have. They are asked at the same time.
func (m *Manager) Runtimes(ctx context.Context) []RuntimeInfo { return m.RuntimesOf(ctx, kinds...) }

// RuntimesOf is Runtimes of some kinds.
func (m *Manager) RuntimesOf(ctx context.Context, some ...Kind) []RuntimeInfo {
	all := make([]RuntimeInfo, 0, len(some))
	for _, p := range m.all {
		if slices.Contains(some, p.kind) {
			all = append(all, RuntimeInfo{Kind: p.kind})
		}
	}
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			caps, err := m.place(all[i].Kind).capabilities(ctx)
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

// place is where sandboxes of a kind are. It opens what they are made by when it is used first.
type place struct {
	kind Kind
	// prefix sets the names of sandboxes apart from those of others.
	prefix string
	open   func() (runtime.Stander, error)
}

func (p *place) capabilities(ctx context.Context) ([]Capability, error) {
	r, err := p.open()
	if err != nil {
		return nil, err
	}
	list, err := r.Capabilities(ctx)
	if err != nil {
		return nil, public(err)
	}
	all := make([]Capability, 0, len(list))
	for _, c := range list {
		all = append(all, Capability(c))
	}
	return all, nil
}

// choose is the place for a spec as it was before defaults were filled in, with what it has: that of the kind, or the first that lacks nothing.
func (m *Manager) choose(ctx context.Context, s Spec) (*place, []Capability, error) {
	var errs []error
	wishes := s.wishes()
	for _, p := range m.all {
		if s.Runtime != p.kind && (s.Runtime != Auto || p.kind == KindHost) {
			continue
		}
		if why := p.imageError(s); why != nil {
			errs = append(errs, why)
			continue
		}
		if s.Image != "" && s.Runtime == Auto && p.kind == KindBox && !s.wantsBox() { // whoever names an image wants that, and a box is made of ours
			errs = append(errs, &UnsupportedError{p.kind, []Capability{CapAnyImage}})
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
	// First what may be mended.
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

// imageError says that a spec without an image is no container; and that Auto makes no box of an image that is not a box's own, or for want of a jail.
func (p *place) imageError(s Spec) error {
	boxless := s.Runtime == Auto && !s.wantsBox() && s.Repo == ""
	switch {
	case p.kind == KindContainer && s.Image == "":
		return fmt.Errorf("runtime %s: it is %w: there is no image", p.kind, ErrSpec)
	case p.kind == KindBox && boxless && s.Image != "":
		return fmt.Errorf("runtime %s: %w: it is named where image %s is a box's", p.kind, ErrUnsupported, s.Image)
	case p.kind == KindBox && boxless && s.Network != NetworkRestricted:
		return fmt.Errorf("runtime %s: %w: it is named, or chosen for a repository or a network by names", p.kind, ErrUnsupported)
	}
	return nil
}

func lacks(k Kind, has, wishes []Capability) error {
	wishes = slices.DeleteFunc(slices.Clone(wishes), func(w Capability) bool { return slices.Contains(has, w) })
	if len(wishes) == 0 {
		return nil
	}
	return &UnsupportedError{k, wishes}
}

// place is where sandboxes of a kind are; nil for a kind that is not there.
func (m *Manager) place(k Kind) *place {
	if i := slices.IndexFunc(m.all, func(p *place) bool { return p.kind == k }); i >= 0 {
		return m.all[i]
	}
	return nil
}

// onEngine reports whether its sandboxes are containers of the engine.
func (p *place) onEngine() bool { return p.prefix == namePrefix }
