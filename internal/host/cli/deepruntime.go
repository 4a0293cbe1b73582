package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/host/doctor/holds"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// deepRuntime tries what a runtime of sandboxes without a task promises.
func (o *deepOptions) deepRuntime(ctx context.Context, a *App, name string) error {
	kind, err := a.Runtime(name)
	if err != nil {
		return err
	}
	if kind == sandbox.RuntimeAuto {
		return usage("--runtime names one: `sandbox-agent runtime list` lists them")
	}
	m, err := a.sandboxes()
	if err != nil {
		return err
	}
	defer m.Close()
	all := m.Runtimes(ctx)
	i := slices.IndexFunc(all, func(r sandbox.RuntimeInfo) bool { return r.Runtime == kind })
	if i < 0 || !all[i].Healthy {
		why := "it is not there"
		if i >= 0 {
			why = all[i].Reason
		}
		return fault.New(workorder.ExitBox, fmt.Errorf("runtime %s cannot be used here: %s", kind, why), "`sandbox-agent runtime list` lists those that can")
	}
	t := &tried{m: m, info: all[i], spec: sandbox.Spec{Runtime: kind, OCIRuntime: o.ociRuntime, Image: o.image}}
	if t.spec.Image == "" && kind == sandbox.RuntimeContainer {
		return usage("--runtime %s needs --image, one of the engine's", kind)
	}
	var checks []holds.Check
	failed := 0
	err = holds.Try(ctx, t, func(c holds.Check) {
		checks = append(checks, c)
		word := "ok"
		switch {
		case !c.Offered:
			word = "none"
		case !c.OK:
			word = "FAIL"
			failed++
		}
		if !o.json {
			line := fmt.Sprintf("%-4s  %s", word, c.Name)
			if c.Detail != "" {
				line += ": " + text.Printable(c.Detail)
			}
			fmt.Fprintln(a.Stdout, line)
		}
	})
	if err != nil {
		return sandboxError(err)
	}
	if o.json {
		err = a.json(checks)
	} else {
		fmt.Fprintf(a.Stdout, "\n%d promises, %d do not hold, %q are not given by %s\n", len(checks), failed, notOffered(checks), kind)
	}
	if err == nil && failed > 0 {
		err = cmdutil.Exit(workorder.ExitGeneral)
	}
	return err
}

func notOffered(all []holds.Check) (names []string) {
	for _, c := range all {
		if !c.Offered {
			names = append(names, c.Name)
		}
	}
	return names
}

// tried is the holds.Kind of a runtime.
type tried struct {
	m    *sandbox.Manager
	info sandbox.RuntimeInfo
	spec sandbox.Spec
}

func (t *tried) Has(capability string) bool {
	return slices.Contains(t.info.Capabilities, sandbox.Capability(capability))
}

func (t *tried) Make(ctx context.Context, w holds.Wish) (holds.Sandbox, error) {
	s := t.spec
	s.Name = fmt.Sprintf("doctor-%d", time.Now().UnixNano())
	s.User, s.Limits = w.User, sandbox.Limits{MemoryBytes: w.MemoryBytes, PIDs: w.PIDs, CPUs: w.CPUs}
	if w.NetworkNone {
		s.Network = sandbox.NetworkNone
	}
	sb, err := t.m.Create(ctx, s)
	if err != nil {
		return nil, err
	}
	return triedSandbox{sb}, nil
}

type triedSandbox struct{ *sandbox.Sandbox }

func (s triedSandbox) Remove(ctx context.Context) error {
	return s.Sandbox.Remove(ctx, sandbox.RemoveOptions{})
}

func (s triedSandbox) Run(ctx context.Context, script string, timeout time.Duration) (holds.Outcome, error) {
	r, err := s.Sandbox.Run(ctx, sandbox.Command{Argv: []string{"/bin/sh", "-c", script}, Timeout: timeout})
	return holds.Outcome{
		Output: string(r.Stdout) + string(r.Stderr), ExitCode: r.ExitCode, TimedOut: r.TimedOut, OutOfMemory: r.OutOfMemory, Duration: r.Duration,
	}, err
}
