// Package cgroupfs reads and writes the files of control groups, which are directories. It knows neither the version of a group nor what
// its numbers are for.
package cgroupfs

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const procs = "cgroup.procs"

// Write writes a value to a file of a group.
func Write(dir, file, value string) error {
	if err := os.WriteFile(filepath.Join(dir, file), []byte(value), 0); err != nil { // the error names the path
		return fmt.Errorf("write %q: %w", value, err)
	}
	return nil
}

// Words returns the words of a file of a group.
func Words(dir, file string) ([]string, error) {
	b, err := os.ReadFile(filepath.Join(dir, file))
	return strings.Fields(string(b)), err
}

// Number returns the number that a file of a group holds. A limit of "max" is an error.
func Number(dir, file string) (int64, error) {
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
}

// Counter returns a named counter of a file with one per line, and whether there is one.
func Counter(path, name string) (n int64, ok bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == name {
			n, err := strconv.ParseInt(f[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// PIDs returns the processes of a group, without those below it and those that this process's namespace cannot name.
func PIDs(dir string) (pids []int, err error) {
	words, err := Words(dir, procs)
	for _, w := range words {
		if pid, err := strconv.Atoi(w); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids, err
}

// Move brings a process into a group.
func Move(dir string, pid int) error { return Write(dir, procs, strconv.Itoa(pid)) }

// Enter brings this process into a group.
func Enter(dir string) error { return Move(dir, os.Getpid()) }

// Enable hands controllers on to the children of a group of version 2.
func Enable(dir string, controllers ...string) error {
	if len(controllers) == 0 {
		return nil
	}
	return Write(dir, "cgroup.subtree_control", "+"+strings.Join(controllers, " +"))
}

// Paths returns the group of each controller, by the text of a file /proc/<pid>/cgroup. That of version 2 has the key "".
func Paths(text string) map[string]string {
	paths := map[string]string{}
	for line := range strings.Lines(text) {
		if f := strings.SplitN(strings.TrimSpace(line), ":", 3); len(f) == 3 {
			for c := range strings.SplitSeq(f[1], ",") {
				paths[c] = f[2]
			}
		}
	}
	return paths
}
