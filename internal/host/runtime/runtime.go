// Package runtime defines the host's interface to engines and runtimes, with optional abilities (optional.go).
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

// Runtime runs boxes. Methods may be called concurrently. Callers may compare errors with those below.
type Runtime interface {
	// Info describes the engine. It is the first call: its ErrUnavailable distinguishes a missing engine from other failures.
	Info(ctx context.Context) (Info, error)
	// Run creates the box, starts it, writes stdin to its standard input and closes that. After an error there is no box.
	Run(ctx context.Context, spec ContainerSpec, stdin io.Reader) (id string, err error)
	// Logs copies the box's output to o.Stdout and o.Stderr. With o.Follow it returns nil when the box has ended.
	Logs(ctx context.Context, id string, o LogOptions) error
	// Instances lists running and stopped instances with all the labels.
	Instances(ctx context.Context, labels map[string]string) ([]Instance, error)
	// Stop sends SIGTERM and, after grace, SIGKILL; with a grace of 0 it kills at once. It announces a grace of workorder.LongStop
	// or more with workorder.LongStopSignal. Stopping a stopped or missing box is not an error.
	Stop(ctx context.Context, id string, grace time.Duration) error
	// Remove stops the box and removes it with its anonymous volumes. It returns when the box is removed, even if another
	// process removes it. Removing a missing box is not an error.
	Remove(ctx context.Context, id string) error
}

// Errors of Runtime.
var (
	// ErrUnavailable means that the engine does not answer.
	ErrUnavailable = errors.New("engine unavailable")
	// ErrNotFound means that the engine has no such box, image or path.
	ErrNotFound = errors.New("not found on the engine")
	// ErrIsolation means that the engine does not support the chosen isolation.
	ErrIsolation = errors.New("isolation not supported by the engine")
	// ErrConflict means that the engine has a box of that name.
	ErrConflict = errors.New("a sandbox of that name exists")
)

// StopTimeout is a box's default grace, for the engine's own shutdown, `docker stop` and the CLI. It exceeds the guaranteed
// grace, so that none of them cuts a landing short.
const StopTimeout = workorder.LongStop

// LabelCache marks the volume of the layer cache. It has no owner: all boxes of an engine share it.
const LabelCache = "sandbox-agent.cache"

// RootlessHint is the hint for a box that cannot reach the host: the bridge of a rootless engine is in its own network namespace.
const RootlessHint = "sandboxes of a rootless engine " +
	"cannot reach this machine: push the repository and give its URL (--repo URL), or use an engine that runs as root"

// ContainerSpec describes the container of a task or of a cache request.
type ContainerSpec struct {
	Name       string
	Image      string
	Command    []string // replaces the image's program, for boxes without a work order
	Labels     map[string]string
	Isolation  string // workorder.IsolationConfined or IsolationPrivileged
	OCIRuntime string // "" means the engine's default
	Limits     workorder.Limits
	// Files are files of the host by their path in the box, where they exist at the start and only root can read them.
	Files       map[string]string
	CacheVolume string   // mounted at workorder.CacheDir; "" means none
	DNS         []string // resolvers; nil means the engine's
	Fuse        bool     // the engine's machine has /dev/fuse
	Throwaway   bool     // remove the box with its files when it ends
	Standby     bool     // leave standard input open, for the order
	CgroupV2    bool     // the engine's machine uses the unified hierarchy
	Seccomp     bool     // the engine can filter system calls
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
	Gateway       string // the engine's machine in the network of the boxes; "" if unknown
	Local         bool   // the engine runs on this machine and kernel
	Host          string // the engine's address
	RootDir       string
	Rootless      bool
	Seccomp       bool // the engine can filter system calls
}

// Identity identifies an engine independently of its address; "" if unknown. It includes the data root, because engines of
// version 20.10 keep their id in /etc/docker, which all engines of a machine share.
func (i Info) Identity() string {
	if i.ID == "" {
		return ""
	}
	return strings.TrimSpace(i.ID + " " + i.RootDir)
}

// HasFuse reports whether a box can have /dev/fuse, as with the virtual machines of desktop engines. For a remote engine it is
// unknown, and a missing device would fail the start.
func (i Info) HasFuse() bool {
	if i.Local {
		_, err := os.Stat("/dev/fuse")
		return err == nil
	}
	return strings.Contains(i.OperatingSys, "Docker Desktop")
}

// Instance is a container or jail of this program.
type Instance struct {
	ID      string
	Name    string
	Labels  map[string]string
	State   string // created, running, exited, dead, ...
	Status  string // the engine's text
	Created time.Time
	Network workorder.NetworkMode // of a standalone sandbox; "" if unknown
	Damaged error                 // why a sandbox's record cannot be read; Labels then has only its name
}

// Running reports whether the instance runs or is starting.
func (b Instance) Running() bool {
	switch b.State {
	case "running", "paused", "restarting":
		return true
	}
	return false
}

// Paused reports whether its engine has paused it.
func (b Instance) Paused() bool { return b.State == "paused" }

// LogOptions selects output of a box.
type LogOptions struct {
	Follow bool
	Since  time.Time // zero means from the start
	Tail   int       // number of last lines; 0 means all
	// Stdout and Stderr may be nil; that stream is not requested then.
	Stdout, Stderr io.Writer
}
