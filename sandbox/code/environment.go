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

// Environment is somewhere that code can run, by a name.
type Environment struct {
	Name string `json:"name"`
	// Description is for people who choose.
	Description string `json:"description,omitempty"`
	// Source says where it was read: preset, or a path.
	Source string `json:"source"`
	// Backend is what isolates it; sandbox.Auto is a jail where there can be one, else a container.
	Backend sandbox.Kind `json:"backend,omitempty"`
	// Image is that of a container; "" means Options.Image.
	Image string `json:"image,omitempty"`
	// Root is a folder whose programs a jail has, in place of this machine's.
	Root string `json:"root,omitempty"`
	// Interpreter runs the code that it reads from standard input, or has behind its arguments: see Argument.
	Interpreter []string `json:"interpreter,omitempty"`
	// Argument says that the interpreter takes code as its last argument. An interpreter of that kind that is known is asked to read it instead, since an argument has
	// 128 KiB at most.
	Argument bool `json:"argument,omitempty"`
	// Driver is that of sessions; "" has none.
	Driver sandbox.Driver `json:"driver,omitempty"`
	// Kernel is sandbox.SessionOptions.Kernel.
	Kernel string `json:"kernel,omitempty"`
	// Timeout, MemoryBytes, CPUs and PIDs are limits; 0 means the defaults of this package.
	Timeout     time.Duration `json:"timeout,omitempty"`
	MemoryBytes int64         `json:"memory_bytes,omitempty"`
	CPUs        float64       `json:"cpus,omitempty"`
	PIDs        int64         `json:"pids,omitempty"`
	// Env is NAME=value.
	Env []string `json:"env,omitempty"`
	// Inherit are the names of variables of this program that the code has, too. Neither they nor Env are kept anywhere.
	Inherit []string `json:"inherit,omitempty"`
	// Project is a folder of this machine, read-only at ProjectMount; "" there means /project.
	Project      string `json:"project,omitempty"`
	ProjectMount string `json:"project_mount,omitempty"`
	// Network lets the code reach the network; else it has none.
	Network bool `json:"network,omitempty"`
	// Program is one of this machine that is run as it is and isolates by itself: an artifact of somebody else. It reads the code from standard input.
	Program string `json:"program,omitempty"`
}

// Defaults of an environment's limits.
const (
	DefaultTimeout     = 30 * time.Second
	DefaultMemoryBytes = 512 << 20
	DefaultCPUs        = 1
	DefaultPIDs        = 512
)

// Presets are the environments that need no configuration: node, python and shell.
func Presets() []Environment {
	return []Environment{
		{Name: "node", Source: "preset", Description: "JavaScript, by Node.js", Interpreter: []string{"node", "-"}, Driver: sandbox.DriverNode},
		{Name: "python", Source: "preset", Description: "Python 3", Interpreter: []string{"python3", "-"}, Driver: sandbox.DriverPython},
		{Name: "shell", Source: "preset", Description: "bash", Interpreter: []string{"bash", "-c"}, Argument: true, Driver: sandbox.DriverBash},
	}
}

// DriverOf is the driver of sessions of an interpreter that is known; "" of others.
func DriverOf(interpreter []string) sandbox.Driver {
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

// ArgumentOf reports whether an interpreter takes code as its last argument: it ends in -c or -e.
func ArgumentOf(interpreter []string) bool {
	return len(interpreter) > 0 && slices.Contains([]string{"-c", "-e"}, interpreter[len(interpreter)-1])
}

// maxArgument bounds code that can only be an argument, in bytes: Linux has 128 KiB for one with its end.
const maxArgument = 128<<10 - 1

// Argv is the command that runs code of that many bytes, which it reads from standard input.
func (e Environment) Argv(size int) ([]string, error) {
	if !e.Argument || len(e.Interpreter) == 0 {
		return e.Interpreter, nil
	}
	before, last := e.Interpreter[:len(e.Interpreter)-1], e.Interpreter[len(e.Interpreter)-1]
	switch program := path.Base(e.Interpreter[0]); {
	case last == "-c" && strings.HasPrefix(program, "python"), last == "-e" && slices.Contains([]string{"node", "perl", "ruby"}, program):
		return append(slices.Clone(before), "-"), nil
	case last == "-c" && slices.Contains([]string{"bash", "sh", "dash", "ash", "zsh", "ksh"}, program):
		return append(slices.Clone(e.Interpreter), `eval "$(cat)"`), nil
	case size > maxArgument:
		return nil, fmt.Errorf("environment %s takes code as an argument, which has %d bytes at most, and not %d: %w", e.Name, maxArgument, size, sandbox.ErrSpec)
	}
	return append([]string{"sh", "-c", `exec "$@" "$(cat)"`, "sh"}, e.Interpreter...), nil
}

// Check returns what keeps it from being used, all of it.
func (e Environment) Check() error {
	var errs []error
	if !validName.MatchString(e.Name) {
		errs = append(errs, fmt.Errorf("name %.80q: use letters, digits, dot, - and _, a letter or digit first, 64 at most", e.Name))
	}
	if e.Program == "" && len(e.Interpreter) == 0 {
		errs = append(errs, errors.New("there is no interpreter"))
	}
	if !slices.Contains([]sandbox.Kind{sandbox.Auto, sandbox.KindJail, sandbox.KindContainer, sandbox.KindBox}, e.Backend) {
		errs = append(errs, fmt.Errorf("Unknown backend: %s", e.Backend)) //nolint:staticcheck // other programs look for these words
	}
	if e.Backend == sandbox.KindJail && e.Image != "" {
		errs = append(errs, errors.New("a jail has no image"))
	}
	if e.Backend != sandbox.KindJail && e.Root != "" {
		errs = append(errs, errors.New("only a jail has a root folder"))
	}
	if e.Timeout < 0 || e.MemoryBytes < 0 || e.CPUs < 0 || e.PIDs < 0 {
		errs = append(errs, errors.New("a limit is less than nothing"))
	} else if err := limits(e).Check(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
