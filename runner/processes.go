package runner

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// processTable reads what the kernel shows of processes; its value is the
// folder, /proc but for tests.
type processTable string

const procTable processTable = "/proc"

// clockTicks is how many of /proc's units of CPU time and age make a second:
// USER_HZ, which is 100 on every Linux that Go runs on.
const clockTicks = 100

// process is one process at a moment.
type process struct {
	stat
	pid   int
	uid   uint32 // effective
	space string // its PID namespace; empty when that cannot be seen
}

type stat struct {
	parent, session int
	state, began    string // began in ticks since the machine's start: with the pid it names the process for good
	ticks           int64  // CPU time, with that of children it has waited for
	zombie          bool
}

// all lists the processes that are there; those that end meanwhile are left out.
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
	p := process{stat: st, pid: pid, space: t.space(strconv.Itoa(pid))}
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

// space is the PID namespace of a process, or of "self".
func (t processTable) space(pid string) string {
	ns, err := os.Readlink(filepath.Join(string(t), pid, "ns/pid"))
	if err != nil {
		return ""
	}
	return ns
}

func (t processTable) stat(pid int) (stat, error) {
	b, err := os.ReadFile(t.file(pid, "stat"))
	if err != nil {
		return stat{}, err
	}
	return parseStat(b)
}

func readStat(pid int) (stat, error) { return procTable.stat(pid) }

// parseStat reads /proc/<pid>/stat. The second field is the program's name in
// brackets and may contain anything, so the fields count from its last bracket.
func parseStat(b []byte) (stat, error) {
	i := bytes.LastIndexByte(b, ')')
	f := strings.Fields(string(b[i+1:]))
	if i < 0 || len(f) < 20 {
		return stat{}, fmt.Errorf("process state %q has too few fields", b)
	}
	parent, err := strconv.Atoi(f[1])
	if err != nil {
		return stat{}, fmt.Errorf("read parent: %w", err)
	}
	session, err := strconv.Atoi(f[3])
	if err != nil {
		return stat{}, fmt.Errorf("read session: %w", err)
	}
	var ticks int64
	for _, s := range f[11:15] { // its own in user and kernel mode, its children's in both
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return stat{}, fmt.Errorf("read CPU time: %w", err)
		}
		ticks += n
	}
	return stat{parent: parent, session: session, state: f[0], began: f[19], ticks: ticks, zombie: f[0] == "Z" || f[0] == "X"}, nil
}
