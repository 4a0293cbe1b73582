//go:build e2e && bench

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// TestBenchSandboxes prints what sandboxes without a task cost beside the engine's own commands, in the same minutes. It asserts nothing about time.
func TestBenchSandboxes(t *testing.T) {
	ctx := t.Context()
	m, err := sandbox.NewManager(sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	took := samples{}
	timed := func(name string, f func() error) {
		t.Helper()
		took.timed(t, name, f)
	}
	command := func(argv ...string) func() error {
		return func() error { _, err := proc.Output(ctx, proc.Spec{Argv: argv, Env: os.Environ()}); return err }
	}
	name := fmt.Sprintf("bench-%d", os.Getpid())
	held, err := m.Create(ctx, sandbox.Spec{Name: name, Image: plainImage, Network: sandbox.NetworkNone})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := held.Remove(context.WithoutCancel(ctx), sandbox.RemoveOptions{}); err != nil {
			t.Error(err)
		}
	}()
	run := func(sb *sandbox.Sandbox, argv ...string) func() error {
		return func() error {
			r, err := sb.Run(ctx, sandbox.Command{Argv: argv, MaxOutput: 1 << 10})
			if err == nil && r.ExitCode != 0 {
				err = fmt.Errorf("exit code %d: %s", r.ExitCode, r.Stderr)
			}
			return err
		}
	}
	const megabytes = 200
	flood := []string{"head", "-c", fmt.Sprint(megabytes * 1000 * 1000), "/dev/zero"}
	docker := []string{"docker", "exec", "sandbox-agent-sandbox-" + name}
	for range rounds {
		for range 5 {
			timed("bwrap", command(slices.Concat(bwrapLine, []string{"true"})...))
			timed("jail", func() error {
				sb, err := m.Create(ctx, sandbox.Spec{Runtime: sandbox.RuntimeJail, Network: sandbox.NetworkNone, Lifetime: sandbox.LifetimeEphemeral})
				if err != nil {
					return err
				}
				return errors.Join(run(sb, "true")(), sb.Remove(ctx, sandbox.RemoveOptions{}))
			})
		}
		timed("docker run", command("docker", "run", "--rm", "--network", "none", plainImage, "true"))
		timed("up", func() error {
			sb, err := m.Create(ctx, sandbox.Spec{Image: plainImage, Network: sandbox.NetworkNone, Lifetime: sandbox.LifetimeEphemeral})
			if err != nil {
				return err
			}
			defer func() { _ = sb.Close() }()
			return run(sb, "true")()
		})
		timed("docker exec", command(append(docker, "true")...))
		for range 5 {
			timed("cli exec", command(bin, "exec", name, "--", "true"))
		}
		for range 20 {
			timed("held exec", run(held, "true"))
		}
		timed("docker exec flood", command("sh", "-c", strings.Join(append(docker, flood...), " ")+" >/dev/null"))
		timed("held flood", run(held, flood...))
	}
	before := processes(t, name)
	for range 1000 {
		if err := run(held, "true")(); err != nil {
			t.Fatal(err)
		}
	}
	ms := func(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d.Microseconds())/1000) }
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "what a sandbox without a task costs (median of %d)\tms\tthe engine's own\t×\taim\n", rounds)
	for _, row := range []struct {
		label, ours, floor string
		aim                aim
	}{
		{"made, first command answered, removed; docker run --rm", "up", "docker run", aim{times: 1.5}},
		{"a jail made, first command answered, removed; bwrap … true", "jail", "bwrap", aim{times: 6}},
		{"exec over a connection that is held; docker exec", "held exec", "docker exec", aim{times: 0.1}},
		{"exec on the command line; docker exec", "cli exec", "docker exec", aim{times: 0.5}},
		{fmt.Sprintf("%d MB of output; docker exec", megabytes), "held flood", "docker exec flood", aim{times: 2.5}},
	} {
		ours, floor := median(took[row.ours]), median(took[row.floor])
		fmt.Fprintf(w, "%s\t%s\t%s\t%.2f\t%s\n", row.label, ms(ours), ms(floor), float64(ours)/float64(floor), row.aim.of(ours, floor))
	}
	_ = w.Flush()
	fmt.Printf("1,000 commands left %d processes; the guest has %s\n", processes(t, name)-before, guestMemory(t, name))
}

// processes counts those of a sandbox.
func processes(t *testing.T, name string) int {
	t.Helper()
	top, err := eng.ContainerTop(t.Context(), "sandbox-agent-sandbox-"+name, nil)
	if err != nil {
		t.Fatal(err)
	}
	return len(top.Processes)
}

// guestMemory is the resident memory of the guest's processes while nothing runs.
func guestMemory(t *testing.T, name string) string {
	t.Helper()
	in, err := eng.ContainerInspect(t.Context(), "sandbox-agent-sandbox-"+name)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	matches, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range matches {
		if b, err := os.ReadFile(m); err == nil && strings.Contains(string(b), in.ID) {
			all = append(all, fmt.Sprintf("%.1f MiB", float64(rss(filepath.Dir(m)))/1024))
		}
	}
	return strings.Join(all, " + ") + " resident (aim 14 MiB)"
}
