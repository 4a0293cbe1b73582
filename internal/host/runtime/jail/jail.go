// Package jail makes sandboxes that are processes of this machine: in bubblewrap, with the filter of system calls that
// commands in boxes have, or held by nothing at all. Neither needs an engine. Each has a folder below the state folder,
// with a record of it, the socket of its guest and what stays of its files, and a shim (internal/jailshim) for a parent.
package jail

import (
	"context"

	"github.com/sandbox-agent/sandbox-agent/image"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
)

// Options are where sandboxes are, and who may have them.
type Options struct {
	// State is the state folder.
	State  string
	Getenv func(string) string
	// Guest returns the guest's program for an architecture, named as Go names it.
	Guest func(ctx context.Context, arch string) (image.PackedGuest, error)
	// Allowed says of a sandbox that nothing holds why there must be none; nil where there may be.
	Allowed func() error
}

// Kinds of sandboxes, in their records.
const (
	kindJail    = "jail"
	kindMachine = "host"
)

// New returns what makes jails. It looks at nothing.
func New(o Options) runtime.SandboxRuntime { return newRuntime(kindJail, o) }

// NewHost returns the runtime host, whose sandboxes are not isolated from the machine. It probes nothing.
func NewHost(o Options) runtime.SandboxRuntime { return newRuntime(kindMachine, o) }

// unavailableError is why the runtime is not available on this machine.
type unavailableError string

func (u unavailableError) Error() string { return string(u) }

// Unwrap makes it a runtime.ErrIsolation, whose text is of engines.
func (u unavailableError) Unwrap() error { return runtime.ErrIsolation }
