package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// none lifts a limit on the command line.
const none = "none"

// What limits look like. None is zero: that would be no limit to one reader and nothing at all to another.
var (
	memoryForm = regexp.MustCompile(`(?i)^(\d+(?:\.\d+)?)\s*([mg])$`)
	cpusForm   = regexp.MustCompile(`^\d+(\.\d+)?$`)
	pidsForm   = regexp.MustCompile(`^\d+$`)
	errZero    = errors.New("0 is neither a limit nor none")
)

// parseMemory reads a limit in bytes: 512m, 1.5g, none, or "" for the default.
func parseMemory(t string) (int64, error) {
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

// parseCPUs reads a number of processors: 0.5, 2, none, or "" for the default.
func parseCPUs(t string) (float64, error) {
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

// parsePIDs reads a number of processes: 512, none, or "" for the default.
func parsePIDs(t string) (int64, error) {
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
