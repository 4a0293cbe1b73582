//go:build e2e && bench

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/provision"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/version"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/sandbox/code"
	"github.com/sandbox-agent/sandbox-agent/sandbox/pool"
)

// calls of a session are timed in each round.
const calls = 30

// TestBenchCode prints what leases, fresh places and sessions of code cost beside what does the same by itself, in the same minutes. It asserts nothing about time.
func TestBenchCode(t *testing.T) {
	ctx := t.Context()
	b := &codeBench{t: t, samples: samples{}}
	small, err := provision.EnsureSmall(ctx, eng, provision.Options{Version: version.Get().Version, StateDir: scratch})
	if err != nil {
		t.Fatal(err)
	}
	b.image = small.Name
	m, err := sandbox.NewManager(sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	leases := pool.New(m, pool.Options{Max: 1})
	runner := code.NewRunner(m, code.Options{Image: func(context.Context) (string, error) { return b.image, nil }})
	defer func() {
		if err := errors.Join(leases.Close(context.WithoutCancel(ctx)), runner.Close(context.WithoutCancel(ctx))); err != nil {
			t.Error(err)
		}
	}()
	b.lease(leases, map[string][]time.Duration{}) // the first one makes the container
	for range rounds {
		for range 5 {
			b.command("bwrap", slices.Concat(bwrapLine, []string{"true"})...)
			b.command("bwrap python", slices.Concat(bwrapLine, []string{systemPython, "-c", "pass"})...)
			b.command("python", systemPython, "-c", "pass")
			b.command("cli jail", bin, "run", "--runtime", "jail", "--env", "python", "pass")
			b.run("jail", runner, sandbox.RuntimeJail)
			b.lease(leases, b.samples)
		}
		b.command("docker run", "docker", "run", "--rm", "--network", "none", b.image, "true")
		b.command("docker run python", "docker", "run", "--rm", "--network", "none", b.image, "python3", "-c", "pass")
		b.command("cli container", bin, "run", "--runtime", "container", "--env", "python", "pass")
		b.session(m)
		b.kernel()
	}
	b.print()
}

// bwrapLine makes an empty jail by hand.
var bwrapLine = []string{"bwrap", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--die-with-parent", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"}

type codeBench struct {
	t       *testing.T
	image   string
	samples samples
}

func (b *codeBench) timed(name string, f func() error) {
	b.t.Helper()
	b.samples.timed(b.t, name, f)
}

func (b *codeBench) command(name string, argv ...string) {
	b.t.Helper()
	b.timed(name, func() error {
		_, err := proc.Output(b.t.Context(), proc.Spec{Argv: argv, Env: os.Environ()})
		return err
	})
}

// run runs Python in a fresh place.
func (b *codeBench) run(name string, r *code.Runner, kind sandbox.Runtime) {
	b.t.Helper()
	b.timed(name, func() error {
		res, err := r.Run(b.t.Context(), code.Request{Preset: "python", Code: "pass", Runtime: kind})
		if err == nil && res.ExitCode != 0 {
			err = fmt.Errorf("exit code %d: %s", res.ExitCode, res.Stderr)
		}
		return err
	})
}

// lease times a lease with one run of Python in it, and its parts.
func (b *codeBench) lease(p *pool.Pool, samples map[string][]time.Duration) {
	b.t.Helper()
	ctx := b.t.Context()
	start := time.Now()
	l, err := p.Acquire(ctx, pool.Spec{Image: b.image})
	if err != nil {
		b.t.Fatal(err)
	}
	lent := time.Now()
	r, err := l.Run(ctx, sandbox.Command{Argv: []string{"python3", "-c", "pass"}})
	if err != nil || r.ExitCode != 0 {
		b.t.Fatalf("exit code %d, %v", r.ExitCode, err)
	}
	ran := time.Now()
	if err := l.Release(ctx); err != nil {
		b.t.Fatal(err)
	}
	for name, d := range map[string]time.Duration{"acquire": lent.Sub(start), "lease python": ran.Sub(lent), "release": time.Since(ran), "whole lease": time.Since(start)} {
		samples[name] = append(samples[name], d)
	}
}

// session times the start of a session of Python in a jail that is there, and its calls.
func (b *codeBench) session(m *sandbox.Manager) {
	b.t.Helper()
	ctx := b.t.Context()
	sb, err := m.Create(ctx, sandbox.Spec{Runtime: sandbox.RuntimeJail, Network: sandbox.NetworkNone, Lifetime: sandbox.LifetimeEphemeral})
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = sb.Close() }()
	var s *sandbox.Session
	cell := func(text string) error {
		r, err := s.Run(ctx, sandbox.Cell{Code: text})
		if err == nil && !r.OK {
			err = fmt.Errorf("%s: %s", r.Error, r.Message)
		}
		return err
	}
	b.timed("session", func() (err error) {
		if s, err = sb.OpenSession(ctx, sandbox.SessionOptions{Driver: sandbox.DriverPython}); err != nil {
			return err
		}
		return cell("x = 1")
	})
	for range calls {
		b.timed("call", func() error { return cell("x + 1") })
	}
}

