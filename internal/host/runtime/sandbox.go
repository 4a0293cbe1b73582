package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/safeopen"
	"github.com/sandbox-agent/sandbox-agent/wire"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// SandboxRuntime creates and manages standalone sandboxes. Their first process is a guest, which the host reaches over a
// stream. Methods may be called concurrently and return the errors of Runtime.
type SandboxRuntime interface {
	// Capabilities returns what the runtime supports on this machine. The error is ErrUnavailable if the engine does not
	// answer, ErrIsolation if this machine lacks a requirement.
	Capabilities(ctx context.Context) ([]Capability, error)
	// Create creates a sandbox and starts it. It leaves none after an error.
	Create(ctx context.Context, spec SandboxSpec) (id string, err error)
	// Start restarts a stopped sandbox with its files. It is not an error if the sandbox runs.
	Start(ctx context.Context, id string) error
	// Stream connects to the guest. Read returns errors from inside the sandbox. ctx bounds only the connection attempt.
	Stream(ctx context.Context, id string) (io.ReadWriteCloser, error)
	Instances(ctx context.Context, labels map[string]string) ([]Instance, error)
	Logs(ctx context.Context, id string, o LogOptions) error
	Stop(ctx context.Context, id string, grace time.Duration) error
	Remove(ctx context.Context, id string) error
}

// LocalFiles is a SandboxRuntime whose sandboxes have their files in directories of the host.
type LocalFiles interface {
	// FilesGone reports whether the directory with a sandbox's files was deleted. Start recreates it without files.
	FilesGone(id string) bool
}

// Capability is a feature that a SandboxSpec can require and not every runtime has.
type Capability string

// The capabilities of sandboxes.
const (
	CapImage             Capability = "image"              // any image of the engine
	CapRootFS            Capability = "rootfs"             // programs of another directory than this machine's
	CapUser              Capability = "user"               // commands of another user than the sandbox's creator
	CapPersistent        Capability = "persistent"         // a stop keeps files outside of mounts
	CapNetworkNone       Capability = "network_none"       // the loopback only
	CapNetworkFull       Capability = "network_full"       // everything that the machine reaches
	CapNetworkRestricted Capability = "network_restricted" // hosts of a list
	CapNetworkProxy      Capability = "network_proxy"      // hosts of a list, by a proxy in the program that made the sandbox
	CapNetworkUpdate     Capability = "network_update"     // a change of the network policy while the sandbox runs
	CapMemory            Capability = "limits_memory"
	CapCPUs              Capability = "limits_cpus"
	CapPIDs              Capability = "limits_pids"
	CapMounts            Capability = "mounts" // directories of this machine
	CapOCIRuntime        Capability = "oci_runtime"
	CapSnapshots         Capability = "snapshots" // snapshots and forks of files
	CapServices          Capability = "services"
	CapDocker            Capability = "docker"
	CapNested            Capability = "nested"
	CapRepository        Capability = "repository"        // a checkout of a repository of this machine
	CapRemoteRepository  Capability = "remote_repository" // a checkout of another machine's repository
)

// Labels of standalone sandboxes.
const (
	LabelSandbox = "sandbox-agent.sandbox" // has the name of a standalone sandbox
	// LabelSnapshot is of images that are files of such sandboxes, and has the snapshot's name.
	LabelSnapshot = "sandbox-agent.snapshot"
)

// Limits are limits of a sandbox; 0 means none.
type Limits struct {
	MemoryBytes int64   `json:"memory_bytes,omitempty"`
	CPUs        float64 `json:"cpus,omitempty"`
	PIDs        int64   `json:"pids,omitempty"` // processes and threads
}

// SandboxSpec describes a standalone sandbox to create.
type SandboxSpec struct {
	Name   string // on the engine, or in the state directory
	Image  string
	Root   string // a directory from which a jail takes its programs; "" means the host's
	Labels map[string]string
	// Guest returns the guest's program for an architecture, named as Go names it.
	Guest  func(ctx context.Context, arch string) ([]byte, error)
	Config wire.Config // of the guest; an empty user means the image's
	// NetworkNone leaves out every network but the loopback.
	NetworkNone bool
	OCIRuntime  string // if empty the engine's default
	Limits
	Mounts []Mount
	Box    *workorder.Envelope // the order with its secrets for runtime box; nil for other runtimes
	// Bundle is the path on the host of a git bundle with the order's repository; "" if it is not a repository of the host.
	Bundle string
	// Throwaway removes the sandbox with its files when it ends.
	Throwaway bool
}

// ContainerEngine is an engine that can restart a box and connect to a command in it.
type ContainerEngine interface {
	Runtime
	// StartWithInput restarts a stopped box, writes stdin to its standard input and closes it.
	StartWithInput(ctx context.Context, id string, stdin io.Reader) error
	// ExecStream runs a command in a box as root and returns its standard input and output. Read returns the command's errors.
	// ctx bounds only the start.
	ExecStream(ctx context.Context, id string, argv []string) (io.ReadWriteCloser, error)
}

// Mount is a directory or file of the host in a sandbox, with absolute paths. Records of jails have the JSON names.
type Mount struct {
	Source   string `json:"Host"`
	Target   string `json:"Inside"`
	ReadOnly bool
}

// Renewer is a SandboxRuntime whose sandboxes contain the guest and its configuration.
type Renewer interface {
	// Renew writes both into a stopped sandbox before Start, since they name its current mounts. It does not change a running
	// sandbox, or one that was never started.
	Renew(ctx context.Context, id string, spec SandboxSpec) error
}

// Hold opens the sources of mounts, and returns a configuration with which the guest verifies them. The caller closes held when
// the sandbox has started.
func Hold(mounts []Mount, config wire.Config) (held *safeopen.Held, verified wire.Config, err error) {
	all := make([]safeopen.Mount, len(mounts))
	for i, m := range mounts {
		all[i] = safeopen.Mount(m)
	}
	if held, err = safeopen.Hold(all); err != nil {
		return nil, config, fmt.Errorf("%w: %w", ErrInvalidMount, err)
	}
	config.Mounts, config.Kernel = held.IDs, ""
	if len(held.IDs) > 0 {
		config.Kernel = held.Kernel
	}
	return held, config, nil
}

// ErrNotStarted means that a sandbox was never started: its creation is in progress, or was killed.
var ErrNotStarted = errors.New("creation not completed")

// ErrExited means that the sandbox has no running guest. The sandbox may still exist.
var ErrExited = errors.New("exited")

// ErrInvalidMount means that a mount is not possible.
var ErrInvalidMount = errors.New("invalid mount")
