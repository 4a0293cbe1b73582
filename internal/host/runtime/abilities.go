package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// The interfaces of this file are abilities: what some runtimes have beyond Runtime. Callers ask for one by type
// assertion and do without it, or say by ErrUnsupported what is missing. Their methods may be called concurrently, and
// their errors are those of Runtime: ErrNotFound for an absent box or image, ErrUnavailable for a silent engine.

// ErrUnsupported says that the runtime has not the ability that was asked for.
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
	// Exec runs a command to its end and returns its exit code. An error says that the command did not run, or that its
	// end is not known. When ctx ends Exec returns, and the command goes on until the box ends.
	Exec(ctx context.Context, id string, c Command) (code int, err error)
}

// Command is what Exec runs.
type Command struct {
	Argv []string // with the program first
	User string   // name, uid or uid:gid of the box; empty means that of the box's first process
	Dir  string   // empty means that of the box's first process
	Env  []string // NAME=value, added to that of the box
	// Stdin is copied to the command's input and then closed; nil means there is none. Exec does not wait for a read of it that
	// is under way when the command has ended.
	Stdin          io.Reader
	Stdout, Stderr io.Writer // nil means nobody looks
}

// ImageStore has the images that boxes and their services are made of.
type ImageStore interface {
	// ImageID is "" for an image that the engine does not have.
	ImageID(ctx context.Context, ref string) (string, error)
	// SaveImage streams an image as a docker archive. The caller closes it.
	SaveImage(ctx context.Context, ref string) (io.ReadCloser, error)
}

// Volumes has what boxes share, or leave beside their container.
type Volumes interface {
	// Volumes lists the unused volumes that carry the label.
	Volumes(ctx context.Context, label string) ([]string, error)
	// RemoveVolume removes an unused volume.
	RemoveVolume(ctx context.Context, name string) error
}

// Committer makes images of boxes.
type Committer interface {
	// Commit makes an image of the box's file system, without its volumes, under the name ref and returns its id. The
	// image starts what the box's image starts. A running box is paused meanwhile.
	Commit(ctx context.Context, id, ref string) (imageID string, err error)
}

// Pauser halts boxes: a paused one keeps its memory and uses no processor.
type Pauser interface {
	// Pause halts a running box; a paused one is no error.
	Pause(ctx context.Context, id string) error
	// Resume lets a paused box go on; a running one is no error.
	Resume(ctx context.Context, id string) error
}

// Prober tries things out in boxes of a moment.
type Prober interface {
	// Probe runs a command in a throw-away box that is held like a real one, and returns its output. The error is the
	// engine's when the box could not be started.
	Probe(ctx context.Context, spec BoxSpec, argv []string) (string, error)
}

// CopierOf is the runtime's ability to copy; where it has none, every copy ends with ErrUnsupported.
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
