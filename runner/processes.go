package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// processTable reads process information; its value is the directory, /proc except in tests.
type processTable string

const procTable processTable = "/proc"

// clockTicks is USER_HZ, the units of CPU time and age in /proc per second: 100 on every Linux that Go runs on.
const clockTicks = 100

type process struct {
	proc.Stat
	pid   int
	uid   uint32 // effective user id
	space string // PID namespace; empty if unreadable
}

// all lists the running processes, without those that end meanwhile.
func (t processTable) all() []process {
	entries, err := os.ReadDir(string(t))
	if err != nil {
		return nil
	}
	var list []process
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if p, err := t.process(pid); err == nil {
				list = append(list, p)
			}
		}
	}
	return list
}

func (t processTable) process(pid int) (process, error) {
	st, err := t.stat(pid)
	if err != nil {
		return process{}, err
	}
	status, err := os.ReadFile(t.file(pid, "status"))
	if err != nil {
		return process{}, err
	}
	p := process{Stat: st, pid: pid, space: t.space(strconv.Itoa(pid))}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) > 2 && f[0] == "Uid:" {
			uid, err := strconv.ParseUint(f[2], 10, 32)
			if err != nil {
				return process{}, fmt.Errorf("read owner: %w", err)
			}
			p.uid = uint32(uid)
		}
	}
	return p, nil
}

func (t processTable) file(pid int, name string) string {
	return filepath.Join(string(t), strconv.Itoa(pid), name)
}

func (t processTable) space(pid string) string {
	ns, err := os.Readlink(filepath.Join(string(t), pid, "ns/pid"))
	if err != nil {
		return ""
	}
	return ns
}

func (t processTable) stat(pid int) (proc.Stat, error) {
	b, err := os.ReadFile(t.file(pid, "stat"))
	if err != nil {
		return proc.Stat{}, err
	}
	return proc.ParseStat(b)
}
