package runtime

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// The interfaces of this file are optional abilities of a runtime. Callers use a type assertion, and do without the ability
// or return ErrUnsupported. Methods may be called concurrently and return the errors of Runtime.

// ErrUnsupported means that the runtime does not have the ability.
var ErrUnsupported = errors.New("not supported by this runtime")

// Copier moves files between the host and a running or stopped box.
type Copier interface {
	OutCopier
	// CopyIn unpacks a tar stream into an existing directory of the box.
	CopyIn(ctx context.Context, id, dir string, tarball io.Reader) error
}

// OutCopier reads files of a running or stopped box.
type OutCopier interface {
	// CopyOut returns a directory or file of the box as a tar stream whose names start with its base name. The caller closes it.
	CopyOut(ctx context.Context, id, path string) (io.ReadCloser, error)
}

// Execer runs commands in running boxes.
type Execer interface {
	// Exec runs a command to its end and returns its exit code. An error means that the command did not run, or that its end
	// is unknown. When ctx ends, Exec returns while the command continues.
	Exec(ctx context.Context, id string, c ExecSpec) (code int, err error)
}

// HandOver is a runtime that may still be passing on input of Run when Run returns.
type HandOver interface {
	// HandedOver waits until all input is passed on. A process that ends before that may cut it off.
	HandedOver()
}

// ExecSpec is a command for Exec.
type ExecSpec struct {
	Argv []string // program and arguments
	User string   // name, uid or uid:gid of the box; if empty that of the box's first process
	Dir  string   // if empty that of the box's first process
	Env  []string // NAME=value, added to that of the box
	// Stdin is copied to the command's input, which is then closed; nil means no input. Exec does not wait for a pending read
	// of Stdin when the command has ended.
	Stdin          io.Reader
	Stdout, Stderr io.Writer // nil discards the output
	// Terminal, if non-nil, gives the command a terminal instead of pipes. Its output goes to Stdout, and its input has no end.
	Terminal *Terminal
}

// Terminal describes the user's terminal.
type Terminal struct {
	Size    Size
	Resized <-chan Size // later sizes; nil if it is not resized
}

// Size is a terminal's size in characters.
type Size struct{ Width, Height uint }

// ImageStore stores images of boxes and their services.
type ImageStore interface {
	// ImageID returns an image's id; "" if the engine does not have it.
	ImageID(ctx context.Context, ref string) (string, error)
	// SaveImage streams an image as a docker archive. The caller closes it.
	SaveImage(ctx context.Context, ref string) (io.ReadCloser, error)
}

// ImageEnsurer is a SandboxRuntime that can provide the image of a sandbox ahead of time.
type ImageEnsurer interface {
	// EnsureImage pulls or builds an image unless the engine has it. spec has the packages and tools of a box's image.
	// progress receives one line per step.
	EnsureImage(ctx context.Context, name string, spec *workorder.BoxSpec, progress func(line string)) error
}

// Volumes manages the engine's volumes.
type Volumes interface {
	// Volumes lists the unused volumes with all the labels.
	Volumes(ctx context.Context, labels map[string]string) ([]Volume, error)
	// RemoveVolume removes an unused volume.
	RemoveVolume(ctx context.Context, name string) error
}

// Volume is a volume of the engine.
type Volume struct {
	Name    string
	Labels  map[string]string
	Created time.Time
}

// Prober runs a command in a temporary container.
type Prober interface {
	// Probe runs a command in a temporary box with a task's confinement, and returns its output. The error is the engine's if
	// the box did not start.
	Probe(ctx context.Context, spec ContainerSpec, argv []string) (string, error)
}

// PolicySetter changes the network policy of running and stopped sandboxes. The policy, in Instance.Network, survives a stop.
type PolicySetter interface {
	// SetNetwork changes the policy at once; connections of SandboxRuntime.Stream continue. A mode that the runtime does not
	// support is ErrUnsupported. It is not an error to set the current mode.
	SetNetwork(ctx context.Context, id string, n workorder.NetworkPolicy) error
}

// Snapshot is the stored file system of a standalone sandbox.
type Snapshot struct {
	Ref     string // its name, also valid for SandboxSpec.Image
	ID      string
	Labels  map[string]string
	Bytes   int64 // not shared with other snapshots or images
	Created time.Time
	// Omitted are the mounts and volumes, which are not part of it. Only Snapshotter.Snapshot sets it.
	Omitted []string
}

// ErrInUse means that a sandbox uses a snapshot.
var ErrInUse = errors.New("in use by a sandbox")

// Snapshotter stores the files of standalone sandboxes.
type Snapshotter interface {
	// Snapshot stores a sandbox's files under a name, which it takes from another snapshot. The snapshot has the sandbox's
	// labels except LabelSandbox, and the given ones. A running sandbox is paused meanwhile.
	Snapshot(ctx context.Context, id, ref string, labels map[string]string) (Snapshot, error)
	// Snapshots lists the snapshots with all the labels.
	Snapshots(ctx context.Context, labels map[string]string) ([]Snapshot, error)
	// RemoveSnapshot removes a snapshot by name or id. It returns ErrNotFound or ErrInUse.
	RemoveSnapshot(ctx context.Context, ref string) error
}

// ReadFile returns the beginning of a regular file of a box, most bytes at most; nil without an error if there is none.
func ReadFile(ctx context.Context, c OutCopier, id, path string, most int64) (b []byte, err error) {
	r, err := c.CopyOut(ctx, id, path)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer r.Close()
	t := tar.NewReader(r)
	h, err := t.Next()
	if err == nil && h.Typeflag != tar.TypeReg {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err == nil {
		b, err = io.ReadAll(io.LimitReader(t, most))
	}
	return b, err
}

// CopierOf returns the runtime's Copier, or one that always returns ErrUnsupported.
func CopierOf(r Runtime) Copier {
	if c, ok := r.(Copier); ok {
		return c
	}
	return noCopier{}
}

type noCopier struct{}

func (noCopier) CopyOut(context.Context, string, string) (io.ReadCloser, error) {
	return nil, fmt.Errorf("copy files out of the sandbox: %w", ErrUnsupported)
}

func (noCopier) CopyIn(context.Context, string, string, io.Reader) error {
	return fmt.Errorf("copy files into the sandbox: %w", ErrUnsupported)
}
