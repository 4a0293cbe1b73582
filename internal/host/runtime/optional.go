package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// The interfaces of this file are abilities: what some runtimes have beyond Runtime. Callers ask for one by type
// assertion and work without it, or return ErrUnsupported. The methods may be called concurrently, and their errors
// are those of Runtime: ErrNotFound for an absent box or image, ErrUnavailable for a silent engine.

// ErrUnsupported reports that the runtime does not have the ability.
var ErrUnsupported = errors.New("this runtime cannot do it")

// Copier moves files between a box and this machine. The box may be running or stopped.
type Copier interface {
	// CopyOut returns a folder or file of the box as a tar stream whose names start
	// with its base name. The caller closes it.
	CopyOut(ctx context.Context, id, path string) (io.ReadCloser, error)
	// CopyIn unpacks a tar stream into an existing folder of the box.
	CopyIn(ctx context.Context, id, dir string, tarball io.Reader) error
}

// Execer runs commands in boxes that run.
type Execer interface {
	// Exec runs a command to its end and returns its exit code. An error means that the command did not run, or that
	// its end is not known. When ctx ends, Exec returns, and the command runs on until the box ends.
	Exec(ctx context.Context, id string, c ExecSpec) (code int, err error)
}

// ExecSpec is a command for Exec.
type ExecSpec struct {
	Argv []string // with the program first
	User string   // name, uid or uid:gid of the box; if empty that of the box's first process
	Dir  string   // if empty that of the box's first process
	Env  []string // NAME=value, added to that of the box
	// Stdin is copied to the command's input and then closed; nil if there is none. When the command has ended, Exec does not
	// wait for a pending read of it.
	Stdin          io.Reader
	Stdout, Stderr io.Writer // if nil, the output is dropped
	// Terminal gives the command a terminal, whose output all goes to Stdout, and whose input has no end; nil means pipes.
	Terminal *Terminal
}

// Terminal is what a command sees of the user's terminal.
type Terminal struct {
	Size    Size
	Resized <-chan Size // its later sizes; nil if it keeps the first
}

// Size is that of a terminal, in characters.
type Size struct{ Width, Height uint }

// ImageStore holds the images of boxes and their services.
type ImageStore interface {
	// ImageID returns "" for an image that the engine does not have.
	ImageID(ctx context.Context, ref string) (string, error)
	// SaveImage streams an image as a docker archive. The caller closes it.
	SaveImage(ctx context.Context, ref string) (io.ReadCloser, error)
}

// ImageEnsurer is a SandboxRuntime that can pull or build the image of a sandbox ahead of time.
type ImageEnsurer interface {
	// EnsureImage pulls or builds an image unless the engine has it. spec has the packages and tools of a box's image.
	// progress receives one line per step.
	EnsureImage(ctx context.Context, name string, spec *workorder.BoxSpec, progress func(line string)) error
}

// Volumes manages the volumes that boxes share, or leave beside their container.
type Volumes interface {
	// Volumes lists the unused volumes that carry all labels.
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

// Committer makes images of boxes.
type Committer interface {
	// Commit makes an image of the box's file system, without its volumes, under the name ref and returns its id. The
	// image starts the same program as the box's image. A running box is paused meanwhile.
	Commit(ctx context.Context, id, ref string) (imageID string, err error)
}

// Pauser halts boxes: a paused one keeps its memory and uses no processor.
type Pauser interface {
	// Pause halts a running box. To pause a paused one is not an error.
	Pause(ctx context.Context, id string) error
	// Resume continues a paused box. To resume a running one is not an error.
	Resume(ctx context.Context, id string) error
}

// Prober runs commands in short-lived boxes.
type Prober interface {
	// Probe runs a command in a throw-away box that is confined like a real one, and returns its output. The error is
	// the engine's if the box could not be started.
	Probe(ctx context.Context, spec ContainerSpec, argv []string) (string, error)
}

// PolicySetter changes the network policy of standalone sandboxes, running or stopped. The runtime keeps it over a stop, in
// Instance.Network.
type PolicySetter interface {
	// SetNetwork changes the policy at once; connections of SandboxRuntime.Stream continue. A mode that the runtime does not
	// support is ErrUnsupported. It is not an error to set the current mode.
	SetNetwork(ctx context.Context, id string, n workorder.NetworkPolicy) error
}

// Snapshot is what a standalone sandbox had in its file system.
type Snapshot struct {
	Ref     string // names it, for SandboxSpec.Image as well
	ID      string
	Labels  map[string]string
	Bytes   int64 // that no other snapshot or image has
	Created time.Time
	// Omitted are the folders that are not in it: of this machine, and volumes. Only Snapshot tells them.
	Omitted []string
}

// ErrInUse means that a sandbox is made of a snapshot.
var ErrInUse = errors.New("a sandbox is made of it")

// Snapshotter keeps the files of standalone sandboxes.
type Snapshotter interface {
	// Snapshot keeps a sandbox's files under a name, and takes that of another snapshot. The sandbox's own labels are
	// the snapshot's too, but LabelSandbox; those given come on top. A running sandbox is halted meanwhile.
	Snapshot(ctx context.Context, id, ref string, labels map[string]string) (Snapshot, error)
	// Snapshots lists those that carry all the labels.
	Snapshots(ctx context.Context, labels map[string]string) ([]Snapshot, error)
	// RemoveSnapshot removes a snapshot by its name or id. One that is gone is ErrNotFound, one that a sandbox is made of ErrInUse.
	RemoveSnapshot(ctx context.Context, ref string) error
}

// CopierOf is the runtime's Copier; if it has none, every copy returns ErrUnsupported.
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
