package runner

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Bounds of the evidence of a hang: an agent can start any number of processes with any number of arguments.
const (
	maxShown   = 200 // processes
	maxCommand = 500 // bytes of a command line
	maxStack   = 4 << 10
	maxHanging = 200 // bytes of the command named in a reason
	// maxRead is how many bytes of a file in /proc are read: a process can have a command line of megabytes.
	maxRead    = 64 << 10
	maxFiles   = 1000 // open files counted per process
	maxThreads = 100  // per process
)

type hang struct {
	quiet time.Duration // without a sign of life
	what  string        // command that hangs
	path  string        // evidence file, relative to OutDir; empty if it could not be saved
}

func (h *hang) reason() string {
	s := fmt.Sprintf(
		"the agent showed no sign of life for %s: no output, no change in the work tree, no CPU time, no process started or ended",
		duration(h.quiet),
	)
	if h.what != "" {
		s += "; hanging command: " + h.what
	}
	return s
}

// duration formats d as people write it: 15m, not 15m0.4s.
func duration(d time.Duration) string {
	s := d.Round(time.Second).String()
	if short, ok := strings.CutSuffix(s, "m0s"); ok {
		s = short + "m"
	}
	if short, ok := strings.CutSuffix(s, "h0m"); ok {
		s = short + "h"
	}
	return s
}

// hanging returns the command that an agent waits for: its youngest process without children, except the agent itself.
func (s *processScope) hanging(agents []process) string {
	parents := map[int]bool{}
	for _, p := range agents {
		parents[p.Parent] = true
	}
	var leaf *process
	for i, p := range agents {
		if p.pid != s.agent && !parents[p.pid] && (leaf == nil || p.age() > leaf.age()) {
			leaf = &agents[i]
		}
	}
	if leaf == nil {
		return ""
	}
	return s.table.command(leaf.pid, maxHanging)
}

// age orders processes by start time: the larger, the younger.
func (p process) age() int64 {
	n, _ := strconv.ParseInt(p.Began, 10, 64) // parsed by proc.ParseStat from kernel output
	return n
}

// command returns a process's command line on one line, or its name in brackets.
func (t processTable) command(pid, size int) string {
	b := t.read(pid, "cmdline")
	if b == "" {
		return "[" + strings.TrimSpace(t.read(pid, "comm")) + "]"
	}
	return text.Cut(text.Printable(strings.TrimRight(b, "\x00")), size)
}

// read returns a file of a process in /proc; empty if it cannot be read.
func (t processTable) read(pid int, name string) string {
	f, err := os.Open(t.file(pid, name))
	if err != nil {
		return ""
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxRead))
	if err != nil {
		return ""
	}
	return string(b)
}

// names lists at most that many entries of a directory of a process.
func (t processTable) names(pid int, name string, most int) ([]string, error) {
	f, err := os.Open(t.file(pid, name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	list, err := f.Readdirnames(most)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return list, nil
}

func (a *agentRun) saveHang(h *hang, pid int, agents, beside []process) error {
	a.hangs++
	what := fmt.Sprintf("hang-%d", a.hangs)
	if a.Round > 0 {
		what = fmt.Sprintf("repair-%d-%s", a.Round, what)
	}
	name := fmt.Sprintf("%s/%s.txt", workorder.EvidenceDir, what)
	path := a.logPath(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("create evidence directory: %w", err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s, agent %s, pid %d\n", h.reason(), time.Now().UTC().Format(time.RFC3339), a.harness.Name(), pid)
	b.WriteString("\nProcesses of the agent:\n")
	procTable.describe(&b, agents)
	if len(beside) > 0 {
		b.WriteString("\nProcesses that existed before the agent:\n")
		procTable.describe(&b, beside)
	}
	b.WriteString("\nWhere they wait:\n")
	for _, p := range agents[:min(len(agents), maxShown)] {
		procTable.waiting(&b, p.pid)
	}
	fmt.Fprintf(&b, "\nThe end of its output:\n%s\n\nThe end of its standard error:\n%s\n", a.stdout, a.stderr)
	if err := os.WriteFile(path, []byte(a.Redact.String(b.String())), 0o644); err != nil {
		return fmt.Errorf("save evidence of a hang: %w", err)
	}
	h.path = name
	a.evidence = append(a.evidence, workorder.Evidence{Name: strings.ReplaceAll(what, "-", " "), Path: name, Kind: "hang"})
	return nil
}

// describe prints processes as a tree, with age and CPU time in seconds and the number of open files.
func (t processTable) describe(b *strings.Builder, list []process) {
	fmt.Fprintf(b, "%8s %8s %s %8s %8s %5s %-24s %s\n", "PID", "PPID", "S", "AGE", "CPU", "FILES", "WAITS IN", "COMMAND")
	below := map[int][]process{}
	there := map[int]bool{}
	for _, p := range list {
		there[p.pid] = true
	}
	for _, p := range list {
		up := p.Parent
		if !there[up] {
			up = 0
		}
		below[up] = append(below[up], p)
	}
	var uptime float64
	if up, err := os.ReadFile(filepath.Join(string(t), "uptime")); err == nil {
		_, _ = fmt.Sscan(string(up), &uptime) // without it ages are negative, which is recognizable
	}
	shown := 0
	var show func(up, depth int)
	show = func(up, depth int) {
		for _, p := range below[up] {
			if shown++; shown > maxShown || depth > proc.MaxAncestors {
				continue
			}
			files := "?"
			if fds, err := t.names(p.pid, "fd", maxFiles+1); err == nil {
				if files = strconv.Itoa(len(fds)); len(fds) > maxFiles {
					files = strconv.Itoa(maxFiles) + "+"
				}
			}
			fmt.Fprintf(b, "%8d %8d %s %8.0f %8.2f %5s %-24s %s%s\n", p.pid, p.Parent, p.State, uptime-float64(p.age())/clockTicks,
				float64(p.Ticks)/clockTicks, files, t.read(p.pid, "wchan"), strings.Repeat("  ", depth), t.command(p.pid, maxCommand))
			show(p.pid, depth+1)
		}
	}
	show(0, 0)
	if shown > maxShown {
		fmt.Fprintf(b, "and %d more\n", shown-maxShown)
	}
}

// waiting prints the system call and, if permitted, the kernel stack of each thread that waits elsewhere than its process.
func (t processTable) waiting(b *strings.Builder, pid int) {
	threads, err := t.names(pid, "task", maxThreads)
	if err != nil {
		return // it ended
	}
	fmt.Fprintf(b, "%d:\n", pid)
	var said []string
	for _, th := range threads {
		call := t.read(pid, "task/"+th+"/syscall")
		stack := strings.TrimSpace(t.read(pid, "task/"+th+"/stack"))
		waits := "  system call " + strings.TrimSpace(call) + "\n"
		if stack != "" {
			waits += "    " + strings.ReplaceAll(text.Cut(stack, maxStack), "\n", "\n    ") + "\n"
		}
		if !slices.Contains(said, waits) {
			said = append(said, waits)
			b.WriteString(waits)
		}
	}
}
