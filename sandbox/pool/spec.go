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

// Access is a level of network access.
type Access string

// Access levels. A sandbox never changes its level.
const (
	// AccessNone has no network except its own loopback.
	AccessNone Access = "sandboxed"
	// AccessNetwork has the engine's network. A container does not reach the host's loopback.
	AccessNetwork Access = "trusted"
)

// Reuse is a reuse policy.
type Reuse string

// Reuse policies.
const (
	// ReuseClean reuses a sandbox if nothing of the previous lease remains.
	ReuseClean Reuse = "clean"
	// ReuseNever creates a sandbox for each lease: for mutually untrusting users.
	ReuseNever Reuse = "never"
)

// Default limits of a lease.
const (
	DefaultMemoryBytes = 512 << 20
	DefaultCPUs        = 1
	DefaultPIDs        = 512
)

// Spec describes a pooled sandbox. The zero value is a container of the pool's image without network.
type Spec struct {
	// Access defaults to AccessNone.
	Access Access `json:"trust,omitempty"`
	// Allow has rules, as sandbox.Spec.Allow. With any, the sandbox reaches only those hosts, whatever its Access.
	Allow []string `json:"allow,omitempty"`
	// Runtime defaults to sandbox.RuntimeContainer; a jail has no image.
	Runtime sandbox.Runtime `json:"runtime,omitempty"`
	// Image is a reference of an image on the engine; "" means Options.Image. It is resolved at each Acquire.
	Image string   `json:"image,omitempty"`
	Root  string   `json:"root,omitempty"` // sandbox.Spec.Root, of a jail
	User  string   `json:"user,omitempty"` // a uid:gid other than root's; "" means 1000:1000
	Env   []string `json:"env,omitempty"`  // has NAME=value entries for each command
	// Mounts are directories and files of the host. Changes to them persist.
	Mounts []sandbox.Mount `json:"mounts,omitempty"`
	// Limits apply to the sandbox; 0 means this package's default, if the runtime can enforce it.
	Limits sandbox.Limits `json:"limits"`
	// Reuse defaults to ReuseClean.
	Reuse Reuse `json:"reuse,omitempty"`
}

// complete returns the spec with defaults, or an error with all mistakes.
func (p *Pool) complete(ctx context.Context, s Spec) (Spec, error) {
	s.Access, s.Reuse = cmp.Or(s.Access, AccessNone), cmp.Or(s.Reuse, ReuseClean)
	if s.Runtime == sandbox.RuntimeAuto {
		s.Runtime = sandbox.RuntimeContainer
	}
	var errs []error
	if s.Access != AccessNone && s.Access != AccessNetwork {
		errs = append(errs, fmt.Errorf("trust %q: use %s or %s", s.Access, AccessNone, AccessNetwork))
	}
	if s.Reuse != ReuseClean && s.Reuse != ReuseNever {
		errs = append(errs, fmt.Errorf("reuse %q: use %s or %s", s.Reuse, ReuseClean, ReuseNever))
	}
	if !slices.Contains([]sandbox.Runtime{sandbox.RuntimeContainer, sandbox.RuntimeJail, sandbox.RuntimeBox}, s.Runtime) {
		errs = append(
			errs,
			fmt.Errorf("runtime %q: use %s, %s or %s", s.Runtime, sandbox.RuntimeContainer, sandbox.RuntimeJail, sandbox.RuntimeBox),
		)
	}
	if s.Runtime == sandbox.RuntimeJail && s.Image != "" {
		errs = append(errs, errors.New("a jail has no image"))
	}
	if err := errors.Join(errs...); err != nil {
		return Spec{}, fmt.Errorf("pool: %w: %w", sandbox.ErrInvalidSpec, err)
	}
	// Validate first: an invalid spec must not evict an idle sandbox.
	checked := s.Sandbox()
	checked.Name = "of-the-pool"
	if s.Runtime == sandbox.RuntimeContainer && p.o.Image != nil {
		checked.Image = cmp.Or(s.Image, "of-the-pool") // building it may take minutes, so that follows the check
	}
	if err := checked.Check(); err != nil {
		return Spec{}, err
	}
	if s.Runtime == sandbox.RuntimeContainer && s.Image == "" && p.o.Image != nil {
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

// key is equal for complete specs whose sandboxes are interchangeable. Images are resolved to ids in them.
func (s Spec) key() string {
	b, _ := json.Marshal(s) // it cannot fail for this type
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// Sandbox returns the spec of the pool's sandboxes.
func (s Spec) Sandbox() sandbox.Spec {
	network := sandbox.NetworkNone
	if s.Access == AccessNetwork {
		network = sandbox.NetworkFull
	}
	if len(s.Allow) > 0 {
		network = sandbox.NetworkRestricted
	}
	sp := sandbox.Spec{
		Runtime: s.Runtime, Image: s.Image, Root: s.Root, User: s.User, Env: s.Env, Mounts: s.Mounts, Limits: s.Limits, Network: network,
		Allow: s.Allow, Lifetime: sandbox.LifetimeEphemeral,
	}
	if s.Runtime == sandbox.RuntimeContainer {
		sp.Nested = true
	}
	sp.Limits.MemoryBytes, sp.Limits.CPUs = cmp.Or(s.Limits.MemoryBytes, DefaultMemoryBytes), cmp.Or(s.Limits.CPUs, DefaultCPUs)
	sp.Limits.PIDs = cmp.Or(s.Limits.PIDs, DefaultPIDs)
	return sp
}
