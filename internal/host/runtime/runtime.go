// Package runtime is the host's interface to the program that runs boxes. Runtime is small so
// that other engines than Docker, and a fake one, can implement it; further features of an
// engine are optional interfaces (optional.go). The package knows nothing of orders and results.
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

// Runtime runs boxes. All methods may be called concurrently. Errors on which a caller
// branches are the sentinels below.
type Runtime interface {
	// Info asks the engine about itself. It is the first call, so its ErrUnavailable
	// separates a missing engine from other failures.
	Info(ctx context.Context) (Info, error)
	// Run creates the box, starts it, writes stdin to its standard input and closes that.
	// After an error there is no container.
	Run(ctx context.Context, spec ContainerSpec, stdin io.Reader) (id string, err error)
	// Logs copies the box's output to o.Stdout and o.Stderr. With o.Follow it
	// returns nil when the box has ended.
	Logs(ctx context.Context, id string, o LogOptions) error
	// Instances lists the instances, running or not, that have all the labels.
	Instances(ctx context.Context, labels map[string]string) ([]Instance, error)
	// Stop sends SIGTERM and, after grace, SIGKILL; with a grace of 0 it kills at once. A grace of workorder.LongStop
	// or more is announced first (workorder.LongStopSignal). To stop a stopped or absent box is not an error.
	Stop(ctx context.Context, id string, grace time.Duration) error
	// Remove ends the box if needed and removes it with its anonymous volumes. To remove an
	// absent box is not an error. The box is gone when Remove returns, even if another
	// process removes it at the same time.
	Remove(ctx context.Context, id string) error
}

// Callers branch on these errors.
var (
	// ErrUnavailable means that the engine does not answer.
	ErrUnavailable = errors.New("the engine does not answer")
	// ErrNotFound means that the engine has no such box, image or path.
	ErrNotFound = errors.New("not found on the engine")
	// ErrIsolation means that the engine does not support what the chosen isolation needs.
	ErrIsolation = errors.New("the engine cannot give this isolation")
	// ErrConflict means that the engine already has a box of that name.
	ErrConflict = errors.New("there is a sandbox of that name already")
)

// StopTimeout is a box's default grace, used by the engine at its own shutdown, by `docker stop` and
// by the CLI. It is longer than the guaranteed grace, so that none of them cuts a landing short.
const StopTimeout = workorder.LongStop

// LabelCache marks the volume of the layer cache. It has no owner: all boxes of an engine share it.
const LabelCache = "sandbox-agent.cache"

// RootlessHint is the advice for a box that cannot reach this machine: the bridge of a
// rootless engine is in a network namespace of its own.
const RootlessHint = "sandboxes of a rootless engine " +
	"cannot reach this machine: push the repository and give its URL (--repo URL), or use an engine that runs as root"

// ContainerSpec describes the container of a task or of a cache request.
type ContainerSpec struct {
	Name  string
	Image string
	// Command replaces the program of the image, for boxes without a work order.
	Command    []string
	Labels     map[string]string
	Isolation  string // workorder.IsolationConfined or IsolationPrivileged
	OCIRuntime string // if empty the engine's default
	Limits     workorder.Limits
	// Files are files of this machine that are in the box at its start, readable by root
	// only, by their path in the box.
	Files map[string]string
	// CacheVolume is mounted at workorder.CacheDir; none if empty.
	CacheVolume string
	// DNS are the resolvers of the box; if empty the engine's.
	DNS []string
	// Fuse reports that the engine's machine has /dev/fuse.
	Fuse bool
	// Throwaway removes the box with its files as soon as it has ended, whatever ended it.
	Throwaway bool
	// CgroupV2 reports that the engine's machine uses the unified hierarchy.
	CgroupV2 bool
	// Seccomp reports that the engine can filter system calls.
	Seccomp bool
}

// Info describes an engine.
type Info struct {
	ID            string
	Version       string
	APIVersion    string
	OSType        string
	Arch          string
	Kernel        string
	OperatingSys  string
	CgroupVersion int
	MemoryBytes   int64 // of the engine's machine; 0 if unknown
	Runtimes      []string
	// Gateway is the address of the engine's machine on the network of the boxes; empty if unknown.
	Gateway string
	// Local reports that the engine runs on this machine and kernel.
	Local    bool
	Host     string // the engine's address
	RootDir  string
	Rootless bool
	// Seccomp reports that the engine can filter system calls.
	Seccomp bool
}

// Identity identifies an engine at whatever address; empty if the engine gives none. It
// has the data root because old engines (20.10) keep their id in the machine's
// /etc/docker, which all engines of the machine share.
func (i Info) Identity() string {
	if i.ID == "" {
		return ""
	}
	return strings.TrimSpace(i.ID + " " + i.RootDir)
}

// HasFuse reports whether a box can have /dev/fuse: the virtual machines of desktop engines
// have the device. Of a remote engine it is unknown, and a missing device would fail the start.
func (i Info) HasFuse() bool {
	if i.Local {
		_, err := os.Stat("/dev/fuse")
		return err == nil
	}
	return strings.Contains(i.OperatingSys, "Docker Desktop")
}

// Instance is a container, or a jail, of this program.
type Instance struct {
	ID      string
	Name    string
	Labels  map[string]string
	State   string // created, running, exited, dead, ...
	Status  string // the engine's own text
	Created time.Time
	Network workorder.NetworkMode // of a standalone sandbox; "" if unknown
	// Damaged is why a sandbox's record cannot be read; its labels are then its name alone.
	Damaged error
}

// Running reports whether the instance runs or is being started.
func (b Instance) Running() bool {
	switch b.State {
	case "running", "paused", "restarting":
		return true
	}
	return false
}

// LogOptions selects from a box's output.
type LogOptions struct {
	Follow bool
	Since  time.Time // zero for all since the start
	Tail   int       // only the last lines; 0 for all
	// Stdout and Stderr may be nil: then that stream is not requested.
	Stdout, Stderr io.Writer
}
