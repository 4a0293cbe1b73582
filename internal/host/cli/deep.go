package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/host/credentials"
	"github.com/sandbox-agent/sandbox-agent/internal/host/doctor/conformance"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/job"
	"github.com/sandbox-agent/sandbox-agent/internal/host/resolve"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/projects/demo"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// deepMinutes bounds one box of the checks; they take one minute on an idle machine.
const deepMinutes = 15

type deepOptions struct {
	deep, json                   bool
	isolation, ociRuntime, image string
}

// deep is a run of the conformance checks.
type deep struct {
	a  *App
	o  *deepOptions
	st *store.Store
	be *Backend
	// checks are the finished ones; width is the length of the longest name.
	checks []conformance.Check
	width  int
}

// do runs the Docker checks in real boxes, as ordinary tasks.
func (o *deepOptions) do(ctx context.Context, a *App) error {
	st, err := a.store()
	if err != nil {
		return err
	}
	be, err := a.open()
	if err != nil {
		return err
	}
	if _, err := be.Engine.Info(ctx); err != nil {
		return err // before the long steps, and with what to do about it
	}
	d := &deep{a: a, o: o, st: st, be: be}
	for _, p := range conformance.Parts() {
		names, err := conformance.Names(p)
		if err != nil {
			return err
		}
		for _, n := range names {
			d.width = max(d.width, len(n))
		}
	}
	forget, err := d.service(ctx)
	if err != nil {
		return err
	}
	defer forget()
	for _, p := range conformance.Parts() {
		if err := d.part(ctx, p); err != nil {
			return err
		}
	}
	if o.json {
		if err := a.json(d.checks); err != nil {
			return err
		}
	}
	failed := 0
	for _, check := range d.checks {
		if !check.OK {
			failed++
		}
	}
	if !o.json {
		fmt.Fprintf(a.Stdout, "\n%d checks, %d failed (%s)\n", len(d.checks), failed, d.held())
	}
	if failed > 0 {
		return cmdutil.Exit(workorder.ExitGeneral)
	}
	return nil
}

func (d *deep) held() string {
	if d.o.ociRuntime != "" {
		return d.o.isolation + ", OCI runtime " + d.o.ociRuntime
	}
	return d.o.isolation
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
	if err := d.be.Images.Derive(ctx, demo.ServiceImage, dockerfile, d.progress); err != nil {
		return forget, fmt.Errorf("make the image of the service: %w", err)
	}
	if there {
		return forget, nil
	}
	return func() {
		if err := d.be.Images.Remove(context.WithoutCancel(ctx), demo.ServiceImage); err != nil {
			fmt.Fprintln(d.a.Stderr, "warning: left behind: the image "+demo.ServiceImage+": "+text.Clean(err.Error()))
		}
	}, nil
}

// progress reports the long steps before the first check on standard error.
func (d *deep) progress(e workorder.Event) {
	if e.Type == workorder.EventStepStarted {
		fmt.Fprintln(d.a.Stderr, "… "+text.Clean(strings.TrimSpace(e.Name+" "+e.Text)))
	}
}

// part runs a part of the checks in a box of its own, and deletes its task afterwards.
func (d *deep) part(ctx context.Context, p conformance.Part) error {
	job, err := d.job(p)
	if err != nil {
		return err
	}
	own, err := d.st.Owner(true)
	if err != nil {
		return err
	}
	job.Owner = own.ID
	done := len(d.checks)
	l := d.a.tasks(nil).Launcher(d.be, d.st, func(e workorder.Event) { d.event(p, e) })
	l.Remote = credentials.New(d.a.Getenv)
	res, err := l.Run(ctx, d.a.Hard, job)
	if rec, lerr := d.st.Load(job.Order.TaskID); lerr == nil && rec.Collected {
		if rerr := d.st.Remove(rec); rerr != nil {
			err = errors.Join(err, rerr)
		}
	}
	if err != nil {
		return err
	}
	if res == nil {
		return fault.New(workorder.ExitBox, errors.New("the sandbox left no result"), "")
	}
	if len(d.checks) == done {
		return fault.New(workorder.ExitCode(res.Status, res.EndedBy), fmt.Errorf("no check ran: %s", reason(res)), d.hint(res))
	}
	missing, err := conformance.Missing(p, d.checks, reason(res))
	for _, c := range missing {
		d.add(c)
	}
	return err
}

// job is the task of a part: no repository, no secret, a command as its agent.
func (d *deep) job(p conformance.Part) (*job.Job, error) {
	script, err := conformance.Script(p)
	if err != nil {
		return nil, err
	}
	project, err := projects.Parse("built-in:doctor", []byte(`name: doctor
harness: {name: command, command: "true"}
packages: [`+conformance.Package+`]
env: {`+conformance.RedisVariable+`: `+demo.ServiceImage+`}
timeout_minutes: `+fmt.Sprint(deepMinutes)+`
`), projects.LoadOptions{})
	if err != nil {
		return nil, err
	}
	for _, f := range []struct{ key, value, flag string }{
		{"isolation", d.o.isolation, "--isolation"}, {"oci_runtime", d.o.ociRuntime, "--oci-runtime"}, {"image", d.o.image, "--image"},
	} {
		if f.value == "" {
			continue
		}
		if err := project.Override(f.key, f.value, f.flag); err != nil {
			return nil, err
		}
	}
	project.Harness.Command = []string{"bash", "-c", script}
	if p == conformance.Services {
		project.Services = []workorder.Service{{Name: "redis", Image: demo.ServiceImage}}
	}
	r := resolve.Of(project)
	err = r.Order(projects.OrderInput{Task: "Use Docker as agents do (" + string(p) + ")."})
	return r.Job, err
}

// event shows a check as it finishes.
func (d *deep) event(p conformance.Part, e workorder.Event) {
	if e.Type != workorder.EventAgentOutput {
		d.progress(e)
		return
	}
	if c, ok := conformance.Parse(p, e.Text); ok {
		d.add(c)
	}
}

func (d *deep) add(c conformance.Check) {
	d.checks = append(d.checks, c)
	if d.o.json {
		return
	}
	status := "ok"
	if !c.OK {
		status = "FAIL"
	}
	line := fmt.Sprintf("%-4s  %-8s  %-*s  %s", status, c.Part, d.width, text.Clean(c.Name), strings.ReplaceAll(text.Clean(c.Detail), "|", " | "))
	fmt.Fprintln(d.a.Stdout, strings.TrimRight(line, " "))
}

func reason(res *workorder.Result) string {
	if len(res.Reasons) > 0 {
		return res.Reasons.String()
	}
	return "the run ended with status " + string(res.Status)
}

// hint is the advice for a box in which no check ran.
func (d *deep) hint(res *workorder.Result) string {
	if res.Status == workorder.StatusInterrupted {
		return ""
	}
	for _, s := range res.Steps {
		if s.Name == "packages" && s.Status == workorder.StepFailed {
			return "the checks need the package " + conformance.Package + " from a package mirror that the sandbox can reach"
		}
	}
	return "`sandbox-agent doctor` tells what this engine can give"
}
