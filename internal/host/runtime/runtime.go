// Package runtime is what the host asks of the program that runs boxes. Runtime is
// small so that another engine than Docker, and a fake one, can fulfil it; what an engine may
// have beyond it is an ability (abilities.go). It knows nothing of orders and results.
package runtime

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Runtime runs boxes. All methods may be called concurrently. Errors are typed
// by the sentinels below where a caller decides by them.
type Runtime interface {
	// Info asks the engine about itself; it is the first call and the one that
	// tells ErrUnavailable apart from everything else.
	Info(ctx context.Context) (Info, error)
	// Run creates the box, starts it, writes stdin to its standard input and
	// closes that. When it returns an error no container is left behind.
	Run(ctx context.Context, spec BoxSpec, stdin io.Reader) (id string, err error)
	// Logs copies the box's output to o.Stdout and o.Stderr. With o.Follow it
	// returns nil when the box has ended.
	Logs(ctx context.Context, id string, o LogOptions) error
	// Boxes lists the boxes, running or not, that carry all the labels.
	Boxes(ctx context.Context, labels map[string]string) ([]Box, error)
	// Stop sends SIGTERM and, when grace has passed, SIGKILL; with a grace of 0
	// it kills at once. A grace of workorder.LongStop and more is announced first (workorder.LongStopSignal). A stopped or absent box is no error.
	Stop(ctx context.Context, id string, grace time.Duration) error
	// Remove ends the box if needed and removes it with its anonymous volumes. An
	// absent box is no error. It is gone when Remove returns, whoever else removes it
	// at the same time.
	Remove(ctx context.Context, id string) error
}

// Callers branch on these errors.
var (
	// ErrUnavailable: the engine does not answer.
	ErrUnavailable = errors.New("the engine does not answer")
	// ErrNotFound: the engine has no such box, image or path.
	ErrNotFound = errors.New("not found on the engine")
	// ErrIsolation: the engine cannot give what the chosen isolation needs.
	ErrIsolation = errors.New("the engine cannot give this isolation")
	// ErrConflict: the engine has a box of that name already.
	ErrConflict = errors.New("there is a sandbox of that name already")
)

// StopTimeout is what a box has to end when nobody says otherwise, whoever stops
// it: the engine at its own shutdown, `docker stop`, or the CLI. It is more than
// the guaranteed grace, so that none of them cuts a landing short.
const StopTimeout = workorder.LongStop

// LabelCache marks the volume of the layer cache, which is nobody's: all boxes
// of an engine share it.
const LabelCache = "sandbox-agent.cache"

// RootlessHint is what to do when a box cannot reach this machine: the bridge of
// a rootless engine lies in a network namespace of its own.
const RootlessHint = "sandboxes of a rootless engine cannot reach this machine: push the repository and give its URL (--repo URL), or use an engine that runs as root"

// BoxSpec describes a box.
type BoxSpec struct {
	Name  string
	Image string
	// Command replaces what the image starts, for boxes that have no work order.
	Command    []string
	Labels     map[string]string
	Isolation  string // workorder.IsolationConfined or IsolationPrivileged
	OCIRuntime string // empty means the engine's default
	Limits     workorder.Limits
	// Files are files of this machine that the box begins with, for root only, by
	// their path in the box.
	Files map[string]string
	// CacheVolume is mounted at workorder.CacheDir. Empty means none.
	CacheVolume string
	// DNS are the resolvers of the box. Empty means the engine's.
	DNS []string
	// Fuse says that the engine's machine has /dev/fuse.
	Fuse bool
	// CgroupV2 says that the engine's machine uses the unified hierarchy.
	CgroupV2 bool
}

// Info is what is known of an engine.
type Info struct {
	ID            string
	Version       string
	APIVersion    string
	OSType        string
	Arch          string
	Kernel        string
	OperatingSys  string
	CgroupVersion int
	MemoryBytes   int64 // of the engine's machine; 0 means it does not tell
	Runtimes      []string
	// Gateway is the address of the engine's machine on the network of the
	// boxes, empty when the engine does not tell.
	Gateway string
	// Local says that the engine runs on this machine and kernel.
	Local    bool
	Host     string // where the engine is reached
	RootDir  string
	Rootless bool
}

// Identity tells one engine from another, whatever address it is reached at; empty:
// the engine does not tell. Old ones (20.10) keep their id in the machine's
// /etc/docker, where all engines of the machine share it: the data root is their own.
func (i Info) Identity() string {
	if i.ID == "" {
		return ""
	}
	return strings.TrimSpace(i.ID + " " + i.RootDir)
}

// HasFuse reports whether a box can have /dev/fuse: the virtual machines of
// desktop engines have the device; of a remote engine nothing is known, and naming
// a device that is missing would end the start.
func (i Info) HasFuse() bool {
	if i.Local {
		_, err := os.Stat("/dev/fuse")
		return err == nil
	}
	return strings.Contains(i.OperatingSys, "Docker Desktop")
}

// Box is a container of ours.
type Box struct {
	ID      string
	Name    string
	Labels  map[string]string
	State   string // created, running, exited, dead, ...
	Status  string // the engine's own words
	Created time.Time
}

// Live reports whether the box still runs (or is just being started).
func (b Box) Live() bool {
	switch b.State {
	case "running", "paused", "restarting":
		return true
	}
	return false
}

// LogOptions selects from a box's output.
type LogOptions struct {
	Follow bool
	Since  time.Time // zero means from the start
	Tail   int       // only the last lines; 0 means all
	// Stdout and Stderr may be nil means that stream is not asked for.
	Stdout, Stderr io.Writer
}
