// Package app holds the use cases behind the program's front ends: the command line, the MCP server, the pool's server and the SSH server.
// A use case returns values and errors; it prints nothing and knows no flag. A remark that is no error goes to Env.Note.
package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/branch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/gc"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/sandboxstore"
	"github.com/sandbox-agent/sandbox-agent/internal/host/statedir"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Env is what use cases need of their surroundings.
type Env struct {
	// Getenv looks up a variable. It is the only required field.
	Getenv func(string) string
	// Dir, if set, replaces the process's current directory.
	Dir string
	// Executable returns the path of this program, which serves endpoints and companions; nil if it cannot.
	Executable func() (string, error)
	// OpenEngine connects to the engine that the variables name. It contacts nothing yet.
	OpenEngine func() (*Backend, error)
	// OpenSandboxes opens the manager of standalone sandboxes, likewise; nil if there are none.
	OpenSandboxes func(sandbox.Options) (*sandbox.Manager, error)
	// Hard is closed when the user insists on stopping (Ctrl-C again, at a terminal).
	Hard <-chan struct{}
	// Patience, if positive, replaces the bounds of all waits for other commands.
	Patience time.Duration

	// Note, if non-nil, receives a remark that is no error, as "warning: …" or "note: …".
	Note func(line string)
	// Progress, if non-nil, receives one line per step of a sandbox's creation.
	Progress func(line string)
	// BuildEvents, if non-nil, returns a receiver for the events of an image's build, and a function to call after the last one.
	BuildEvents func() (show func(workorder.Event), done func())
	// Confirm asks a person a question whose default is no; nil if there is no person to ask.
	Confirm func(ctx context.Context, question string) (bool, error)
	// Logger returns the log of details; nil discards it.
	Logger func() *slog.Logger
}

// Backend is an engine with the parts that use cases need.
type Backend struct {
	Engine runtime.Runtime
	Images Images
}

// Images builds the images of boxes.
type Images interface {
	launch.Images
	gc.Images
	// Build builds the default image with these parts, with exact without others; with rebuild, again and without the cache.
	Build(ctx context.Context, parts []string, exact, rebuild bool, progress func(workorder.Event)) (workorder.Image, error)
	// Small returns the small image of presets and pools, and builds it if it is missing, after a call of building.
	Small(ctx context.Context, building func(name string), progress func(workorder.Event)) (workorder.Image, error)
	// ReadFiles calls read with a tar of a file or directory, if the image has it.
	ReadFiles(ctx context.Context, image, path string, read func(io.Reader) error) (found bool, err error)
	// Root unpacks the programs of an image in a directory.
	Root(ctx context.Context, image, dir string) error
	// Derive builds the image name on the default image's base if it is missing.
	Derive(ctx context.Context, name string, dockerfile []byte, progress func(workorder.Event)) error
	// Lineage returns an image and those that it was prepared from, by name; none if the engine has no name for one of them.
	Lineage(ctx context.Context, id string) ([]workorder.Image, error)
	// Find returns the id of the image with that name; "" if the engine does not have it.
	Find(ctx context.Context, name string) (string, error)
	// Outdated reports whether a name is of a default image that new sandboxes do not use.
	Outdated(ctx context.Context, name string) (bool, error)
	// Save streams images as a docker archive, and Load loads one.
	Save(ctx context.Context, names []string) (io.ReadCloser, error)
	Load(ctx context.Context, archive io.Reader) error
}

// Say passes a remark on to Note.
func (e *Env) Say(line string) {
	if e.Note != nil {
		e.Note(line)
	}
}

// Warn says what went wrong and does not stop the use case.
func (e *Env) Warn(what string) { e.Say("warning: " + what) }

func (e *Env) buildEvents() (show func(workorder.Event), done func()) {
	if e.BuildEvents == nil {
		return func(workorder.Event) {}, func() {}
	}
	return e.BuildEvents()
}

// Log returns the log of details.
func (e *Env) Log() *slog.Logger {
	if e.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return e.Logger()
}

// Store opens the records of tasks in the state directory.
func (e *Env) Store() (*taskstore.Store, error) {
	dir, err := statedir.DefaultDir(e.Getenv)
	if err != nil {
		return nil, err
	}
	return taskstore.New(dir), nil
}

// StateDir returns the state directory.
func (e *Env) StateDir() (string, error) { return statedir.DefaultDir(e.Getenv) }

// Registry opens the records of sandboxes in the state directory.
func (e *Env) Registry() (*sandboxstore.Store, error) {
	dir, err := e.StateDir()
	if err != nil {
		return nil, err
	}
	return sandboxstore.New(dir), nil
}

// BranchStore opens the branches of sandboxes in the state directory.
func (e *Env) BranchStore() (*branch.Store, error) {
	dir, err := e.StateDir()
	if err != nil {
		return nil, err
	}
	return branch.New(dir), nil
}

// Engine connects to the engine.
func (e *Env) Engine() (*Backend, error) {
	b, err := e.OpenEngine()
	if err != nil {
		return nil, exiterr.New(workorder.ExitBox, err, "check DOCKER_HOST and the docker context")
	}
	return b, nil
}

// Manager opens the manager of standalone sandboxes, those of other state directories included if allUsers is set.
func (e *Env) Manager(allUsers bool) (*sandbox.Manager, error) {
	return e.manager(sandbox.Options{AllUsers: allUsers})
}

func (e *Env) manager(o sandbox.Options) (*sandbox.Manager, error) {
	if e.OpenSandboxes == nil {
		return nil, exiterr.New(workorder.ExitBox, errors.New("standalone sandboxes are not available in this build"), "")
	}
	o.Getenv, o.Secrets, o.Progress, o.Log = e.Getenv, e.projectSecrets, e.Progress, e.Log()
	o.Slot = func(ctx context.Context, name string) (func(), error) { return takeSlot(ctx, e, "sandbox "+name) }
	return e.OpenSandboxes(o)
}

// CurrentDir returns the directory that the user is in.
func (e *Env) CurrentDir() (string, error) {
	if e.Dir != "" {
		return e.Dir, nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the current directory: %w", err)
	}
	return dir, nil
}

// RepoRoot returns the root of the repository that the user is in; "" outside of any.
func (e *Env) RepoRoot() (string, error) {
	dir, err := e.CurrentDir()
	if err != nil {
		return "", err
	}
	return localrepo.RepoRoot(dir), nil
}

// CacheVolume returns the name of the engine's cache volume.
func (e *Env) CacheVolume() string {
	return cmp.Or(e.Getenv("SANDBOX_AGENT_CACHE_VOLUME"), runtime.CacheVolume)
}
