package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/credentials"
	"github.com/sandbox-agent/sandbox-agent/internal/host/doctor"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/job"
	"github.com/sandbox-agent/sandbox-agent/internal/host/resolve"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/projects/demo"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// deepMinutes bounds one sandbox of the checks; they take one minute on an idle machine.
const deepMinutes = 15

// DeepOptions shape the sandboxes of deep checks.
type DeepOptions struct{ Isolation, OCIRuntime, Image string }

type (
	// DockerCheck is the outcome of a check of Conform.
	DockerCheck = doctor.DockerCheck
	// RuntimeCheck is the outcome of a check of TryRuntime.
	RuntimeCheck = doctor.RuntimeCheck
)

// DockerCheckNames returns the names of the checks of Conform.
func DockerCheckNames() (all []string, err error) {
	for _, p := range doctor.DockerParts() {
		names, err := doctor.DockerChecks(p)
		if err != nil {
			return nil, err
		}
		all = append(all, names...)
	}
	return all, nil
}

// Conform uses Docker in real sandboxes as agents do, as ordinary tasks. It calls step for each long step, and done with
// each check.
func (m Machine) Conform(ctx context.Context, o DeepOptions, step func(workorder.Event), done func(doctor.DockerCheck)) error {
	be, err := m.Engine()
	if err != nil {
		return err
	}
	if _, err := be.Engine.Info(ctx); err != nil {
		return err // before the long steps, and with what to do about it
	}
	d := &deep{m: m, o: o, be: be, step: step, done: done}
	forget, err := d.service(ctx)
	if err != nil {
		return err
	}
	defer forget()
	for _, p := range doctor.DockerParts() {
		if err := d.part(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// deep is a run of the conformance checks.
type deep struct {
	m    Machine
	o    DeepOptions
	be   *Backend
	step func(workorder.Event)
	done func(doctor.DockerCheck)
}

// service makes the image of the checks' service. forget removes it, unless it existed before.
func (d *deep) service(ctx context.Context) (forget func(), err error) {
	forget = func() {}
	there := true
	if ic, ok := d.be.Engine.(runtime.ImageStore); ok {
		id, err := ic.ImageID(ctx, demo.ServiceImage)
		there = err != nil || id != ""
	}
	dockerfile, err := demo.ServiceDockerfile()
	if err != nil {
		return forget, err
	}
	if err := d.be.Images.Derive(ctx, demo.ServiceImage, dockerfile, d.step); err != nil {
		return forget, fmt.Errorf("make the image of the service: %w", err)
	}
	if there {
		return forget, nil
	}
	return func() {
		if err := d.be.Images.Remove(context.WithoutCancel(ctx), demo.ServiceImage); err != nil {
			d.m.Warn("left behind: the image " + demo.ServiceImage + ": " + text.Clean(err.Error()))
		}
	}, nil
}

// part runs a part of the checks in a sandbox, and deletes its task afterwards.
func (d *deep) part(ctx context.Context, p doctor.DockerPart) error {
	job, err := d.job(p)
	if err != nil {
		return err
	}
	st, err := d.m.Store()
	if err != nil {
		return err
	}
	own, err := st.Owner(true)
	if err != nil {
		return err
	}
	job.Owner = own.ID
	var checks []doctor.DockerCheck
	l := (&Tasks{Env: d.m.Env}).launcher(d.be, st, func(e workorder.Event) {
		if e.Type != workorder.EventAgentOutput {
			d.step(e)
		} else if c, ok := doctor.ParseDockerCheck(p, e.Text); ok {
			checks = append(checks, c)
			d.done(c)
		}
	})
	l.Remote = credentials.New(d.m.Getenv)
	res, err := l.Run(ctx, d.m.Hard, job)
	if rec, lerr := st.Load(job.Order.TaskID); lerr == nil && rec.Collected {
		if rerr := st.Remove(rec); rerr != nil {
			err = errors.Join(err, rerr)
		}
	}
	if err != nil {
		return err
	}
	if res == nil {
		return exiterr.New(workorder.ExitBox, errors.New("the sandbox left no result"), "")
	}
	if len(checks) == 0 {
		return exiterr.New(workorder.ExitCode(res.Status, res.EndedBy), fmt.Errorf("no check ran: %s", reason(res)), noCheckHint(res))
	}
	missing, err := doctor.MissingDockerChecks(p, checks, reason(res))
	for _, c := range missing {
		d.done(c)
	}
	return err
}

// job is the task of a part: no repository, no secret, a command as its agent.
func (d *deep) job(p doctor.DockerPart) (*job.Job, error) {
	script, err := doctor.DockerScript(p)
	if err != nil {
		return nil, err
	}
	project, err := projects.Parse("built-in:doctor", []byte(`name: doctor
harness: {name: command, command: "true"}
packages: [`+doctor.DockerPackage+`]
env: {`+doctor.RedisVariable+`: `+demo.ServiceImage+`}
timeout_minutes: `+fmt.Sprint(deepMinutes)+`
`), projects.LoadOptions{})
	if err != nil {
		return nil, err
	}
	for _, f := range []struct{ key, value, flag string }{
		{"isolation", d.o.Isolation, "--isolation"}, {"oci_runtime", d.o.OCIRuntime, "--oci-runtime"}, {"image", d.o.Image, "--image"},
	} {
		if f.value == "" {
			continue
		}
		if err := project.Override(f.key, f.value, f.flag); err != nil {
			return nil, err
		}
	}
	project.Harness.Command = []string{"bash", "-c", script}
	if p == doctor.Services {
		project.Services = []workorder.Service{{Name: "redis", Image: demo.ServiceImage}}
	}
	r := resolve.Of(project)
	err = r.Order(projects.OrderInput{Task: "Use Docker as agents do (" + string(p) + ")."})
	return r.Job, err
}

func reason(res *workorder.Result) string {
	if len(res.Reasons) > 0 {
		return res.Reasons.String()
	}
	return "the run ended with status " + string(res.Status)
}

// noCheckHint is the advice for a sandbox in which no check ran.
func noCheckHint(res *workorder.Result) string {
	if res.Status == workorder.StatusInterrupted {
		return ""
	}
	for _, s := range res.Steps {
		if s.Name == "packages" && s.Status == workorder.StepFailed {
			return "the checks need the package " + doctor.DockerPackage + " from a package mirror that the sandbox can reach"
		}
	}
	return "check this engine with: sandbox-agent doctor"
}

// TryRuntime tries each promise of a runtime in sandboxes, and calls done with each check.
func (m Machine) TryRuntime(ctx context.Context, kind sandbox.Runtime, o DeepOptions, done func(doctor.RuntimeCheck)) error {
	if kind == sandbox.RuntimeAuto {
		return Usagef("name one runtime: `sandbox-agent runtime list` lists them")
	}
	boxes, err := m.Manager(false)
	if err != nil {
		return err
	}
	defer boxes.Close()
	all := boxes.Runtimes(ctx)
	i := slices.IndexFunc(all, func(r sandbox.RuntimeInfo) bool { return r.Runtime == kind })
	if i < 0 || !all[i].Healthy {
		why := "not installed"
		if i >= 0 {
			why = all[i].Reason
		}
		return exiterr.New(workorder.ExitBox, fmt.Errorf("runtime %s unavailable: %s", kind, why),
			"list the runtimes with: sandbox-agent runtime list")
	}
	t := &testedRuntime{m: boxes, info: all[i], spec: sandbox.Spec{Runtime: kind, OCIRuntime: o.OCIRuntime, Image: o.Image}}
	if t.spec.Image == "" && kind == sandbox.RuntimeContainer {
		return Usagef("runtime %s needs an image of the engine", kind)
	}
	return SandboxError(doctor.TryRuntime(ctx, t, done))
}

// testedRuntime is the doctor.RuntimeKind of a runtime.
type testedRuntime struct {
	m    *sandbox.Manager
	info sandbox.RuntimeInfo
	spec sandbox.Spec
}

func (t *testedRuntime) Has(c runtime.Capability) bool {
	return slices.Contains(t.info.Capabilities, sandbox.Capability(c))
}

func (t *testedRuntime) Make(ctx context.Context, w doctor.Requirements) (doctor.RuntimeSandbox, error) {
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

func (s triedSandbox) Run(ctx context.Context, script string, timeout time.Duration) (doctor.Outcome, error) {
	r, err := s.Sandbox.Run(ctx, sandbox.Command{Argv: []string{"/bin/sh", "-c", script}, Timeout: timeout})
	return doctor.Outcome{
		Output: string(r.Stdout) + string(r.Stderr), ExitCode: r.ExitCode, TimedOut: r.TimedOut, OutOfMemory: r.OutOfMemory, Duration: r.Duration,
	}, err
}
