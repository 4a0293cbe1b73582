// Command bench measures what a user waits for: medians of interleaved runs and
// their ratio to the floor, which is an empty container of the same image. It
// asserts nothing; machines differ.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// runDeadline bounds one measured command; a hang must not look like a slow run.
const runDeadline = 2 * time.Minute

func main() {
	cli := flag.String("cli", "bin/sandbox-agent", "the program to measure")
	rounds := flag.Int("n", 7, "rounds")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *cli, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, cli string, rounds int) error {
	cli, err := filepath.Abs(cli)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "sandbox-agent-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) // a temporary folder
	out, err := proc.Output(ctx, proc.Spec{Argv: []string{cli, "image", "build"}})
	if err != nil {
		return fmt.Errorf("build the image: %w", err)
	}
	lines := strings.Fields(string(out))
	if len(lines) == 0 {
		return errors.New("image build did not print the image's name")
	}
	b := bench{cli: cli, dir: dir, image: lines[len(lines)-1], times: map[string][]float64{}}
	if err := b.prepare(ctx); err != nil {
		return err
	}
	for i := range rounds + 1 {
		// The first round warms caches and does not count.
		b.discard = i == 0
		if err := b.round(ctx); err != nil {
			return err
		}
	}
	b.print()
	return nil
}

// bench collects milliseconds (or megabytes) by name.
type bench struct {
	cli, dir, image string
	services        []string
	discard         bool
	names           []string
	times           map[string][]float64
}

func (b *bench) add(name string, value float64) {
	if b.discard {
		return
	}
	if _, ok := b.times[name]; !ok {
		b.names = append(b.names, name)
	}
	b.times[name] = append(b.times[name], value)
}

func (b *bench) prepare(ctx context.Context) error {
	repo := filepath.Join(b.dir, "repo")
	for _, argv := range [][]string{
		{"git", "init", "-q", "-b", "main", repo},
		{"git", "-C", repo, "-c", "user.name=bench", "-c", "user.email=bench@example.com", "commit", "-q", "--allow-empty", "-m", "start"},
	} {
		if _, err := proc.Output(ctx, proc.Spec{Argv: argv}); err != nil {
			return err
		}
	}
	const idle = "name: idle\nrepo: ./repo\nbranch: main\nharness: {name: command, command: [sleep, \"60\"]}\ntimeout_minutes: 2\n"
	if err := os.WriteFile(filepath.Join(b.dir, "idle.yaml"), []byte(idle), 0o644); err != nil {
		return err
	}
	project := "name: bench\nrepo: ./repo\nbranch: main\nharness: {name: command, command: [\"true\"]}\ntimeout_minutes: 2\n"
	if err := os.WriteFile(filepath.Join(b.dir, "plain.yaml"), []byte(project), 0o644); err != nil {
		return err
	}
	// Images that the tests on the engine leave behind; without them that part is left out.
	var services strings.Builder
	for name, port := range map[string]int{"redis": 6379, "postgres": 5432} {
		image := "sandbox-agent-e2e/" + name
		if _, err := proc.Output(ctx, proc.Spec{Argv: []string{"docker", "image", "inspect", image}}); err != nil {
			continue
		}
		b.services = append(b.services, name)
		fmt.Fprintf(&services, "  %s: {image: %s, ports: [%d]}\n", name, image, port)
	}
	if services.Len() == 0 {
		fmt.Println("no images of services on the engine (make e2e builds them): measuring without")
		return nil
	}
	return os.WriteFile(filepath.Join(b.dir, "services.yaml"), []byte(project+"services:\n"+services.String()), 0o644)
}

// round runs each measurement once, so that the machine's drift hits all alike.
func (b *bench) round(ctx context.Context) error {
	floor, err := timed(ctx, "docker", "run", "--rm", "--entrypoint", "true", b.image)
	if err != nil {
		return err
	}
	b.add("floor: docker run --rm IMAGE true", floor)
	help, err := timed(ctx, b.cli, "--help")
	if err != nil {
		return err
	}
	b.add("--help", help)
	if err := b.create(ctx, "plain"); err != nil {
		return err
	}
	if err := b.idle(ctx); err != nil {
		return err
	}
	if len(b.services) > 0 {
		return b.create(ctx, "services")
	}
	return nil
}

