package code

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// Preset is a named configuration for running code.
type Preset struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"` // for people
	Source      string `json:"source"`                // "preset" or the path from which the preset was read
	// Runtime is the runtime; sandbox.RuntimeAuto is a jail if available, otherwise a container.
	Runtime sandbox.Runtime `json:"backend,omitempty"`
	Image   string          `json:"image,omitempty"` // the image of a container; "" means Options.Image
	// Root is a directory from which a jail takes its programs instead of the host's.
	Root string `json:"root,omitempty"`
	// Interpreter runs code from its standard input, or from its last argument: see CodeArgument.
	Interpreter []string `json:"interpreter,omitempty"`
	// CodeArgument passes code as the interpreter's last argument. Known interpreters still read it from standard input,
	// since Linux limits an argument to 128 KiB.
	CodeArgument bool           `json:"argument,omitempty"`
	Driver       sandbox.Driver `json:"driver,omitempty"` // the type of sessions; "" means no sessions
	Kernel       string         `json:"kernel,omitempty"` // sandbox.SessionOptions.Kernel
	// Timeout, MemoryBytes, CPUs and PIDs are limits; 0 means this package's defaults.
	Timeout     time.Duration `json:"timeout,omitempty"`
	MemoryBytes int64         `json:"memory_bytes,omitempty"`
	CPUs        float64       `json:"cpus,omitempty"`
	PIDs        int64         `json:"pids,omitempty"`
	Env         []string      `json:"env,omitempty"` // has NAME=value entries
	// Inherit names variables of this program that the code receives. Neither their values nor Env are stored.
	Inherit []string `json:"inherit,omitempty"`
	// Project is a directory of the host, mounted read-only at ProjectMount; "" there means /project.
	Project      string `json:"project,omitempty"`
	ProjectMount string `json:"project_mount,omitempty"`
	// Network gives the code network access.
	Network bool `json:"network,omitempty"`
	// Allow gives it access to the hosts of these rules only, as sandbox.Spec.Allow.
	Allow []string `json:"allow,omitempty"`
	// Program is a program of the host that runs the code from its standard input and isolates it itself.
	Program string `json:"program,omitempty"`
}

// Default limits of a preset.
const (
	DefaultTimeout     = 30 * time.Second
	DefaultMemoryBytes = 512 << 20
	DefaultCPUs        = 1
	DefaultPIDs        = 512
)

// BuiltinPresets returns the presets that need no configuration: node, python and shell.
func BuiltinPresets() []Preset {
	return []Preset{
		{Name: "node", Source: "preset", Description: "JavaScript, by Node.js", Interpreter: []string{"node", "-"}, Driver: sandbox.DriverNode},
		{Name: "python", Source: "preset", Description: "Python 3", Interpreter: []string{"python3", "-"}, Driver: sandbox.DriverPython},
		{
			Name: "shell", Source: "preset", Description: "bash", Interpreter: []string{"bash", "-c"}, CodeArgument: true,
			Driver: sandbox.DriverBash,
		},
	}
}

// InferDriver returns the session driver for a known interpreter; "" for others.
func InferDriver(interpreter []string) sandbox.Driver {
	if len(interpreter) == 0 {
		return ""
	}
	switch program := path.Base(interpreter[0]); {
	case strings.HasPrefix(program, "python"):
		return sandbox.DriverPython
	case program == "node":
		return sandbox.DriverNode
	case program == "bash":
		return sandbox.DriverBash
	}
	return ""
}

// TakesCodeArgument reports whether an interpreter takes code as its last argument: its own last argument is -c or -e.
func TakesCodeArgument(interpreter []string) bool {
	return len(interpreter) > 0 && slices.Contains([]string{"-c", "-e"}, interpreter[len(interpreter)-1])
}

// maxArgument limits code passed as an argument, in bytes: Linux allows 128 KiB including the final zero byte.
const maxArgument = 128<<10 - 1

// Argv returns the command that reads the code, of size bytes, from its standard input.
func (p Preset) Argv(size int) ([]string, error) {
	if !p.CodeArgument || len(p.Interpreter) == 0 {
		return p.Interpreter, nil
	}
	before, last := p.Interpreter[:len(p.Interpreter)-1], p.Interpreter[len(p.Interpreter)-1]
	switch program := path.Base(p.Interpreter[0]); {
	case last == "-c" && strings.HasPrefix(program, "python"), last == "-e" && slices.Contains([]string{"node", "perl", "ruby"}, program):
		return append(slices.Clone(before), "-"), nil
	case last == "-c" && slices.Contains([]string{"bash", "sh", "dash", "ash", "zsh", "ksh"}, program):
		return append(slices.Clone(p.Interpreter), `eval "$(cat)"`), nil
	case size > maxArgument:
		return nil, fmt.Errorf("preset %s takes code as an argument of at most %d bytes, not %d: %w",
			p.Name, maxArgument, size, sandbox.ErrInvalidSpec)
	}
	return append([]string{"sh", "-c", `exec "$@" "$(cat)"`, "sh"}, p.Interpreter...), nil
}

// Check validates the preset. Its error has all mistakes.
func (p Preset) Check() error {
	var errs []error
	if !validName.MatchString(p.Name) {
		errs = append(errs, fmt.Errorf("name %.80q: use at most 64 letters, digits, dots, - and _, a letter or digit first", p.Name))
	}
	if p.Program == "" && len(p.Interpreter) == 0 {
		errs = append(errs, errors.New("no interpreter"))
	}
	if !slices.Contains([]sandbox.Runtime{sandbox.RuntimeAuto, sandbox.RuntimeJail, sandbox.RuntimeContainer, sandbox.RuntimeBox}, p.Runtime) {
		errs = append(errs, fmt.Errorf("Unknown backend: %s", p.Runtime)) //nolint:staticcheck // other programs look for these words
	}
	if p.Runtime == sandbox.RuntimeJail && p.Image != "" {
		errs = append(errs, errors.New("a jail has no image"))
	}
	if p.Program != "" && len(p.Allow) > 0 {
		errs = append(errs, errors.New("its program isolates itself: allow rules do not apply to it"))
	}
	if p.Runtime != sandbox.RuntimeJail && p.Root != "" {
		errs = append(errs, errors.New("only a jail has a root directory"))
	}
	if p.Timeout < 0 || p.MemoryBytes < 0 || p.CPUs < 0 || p.PIDs < 0 {
		errs = append(errs, errors.New("limits must not be negative"))
	} else if err := limits(p).Check(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
