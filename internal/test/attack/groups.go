package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

const (
	groupsDir = "/sys/fs/cgroup"
	roomsDir  = "/var/lib/sandbox-agent/state"
)

// kernelAttempts are those on the settings of the kernel, on the control groups that hold the agent, and on the proof's rooms.
func kernelAttempts() []attempt {
	r := func(name string, run func(c *Config) (string, bool)) attempt {
		return attempt{group: "root", name: name, want: always(refused), run: run}
	}
	return []attempt{
		r("open any kernel setting for writing", func(*Config) (string, bool) { return openedForWriting("/proc/sys", 100, nil) }),
		r("open any file of the control groups for writing", func(*Config) (string, bool) { return openedForWriting(groupsDir, 20, nil) }),
		// Files of version 1 for programs that the host's root runs, for its devices, and for the limits of this side.
		r("open release_agent, devices.allow or a limit for writing", func(*Config) (string, bool) {
			return openedForWriting(groupsDir, 1, func(name string) bool {
				return name == "release_agent" || name == "devices.allow" || strings.HasSuffix(name, ".max") ||
					strings.Contains(name, "limit_in_bytes") || name == "cpu.cfs_quota_us"
			})
		}),
		r("leave the control group", leaveGroup),
		r("make a control group", func(*Config) (string, bool) {
			dirs, made := 0, ""
			_ = filepath.WalkDir(groupsDir, func(path string, e fs.DirEntry, err error) error {
				if err != nil || !e.IsDir() {
					return nil // not readable: no way in
				}
				dirs++
				if os.Mkdir(filepath.Join(path, "attack"), 0o755) == nil {
					made = path
				}
				return nil
			})
			return fmt.Sprintf("%d folders %s", dirs, made), dirs == 0 || made != ""
		}),
		r("more processes than limits.pids", manyProcesses),
		r("read the folder of the proof's rooms", func(*Config) (string, bool) {
			for _, p := range []string{roomsDir, roomsDir + "/rooms", roomsDir + "/rooms/home", roomsDir + "/rooms/1"} {
				if _, err := os.ReadDir(p); err == nil {
					return p + " can be read", true
				}
			}
			// That it is there is seen from its parent; it has to be closed, not missing.
			info, err := os.Stat(roomsDir)
			return "closed " + short(err), err != nil || info.Mode().Perm()&0o007 != 0
		}),
	}
}

// openedForWriting tries the files below a directory, those of some names or all. It writes nothing. Fewer than least prove nothing.
func openedForWriting(dir string, least int, named func(string) bool) (string, bool) {
	tried := 0
	var opened []string
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || named != nil && !named(e.Name()) {
			return nil // not readable: no way in
		}
		tried++
		if f, err := os.OpenFile(path, os.O_WRONLY, 0); err == nil {
			opened = append(opened, path)
			f.Close()
		}
		return nil
	})
	return fmt.Sprintf("%d files, opened: %d %s", tried, len(opened), strings.Join(opened, " ")), tried < least || len(opened) > 0
}

// leaveGroup writes this process into every other group.
func leaveGroup(*Config) (string, bool) {
	const own = "/proc/self/cgroup"
	before, err := os.ReadFile(own)
	if err != nil {
		return short(err), true
	}
	tried, left := 0, ""
	_ = filepath.WalkDir(groupsDir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.Name() != "cgroup.procs" && e.Name() != "tasks" && e.Name() != "cgroup.threads" {
			return nil // not readable: no way in
		}
		tried++
		if os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())), 0o600) == nil {
			left = path
		}
		return nil
	})
	after, err := os.ReadFile(own)
	return fmt.Sprintf("%d groups %s %s", tried, left, short(err)), tried == 0 || left != "" || string(after) != string(before)
}

// manyProcesses starts three times as many as there may be; twice as many are no matter of counting. A shell does, which
// ends them all itself: this program may get no thread more at that moment.
func manyProcesses(c *Config) (string, bool) {
	const count = "/tmp/attack-processes"
	ctx, cancel := context.WithTimeout(context.Background(), containerTime)
	defer cancel()
	script := fmt.Sprintf("trap 'kill -9 0' EXIT; i=0; while [ $i -lt %d ]; do sleep 60 & i=$((i+1)); echo $i >%s; done", 3*c.PIDs, count)
	_, runErr := proc.Output(ctx, proc.Spec{Argv: []string{"sh", "-c", script}}) // it kills itself, too
	b, err := os.ReadFile(count)
	if err != nil {
		return short(err) + " " + short(runErr), true
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	return fmt.Sprintf("%d processes, the limit is %d", n, c.PIDs), err != nil || n < c.PIDs/2 || n >= 2*c.PIDs
}
