//go:build !linux

package jail

import (
	"context"
	"io"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
)

// none is the runtime on other systems than Linux.
type none struct{}

func newRuntime(string, Options) runtime.SandboxRuntime { return none{} }

const noLinux = unavailableError("jails need Linux: use a container")

func (none) Capabilities(context.Context) ([]runtime.Capability, error)  { return nil, noLinux }
func (none) Create(context.Context, runtime.SandboxSpec) (string, error) { return "", noLinux }
func (none) Start(context.Context, string) error                         { return runtime.ErrNotFound }

func (none) Stream(context.Context, string) (io.ReadWriteCloser, error) {
	return nil, runtime.ErrNotFound
}

func (none) Instances(context.Context, map[string]string) ([]runtime.Instance, error) {
	return nil, nil
}
func (none) Logs(context.Context, string, runtime.LogOptions) error { return runtime.ErrNotFound }
func (none) Stop(context.Context, string, time.Duration) error      { return nil }
func (none) Remove(context.Context, string) error                   { return nil }
