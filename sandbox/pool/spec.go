package pool

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// Trust says what a lease may reach.
type Trust string

// The levels of trust. A sandbox has one for as long as it is there.
const (
	// Sandboxed has no network but a loopback of its own.
	Sandboxed Trust = "sandboxed"
	// Trusted has the engine's network. The loopback of this machine is not in reach of a container.
	Trusted Trust = "trusted"
)

// Reuse says whether a sandbox is lent again.
type Reuse string

// What there is to choose from.
const (
	// ReuseClean lends it again where nothing is left of the lease before.
	ReuseClean Reuse = "clean"
	// ReuseNever makes a new one for each lease: for users who are enemies of each other.
	ReuseNever Reuse = "never"
)

// Defaults of a lease's limits.
const (
	DefaultMemoryBytes = 512 << 20
	DefaultCPUs        = 1
	DefaultPIDs        = 512
)

// Spec is what is asked of a pool. The zero value is a container of the pool's image without a network.
type Spec struct {
	// Trust is Sandboxed if empty.
	Trust Trust `json:"trust,omitempty"`
	// Runtime is sandbox.KindContainer if empty; a jail has no image.
	Runtime sandbox.Kind `json:"runtime,omitempty"`
	// Image is one that the engine has; "" means Options.Image. What its name means when a lease is asked for counts.
	Image string `json:"image,omitempty"`
	// Root is sandbox.Spec.Root, of a jail.
	Root string `json:"root,omitempty"`
	// User is uid:gid of another than root; "" means 1000:1000.
	User string `json:"user,omitempty"`
	// Env is NAME=value, of each command.
	Env []string `json:"env,omitempty"`
	// Mounts are folders and files of this machine. What is written to them stays.
	Mounts []sandbox.Mount `json:"mounts,omitempty"`
	// Limits are of the sandbox; 0 means the defaults of this package, as far as the runtime can hold them.
	Limits sandbox.Limits `json:"limits"`
	// Reuse is ReuseClean if empty.
	Reuse Reuse `json:"reuse,omitempty"`
}

// complete returns the spec with defaults, or all that is wrong with it.
func (p *Pool) complete(ctx context.Context, s Spec) (Spec, error) {
	s.Trust, s.Reuse = cmp.Or(s.Trust, Sandboxed), cmp.Or(s.Reuse, ReuseClean)
	if s.Runtime == sandbox.Auto {
		s.Runtime = sandbox.KindContainer
	}
	var errs []error
	if s.Trust != Sandboxed && s.Trust != Trusted {
		errs = append(errs, fmt.Errorf("trust %q: use %s or %s", s.Trust, Sandboxed, Trusted))
	}
	if s.Reuse != ReuseClean && s.Reuse != ReuseNever {
		errs = append(errs, fmt.Errorf("reuse %q: use %s or %s", s.Reuse, ReuseClean, ReuseNever))
	}
	if !slices.Contains([]sandbox.Kind{sandbox.KindContainer, sandbox.KindJail, sandbox.KindBox}, s.Runtime) {
		errs = append(errs, fmt.Errorf("runtime %q: use %s, %s or %s", s.Runtime, sandbox.KindContainer, sandbox.KindJail, sandbox.KindBox))
	}
	if s.Runtime == sandbox.KindJail && s.Image != "" {
		errs = append(errs, errors.New("a jail has no image"))
	}
	if err := errors.Join(errs...); err != nil {
		return Spec{}, fmt.Errorf("what is asked of the pool is %w: %w", sandbox.ErrSpec, err)
	}
	// What is wrong makes no room for itself.
	checked := s.Sandbox()
	checked.Name = "of-the-pool"
	if s.Runtime == sandbox.KindContainer && p.o.Image != nil {
		checked.Image = cmp.Or(s.Image, "of-the-pool") // making it may take minutes, so it comes after the check
	}
	if err := checked.Check(); err != nil {
		return Spec{}, err
	}
	if s.Runtime == sandbox.KindContainer && s.Image == "" && p.o.Image != nil {
		img, err := p.o.Image(ctx)
		if err != nil {
			return Spec{}, fmt.Errorf("the pool's image: %w", err)
		}
		s.Image = img
	}
	if s.Image != "" {
		id, err := p.m.ImageID(ctx, s.Image)
		if err != nil {
			return Spec{}, err
		}
		s.Image = id
	}
	return s, nil
}

// key is the same for complete specs whose sandboxes can stand for each other: an image is its id in them, so that a name which has moved is another image.
func (s Spec) key() string {
	b, _ := json.Marshal(s) // of such a type it never fails
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// Sandbox is the spec of its sandboxes.
func (s Spec) Sandbox() sandbox.Spec {
	network := sandbox.NetworkNone
	if s.Trust == Trusted {
		network = sandbox.NetworkFull
	}
	sp := sandbox.Spec{
		Runtime: s.Runtime, Image: s.Image, Root: s.Root, User: s.User, Env: s.Env, Mounts: s.Mounts, Limits: s.Limits, Network: network, Lifetime: sandbox.Session,
	}
	if s.Runtime == sandbox.KindContainer {
		sp.Leases = true
	}
	sp.Limits.MemoryBytes, sp.Limits.CPUs, sp.Limits.PIDs = cmp.Or(s.Limits.MemoryBytes, DefaultMemoryBytes), cmp.Or(s.Limits.CPUs, DefaultCPUs), cmp.Or(s.Limits.PIDs, DefaultPIDs)
	return sp
}
