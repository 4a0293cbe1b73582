//go:build e2e && bench

package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/sandbox/pool"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Numbers of what runs on one machine, at once or in a row.
const (
	scaleBoxes  = 8
	scaleJails  = 50
	scaleLeases = 1000
	scaleExecs  = 10_000
)

// TestBenchScale prints what many boxes at once, and many leases and commands in a row cost beside one of them. It asserts nothing about
// time or memory.
func TestBenchScale(t *testing.T) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "what many cost\tmeasured\tbeside\t×\taim\t\n")
	row := func(label, unit string, ours, beside, aim float64) {
		verdict := "met"
		if ours/beside > aim {
			verdict = "MISSED"
		}
		fmt.Fprintf(w, "%s\t%.1f %s\t%.1f %s\t%.2f\t≤ %.2f %s\t\n", label, ours, unit, beside, unit, ours/beside, aim, verdict)
	}
	scaleOfBoxes(t, row)
	m, err := sandbox.NewManager(sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	scaleOfJails(t, m, row)
	scaleOfLeases(t, m, row)
	scaleOfExecs(t, m, row)
	_ = w.Flush()
}

type scaleRow func(label, unit string, ours, beside, aim float64)

func seconds(d time.Duration) float64 { return d.Seconds() }

// scaleOfBoxes starts boxes with Redis at the same time, and looks at them while their agents wait.
func scaleOfBoxes(t *testing.T, row scaleRow) {
	t.Helper()
	u := newUser(t)
	project := u.project("name: scale\nservices:\n  redis: {image: " + redisImage + "}\n" +
		"harness: {name: command, command: \"echo at-work; sleep 120\"}\n")
	start := func() (first time.Duration, s *started) {
		began := time.Now()
		s = u.start("", "create", "--repo", u.repo(map[string]string{"a": "1"}), "--project", project, "--task", "wait")
		s.waitFor("at-work")
		return time.Since(began), s
	}
	_, warm := start() // fills the cache of layers
	u.run("", "stop", warm.task())
	warm.wait()
	one, s := start()
	u.run("", "stop", s.task())
	s.wait()
	firsts, runs := make([]time.Duration, scaleBoxes), make([]*started, scaleBoxes)
	var all sync.WaitGroup
	for i := range scaleBoxes {
		all.Go(func() { firsts[i], runs[i] = start() })
	}
	all.Wait()
	last := time.Duration(0)
	for _, d := range firsts {
		last = max(last, d)
	}
	row(fmt.Sprintf("%d boxes with Redis at once, the last agent's first event; one box", scaleBoxes), "s", seconds(last), seconds(one), 2.5)
	time.Sleep(5 * time.Second)
	memory, disk, size := 0, int64(0), int64(1)
	for _, r := range runs {
		of := filters.NewArgs(filters.Arg("label", workorder.LabelTask+"="+r.task()))
		boxes, err := eng.ContainerList(t.Context(), container.ListOptions{Size: true, Filters: of})
		if err != nil || len(boxes) != 1 {
			t.Fatalf("%d boxes, %v", len(boxes), err)
		}
		disk, size = max(disk, boxes[0].SizeRw), boxes[0].SizeRootFs-boxes[0].SizeRw
		memory = max(memory, guestPSS(t, boxes[0].ID))
	}
	const mib, percent = 1024, 0.01
	row("our programs' memory in a box whose agent waits, the largest (PSS); aim 40 MiB", "MiB", float64(memory)/mib, 40, 1)
	row("a box's own files while its agent waits, the largest, besides its engine's volume; 1 % of the image", "MB",
		float64(disk)/1e6, float64(size)*percent/1e6, 1)
	for _, r := range runs {
		u.run("", "stop", r.task())
		r.wait()
	}
}

// task is the id of a task that runs.
func (s *started) task() string {
	return (call{stdout: s.out.String(), stderr: s.errOut.String()}).task(s.t)
}

// guestPSS is the memory in KiB of the guest's programs in a box, with its part of shared pages.
func guestPSS(t *testing.T, id string) (kib int) {
	t.Helper()
	matches, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range matches {
		dir := filepath.Dir(m)
		in, err := os.ReadFile(m)
		exe, lerr := os.Readlink(dir + "/exe")
		if err != nil || lerr != nil || !strings.Contains(string(in), id) || exe != workorder.EntrypointIn {
			continue
		}
		f, err := os.Open(dir + "/smaps_rollup")
		if err != nil {
			continue // it has ended
		}
		for sc := bufio.NewScanner(f); sc.Scan(); {
			if v, ok := strings.CutPrefix(sc.Text(), "Pss:"); ok {
				n, _ := strconv.Atoi(strings.Fields(v)[0])
				kib += n
			}
		}
		f.Close()
	}
	return kib
}