func timed(ctx context.Context, argv ...string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, runDeadline)
	defer cancel()
	start := time.Now()
	_, err := proc.Output(ctx, proc.Spec{Argv: argv})
	return ms(time.Since(start)), err
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// create runs one task and reads the times out of its events.
func (b *bench) create(ctx context.Context, project string) error {
	ctx, cancel := context.WithTimeout(ctx, runDeadline)
	defer cancel()
	start := time.Now()
	out, err := proc.Output(ctx, proc.Spec{
		Argv:  []string{b.cli, "create", "-p", filepath.Join(b.dir, project+".yaml"), "--task", "nothing", "--json", "--out", filepath.Join(b.dir, "out")},
		Grace: workorder.StopGrace,
	})
	if err != nil {
		return fmt.Errorf("create %s: %w\n%s", project, err, out)
	}
	b.add(project+": whole create", ms(time.Since(start)))
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var e workorder.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			continue
		}
		switch e.Type {
		case workorder.EventReady:
			b.add(project+": command to ready", ms(e.Time.Sub(start)))
		case workorder.EventAgentStarted:
			b.add(project+": command to agent", ms(e.Time.Sub(start)))
		case workorder.EventStepFinished:
			// Seq 0: the host's own; both sides have a step named box.
			if e.Status == string(workorder.StepDone) && e.Seq > 0 {
				b.add(project+": step "+e.Name, float64(e.DurationMS))
			}
		}
	}
	return nil
}

// idle measures the resident memory of the guest's processes while an agent sleeps.
func (b *bench) idle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, runDeadline)
	defer cancel()
	out, err := proc.Output(ctx, proc.Spec{Argv: []string{
		b.cli, "create", "-p", filepath.Join(b.dir, "idle.yaml"), "--task", "nothing", "--detach", "--out", filepath.Join(b.dir, "out"),
	}})
	if err != nil {
		return fmt.Errorf("create idle: %w", err)
	}
	// Progress comes first, the id last.
	words := strings.Fields(string(out))
	if len(words) == 0 {
		return errors.New("create --detach did not print the task id")
	}
	id := words[len(words)-1]
	defer func() {
		// Whatever was measured, the box must not stay.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), runDeadline)
		defer cancel()
		for _, argv := range [][]string{{b.cli, "stop", id}, {b.cli, "rm", id}} {
			if _, err := proc.Output(ctx, proc.Spec{Argv: argv}); err != nil {
				fmt.Fprintln(os.Stderr, "bench:", err)
			}
		}
	}()
	container, err := proc.Output(ctx, proc.Spec{Argv: []string{"docker", "ps", "-q", "--filter", "label=" + workorder.LabelTask + "=" + id}})
	if err != nil {
		return err
	}
	for {
		top, err := proc.Output(ctx, proc.Spec{Argv: []string{"docker", "top", strings.TrimSpace(string(container)), "-eo", "pid,rss,args"}})
		if err != nil {
			return err
		}
		if text := string(top); strings.Contains(text, "sleep 60") {
			var kb float64
			for line := range strings.Lines(text) {
				f := strings.Fields(line)
				if len(f) > 2 && f[2] == workorder.EntrypointIn {
					n, err := strconv.ParseFloat(f[1], 64)
					if err != nil {
						return fmt.Errorf("read docker top: %w", err)
					}
					kb += n
				}
			}
			b.add("idle: entrypoint resident, MB", kb/1024)
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.New("the sleeping agent never started")
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (b *bench) print() {
	base := median(b.times["floor: docker run --rm IMAGE true"])
	fmt.Println("milliseconds, unless said otherwise")
	fmt.Printf("%-40s %9s %9s %9s %8s\n", "", "min", "median", "max", "x floor")
	for _, name := range b.names {
		v := b.times[name]
		fmt.Printf("%-40s %9.0f %9.0f %9.0f %8s\n", name, slices.Min(v), median(v), slices.Max(v), strconv.FormatFloat(median(v)/base, 'f', 2, 64))
	}
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	n := len(s)
	if n%2 == 1 {
		return s[n/2]
	}
	return (s[n/2-1] + s[n/2]) / 2
}
