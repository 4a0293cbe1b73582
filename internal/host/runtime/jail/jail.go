// Package jail provides the runtimes jail (processes in bubblewrap) and host (processes without isolation), without an engine.
//
// Each sandbox has a directory in the state directory, with its record, its guest's socket and its files, and a shim
// (internal/jailshim) as its parent process.
package jail

import (
	"context"

	"github.com/sandbox-agent/sandbox-agent/image"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
)

// Options configure the runtimes jail and host.
type Options struct {
	State  string // the state directory
	Getenv func(string) string
	// Guest returns the guest's program for an architecture, named as Go names it.
	Guest func(ctx context.Context, arch string) (image.Packed, error)
	// Allowed returns an error if sandboxes without isolation are not allowed.
	Allowed func() error
}

// Values of record.Kind.
const (
	kindJail    = "jail"
	kindMachine = "host"
)

// New returns the runtime jail. It probes nothing.
func New(o Options) runtime.SandboxRuntime { return newRuntime(kindJail, o) }

// NewHost returns the runtime host, whose sandboxes are not isolated from the machine. It probes nothing.
func NewHost(o Options) runtime.SandboxRuntime { return newRuntime(kindMachine, o) }

// unavailableError is the reason why the runtime is not available on this machine.
type unavailableError string

func (u unavailableError) Error() string { return string(u) }

// Unwrap returns runtime.ErrIsolation, whose text is about engines.
func (u unavailableError) Unwrap() error { return runtime.ErrIsolation }