// kernel times the same of ipykernel.
func (b *codeBench) kernel() {
	b.t.Helper()
	out, err := proc.Output(b.t.Context(), proc.Spec{Argv: []string{systemPython, "testdata/kernel.py", strconv.Itoa(calls)}, Env: os.Environ()})
	if err != nil {
		b.t.Logf("ipykernel is not measured: %v", err)
		return
	}
	var doc struct {
		Ready float64   `json:"ready"`
		Calls []float64 `json:"calls"`
	}
	if err := json.Unmarshal(out, &doc); err != nil {
		b.t.Fatal(err)
	}
	ms := func(f float64) time.Duration { return time.Duration(f * float64(time.Millisecond)) }
	b.samples["kernel"] = append(b.samples["kernel"], ms(doc.Ready))
	for _, c := range doc.Calls {
		b.samples["kernel call"] = append(b.samples["kernel call"], ms(c))
	}
}

func (b *codeBench) print() {
	ms := func(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d.Microseconds())/1000) }
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "what code costs (medians of %d to %d)\tms\tbeside, ms\t×\taim\n", rounds, rounds*calls)
	for _, row := range []struct {
		label, ours, floor string
		aim                aim
	}{
		{"a lease: acquire; docker run --rm true", "acquire", "docker run", aim{times: 0.05}},
		{"a lease: python3 -c pass; by itself", "lease python", "python", aim{}},
		{"a lease: release; docker run --rm true", "release", "docker run", aim{most: 50 * time.Millisecond}},
		{"a lease: acquire, python3 -c pass, release; docker run --rm python3 -c pass", "whole lease", "docker run python", aim{times: 0.12}},
		{"Python in a fresh jail, from a program; bwrap … python3 -c pass", "jail", "bwrap python", aim{times: 1.6}},
		{"run --runtime jail --env python; bwrap … python3 -c pass", "cli jail", "bwrap python", aim{times: 1.6}},
		{"run --runtime container --env python; docker run --rm python3 -c pass", "cli container", "docker run python", aim{}},
		{"a session of Python: ready; python3 -c pass", "session", "python", aim{times: 4}},
		{"a session of Python: ready; ipykernel, ready", "session", "kernel", aim{}},
		{"a session of Python: a call; ipykernel, a call", "call", "kernel call", aim{0.35, 3 * time.Millisecond}},
		{"bwrap … true; bwrap … python3 -c pass", "bwrap", "bwrap python", aim{}},
	} {
		ours, floor := median(b.samples[row.ours]), median(b.samples[row.floor])
		fmt.Fprintf(w, "%s\t%s\t%s\t%.2f\t%s\n", row.label, ms(ours), ms(floor), float64(ours)/max(float64(floor), 1), row.aim.of(ours, floor))
	}
	_ = w.Flush()
}
