package cmdutil

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/internal/yamlkeys"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// none lifts a limit on the command line.
const none = "none"

// What limits look like. None is zero: that would be no limit to one reader and nothing at all to another.
var (
	memoryForm = lazyregexp.New(`(?i)^(\d+(?:\.\d+)?)\s*([mg])$`)
	cpusForm   = lazyregexp.New(`^\d+(\.\d+)?$`)
	pidsForm   = lazyregexp.New(`^\d+$`)
	errZero    = errors.New("0 is neither a limit nor none")
)

// ParseMemory reads a limit in bytes: 512m, 1.5g, none, or "" for the default.
func ParseMemory(t string) (int64, error) {
	switch t {
	case "":
		return 0, nil
	case none:
		return sandbox.NoLimit, nil
	}
	m := memoryForm.FindStringSubmatch(t)
	if m == nil {
		return 0, fmt.Errorf("--memory %q: use a number with m or g, as 512m or 1.5g, or none", t)
	}
	n, err := strconv.ParseFloat(m[1], 64)
	shift := map[string]int{"m": 20, "g": 30}[strings.ToLower(m[2])]
	const largest = 1 << 50 // bytes; no machine has them
	switch bytes := n * float64(int64(1)<<shift); {
	case err != nil || bytes > largest:
		return 0, fmt.Errorf("--memory %q is more than there is", t)
	case int64(bytes) == 0:
		return 0, fmt.Errorf("--memory %q: %w", t, errZero)
	default:
		return int64(bytes), nil
	}
}

// ParseCPUs reads a number of processors: 0.5, 2, none, or "" for the default.
func ParseCPUs(t string) (float64, error) {
	switch t {
	case "":
		return 0, nil
	case none:
		return sandbox.NoLimit, nil
	}
	n, err := strconv.ParseFloat(t, 64)
	const largest = 1 << 20
	if !cpusForm.MatchString(t) || err != nil || n > largest {
		return 0, fmt.Errorf("--cpus %q is no number of processors: use 0.5, 2 or none", t)
	}
	if n == 0 {
		return 0, fmt.Errorf("--cpus %q: %w", t, errZero)
	}
	return n, nil
}

// ParsePIDs reads a number of processes: 512, none, or "" for the default.
func ParsePIDs(t string) (int64, error) {
	switch t {
	case "":
		return 0, nil
	case none, "-1":
		return sandbox.NoLimit, nil
	}
	n, err := strconv.ParseInt(t, 10, 32)
	if !pidsForm.MatchString(t) || err != nil {
		return 0, fmt.Errorf("--pids %q is no number of processes: use 512 or none", t)
	}
	if n == 0 {
		return 0, fmt.Errorf("--pids %q: %w", t, errZero)
	}
	return n, nil
}

// ParseLimits reads the limits of a sandbox as ParseMemory, ParseCPUs and ParsePIDs do. The error has all mistakes.
func ParseLimits(memory, cpus, pids string) (l sandbox.Limits, err error) {
	var errs [3]error
	l.MemoryBytes, errs[0] = ParseMemory(memory)
	l.CPUs, errs[1] = ParseCPUs(cpus)
	l.PIDs, errs[2] = ParsePIDs(pids)
	return l, errors.Join(errs[:]...)
}

// ParseOutput reads a limit of output in bytes: 64k, 1m, none, or "" for the default.
func ParseOutput(t string) (int, error) {
	switch t {
	case "":
		return 0, nil
	case none:
		return sandbox.NoLimit, nil
	}
	n, ok := yamlkeys.ParseSize(t)
	const least, largest = 64, 1 << 30
	if !ok || n < least || n > largest {
		return 0, fmt.Errorf("--max-output %q: use 64k, 1m or none, at most 1g", t)
	}
	return int(n), nil
}

// ParseMount reads HOST:INSIDE[:ro]; a relative path of this machine begins in the current directory.
func (f *Factory) ParseMount(t string) (sandbox.Mount, error) {
	parts := strings.Split(t, ":")
	ro := len(parts) == 3 && parts[2] == "ro"
	if len(parts) != 2 && !ro || parts[0] == "" {
		return sandbox.Mount{}, fmt.Errorf("--mount %q: use HOST:INSIDE, or HOST:INSIDE:ro", t)
	}
	host, err := filepath.Abs(filepath.Join(f.Dir, parts[0]))
	if filepath.IsAbs(parts[0]) {
		host, err = filepath.Clean(parts[0]), nil
	}
	return sandbox.Mount{Source: host, Target: parts[1], ReadOnly: ro}, err
}

// CheckTimeout returns an error for a negative --timeout.
func CheckTimeout(d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("--timeout must not be negative")
	}
	return nil
}