// scaleOfJails keeps jails at the same time, and runs a command in each.
func scaleOfJails(t *testing.T, m *sandbox.Manager, row scaleRow) {
	t.Helper()
	ctx := t.Context()
	jail := func() (*sandbox.Sandbox, time.Duration) {
		began := time.Now()
		sb, err := m.Create(ctx, sandbox.Spec{Runtime: sandbox.RuntimeJail, Network: sandbox.NetworkNone, Lifetime: sandbox.LifetimeEphemeral})
		if err != nil {
			t.Fatal(err)
		}
		runIn(t, sb)
		return sb, time.Since(began)
	}
	var jails []*sandbox.Sandbox
	var took []time.Duration
	for range scaleJails {
		sb, d := jail()
		jails, took = append(jails, sb), append(took, d)
	}
	const end = 10
	row(fmt.Sprintf("a jail and its first command beside %d others; beside none", scaleJails-end), "ms",
		1000*seconds(median(took[len(took)-end:])), 1000*seconds(median(took[:end])), 1.5)
	for _, sb := range jails {
		if err := sb.Remove(ctx, sandbox.RemoveOptions{}); err != nil {
			t.Error(err)
		}
	}
}

type commandRunner interface {
	Run(context.Context, sandbox.Command) (sandbox.RunResult, error)
}

func runIn(t *testing.T, sb commandRunner) {
	t.Helper()
	if r, err := sb.Run(t.Context(), sandbox.Command{Argv: []string{"true"}}); err != nil || r.ExitCode != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
}

// scaleOfLeases lends one container again and again.
func scaleOfLeases(t *testing.T, m *sandbox.Manager, row scaleRow) {
	t.Helper()
	ctx := t.Context()
	p := pool.New(m, pool.Options{Max: 1})
	defer func() {
		if err := p.Close(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	}()
	drift(t, row, fmt.Sprintf("the last tenth of %d leases with a command; the first", scaleLeases), scaleLeases, func() {
		l, err := p.Acquire(ctx, pool.Spec{Image: plainImage})
		if err != nil {
			t.Fatal(err)
		}
		r, err := l.Run(ctx, sandbox.Command{Argv: []string{"true"}})
		if err = errors.Join(err, l.Release(ctx)); err != nil || r.ExitCode != 0 {
			t.Fatalf("%+v, %v", r, err)
		}
	})
}

// scaleOfExecs runs commands in one sandbox.
func scaleOfExecs(t *testing.T, m *sandbox.Manager, row scaleRow) {
	t.Helper()
	sb, err := m.Create(t.Context(), sandbox.Spec{Name: fmt.Sprintf("scale-%d", os.Getpid()), Image: plainImage, Network: sandbox.NetworkNone})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := sb.Remove(context.WithoutCancel(t.Context()), sandbox.RemoveOptions{}); err != nil {
			t.Error(err)
		}
	}()
	in, err := eng.ContainerInspect(t.Context(), "sandbox-agent-sandbox-"+fmt.Sprintf("scale-%d", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	guest := func() (kib, open int) {
		pid := "/proc/" + strconv.Itoa(in.State.Pid)
		fds, _ := os.ReadDir(pid + "/fd")
		return rss(pid), len(fds)
	}
	runIn(t, sb)
	kib, open := guest()
	drift(t, row, fmt.Sprintf("the last tenth of %d commands in a sandbox; the first", scaleExecs), scaleExecs, func() { runIn(t, sb) })
	after, left := guest()
	const mib = 1024
	row("the sandbox's first process after them (RSS); before", "MiB", float64(after)/mib, float64(kib)/mib, 1.5)
	row("its open files after them; before", "files", float64(left), float64(open), 1)
}

// drift calls f many times, and compares the medians of the last and the first tenth, and this process's open files.
func drift(t *testing.T, row scaleRow, label string, n int, f func()) {
	t.Helper()
	var took []time.Duration
	open := func() float64 {
		fds, _ := os.ReadDir("/proc/self/fd")
		return float64(len(fds))
	}
	before := 0.0
	for i := range n {
		if i == n/10 {
			before = open()
		}
		began := time.Now()
		f()
		took = append(took, time.Since(began))
	}
	row(label, "ms", 1000*seconds(median(took[n-n/10:])), 1000*seconds(median(took[:n/10])), 1.2)
	row("  open files of the caller after them; after the first tenth", "files", open(), before, 1)
}
