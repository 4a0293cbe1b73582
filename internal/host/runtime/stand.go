package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/mountid"
	"github.com/sandbox-agent/sandbox-agent/wire"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Stander makes sandboxes without a task and looks after them: each has a guest as its first process, which is reached
// over a stream. The methods may be called concurrently; their errors are those of Runtime. Boxes, Logs, Stop and
// Remove are those of a Runtime.
type Stander interface {
	// Capabilities are what such sandboxes can have here. The error says why there can be none at all: ErrUnavailable where an engine
	// does not answer, ErrIsolation where this machine lacks something.
	Capabilities(ctx context.Context) ([]Capability, error)
	// Stand makes the sandbox and starts it. After an error there is none.
	Stand(ctx context.Context, spec StandSpec) (id string, err error)
	// StartAgain starts one that has ended, with its files. To start a running one is not an error.
	StartAgain(ctx context.Context, id string) error
	// Stream brings a stream to the guest. What stands in the way inside is in the error of Read. ctx bounds the start and not the stream.
	Stream(ctx context.Context, id string) (io.ReadWriteCloser, error)
	Boxes(ctx context.Context, labels map[string]string) ([]Box, error)
	Logs(ctx context.Context, id string, o LogOptions) error
	Stop(ctx context.Context, id string, grace time.Duration) error
	Remove(ctx context.Context, id string) error
}

// LocalFiles is implemented by a Stander whose sandboxes have their files in directories of this machine.
type LocalFiles interface {
	// FilesGone reports whether the directory with a sandbox's files was deleted. StartAgain recreates it, empty.
	FilesGone(id string) bool
}

// Capability is something that a sandbox can be asked to have, and that not every kind of sandbox can give.
type Capability string

// The capabilities of sandboxes.
const (
	CapAnyImage          Capability = "any_image"          // made of any image of the engine
	CapAnyRoot           Capability = "any_root"           // the programs of another folder than this machine's
	CapUsers             Capability = "users"              // commands as another user than the one that makes it
	CapPersistent        Capability = "persistent"         // files outside of mounts stay over a stop
	CapNetworkNone       Capability = "network_none"       // nothing but the loopback
	CapNetworkFull       Capability = "network_full"       // what the machine reaches
	CapNetworkRestricted Capability = "network_restricted" // hosts of a list
	CapNetworkSwitch     Capability = "network_switch"     // another network while it runs
	CapMemory            Capability = "limits_memory"
	CapCPUs              Capability = "limits_cpus"
	CapPIDs              Capability = "limits_pids"
	CapMounts            Capability = "mounts" // folders of this machine
	CapOCIRuntime        Capability = "oci_runtime"
	CapSnapshots         Capability = "snapshots" // its files kept under a name, or in another sandbox
	CapServices          Capability = "services"
	CapDocker            Capability = "inner_docker"
	CapLeases            Capability = "leases"            // clean turns within
	CapRepository        Capability = "repository"        // a repository of this machine checked out
	CapRemote            Capability = "remote_repository" // one of another machine
)

const (
	// LabelSandbox has the name of a sandbox without a task.
	LabelSandbox = "sandbox-agent.sandbox"
	// LabelSnapshot is of images that are files of such sandboxes, and has the snapshot's name.
	LabelSnapshot = "sandbox-agent.snapshot"
)

// StandSpec describes a sandbox without a task.
type StandSpec struct {
	Name  string // what it is called on the engine, or in the state folder
	Image string
	// Root is a folder whose programs it has in place of this machine's; "" is this machine's.
	Root   string
	Labels map[string]string
	// Guest returns the guest's program for an architecture, named as Go names it.
	Guest  func(ctx context.Context, arch string) ([]byte, error)
	Config wire.Config // of the guest; an empty user means the image's
	// NetworkNone leaves out every network but the loopback.
	NetworkNone bool
	OCIRuntime  string // if empty the engine's default
	// MemoryBytes, CPUs and PIDs are limits; 0 means none.
	MemoryBytes int64
	CPUs        float64
	PIDs        int64
	Mounts      []Mount
	// Box is the standing order with its secrets, for a box; nil for sandboxes of other kinds, which are what is above.
	Box *workorder.Envelope
	// Bundle is a file of this machine with the repository of the order, as a bundle of git's; "" where the order has none of this machine.
	Bundle string
	// Throwaway removes the sandbox with its files as soon as it has ended, whatever ended it.
	Throwaway bool
}

// Engine is an engine on which boxes stand: it starts one that has ended again, and brings the stream of a command in it.
type Engine interface {
	Runtime
	// StartWith starts a box that has ended, writes stdin to its standard input and closes that.
	StartWith(ctx context.Context, id string, stdin io.Reader) error
	// StreamOf runs a command in a box as root: its standard input and output are the stream. What it says of an error
	// is in that of Read. ctx bounds the start and not the stream.
	StreamOf(ctx context.Context, id string, argv []string) (io.ReadWriteCloser, error)
}

// Mount is a directory or file of this machine in a sandbox; both paths are absolute. Jails store it under the names below.
type Mount struct {
	Source   string `json:"Host"`
	Target   string `json:"Inside"`
	ReadOnly bool
}

// Renewer is a Stander whose sandboxes have the guest and its configuration among their own files.
type Renewer interface {
	// Renew writes both into a sandbox that has ended, before StartAgain: they name what is mounted now. It changes
	// nothing of one that runs, or was never started.
	Renew(ctx context.Context, id string, spec StandSpec) error
}

// Hold holds the sources of mounts, and returns a configuration with which the guest verifies them. The caller closes
// held when the sandbox has started.
func Hold(mounts []Mount, config wire.Config) (held *mountid.Held, verified wire.Config, err error) {
	all := make([]mountid.Mount, len(mounts))
	for i, m := range mounts {
		all[i] = mountid.Mount(m)
	}
	if held, err = mountid.Hold(all); err != nil {
		return nil, config, fmt.Errorf("%w: %w", ErrMount, err)
	}
	config.Mounts, config.Kernel = held.IDs, ""
	if len(held.IDs) > 0 {
		config.Kernel = held.Kernel
	}
	return held, config, nil
}

// ErrUnfinished means that a sandbox was never started: who made it is at it, or was killed.
var ErrUnfinished = errors.New("it was never finished")

// ErrEnded means that no guest serves in a sandbox, which may still exist.
var ErrEnded = errors.New("it has ended")

// ErrMount means that a folder of this machine cannot be in a sandbox.
var ErrMount = errors.New("cannot be mounted")
