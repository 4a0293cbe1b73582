package boot

import (
	"context"
	"fmt"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/initd"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/pipeline"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// whyRanBefore is why a step is skipped in a box that is started again: its results exist.
const whyRanBefore = "it ran before the box was stopped"

// standaloneList returns the steps of a standalone box: those before a task's agent, and then the server.
func (r *Runner) standaloneList() *pipeline.List {
	p := r.prep
	steps := []*pipeline.Step{
		p.boxStep(), p.dockerStep(), p.cloneStep(), p.servicesStep(), once(r, p.packagesStep()), p.toolsStep(), p.supabaseStep(),
		once(r, p.envStep()), once(r, r.setup.setupStep()),
		p.serveStep(),
	}
	return &pipeline.List{Rec: r.Rec, Steps: compact(steps...)}
}

// once skips a step that has run before.
func once(r *Runner, s *pipeline.Step) *pipeline.Step {
	skip := s.Skip
	s.Skip = func() string {
		if why := skip(); why != "" || !r.Standalone.Restarted() {
			return why
		}
		return whyRanBefore
	}
	return s
}

func (b *preparer) serveStep() *pipeline.Step {
	return &pipeline.Step{
		Name: workorder.StepServe, Title: "serve clients until the sandbox is released", After: append(afterTree(workorder.StepSetup),
			prepared...),
		Run: func(ctx context.Context) error {
			over, err := b.Standalone.Serve(ctx)
			if over != nil {
				b.Rec.Emit(workorder.Event{Type: workorder.EventOutput, Name: string(workorder.StepServe), Text: "the sandbox ends: " + over.Error()})
			}
			return err
		},
	}
}

// standaloneGrace bounds the cleanup: services are stopped by their own signal, since their data is kept.
const standaloneGrace = 9 * time.Second

// runStandalone runs a standalone box. It lands nothing.
func (r *Runner) runStandalone(ctx context.Context) int {
	run, interrupt := context.WithCancelCause(ctx)
	defer interrupt(nil)
	r.contexts = phaseContexts{run: run, land: context.WithoutCancel(ctx), after: context.WithoutCancel(ctx)}
	r.interrupt = interrupt
	go func() {
		for s := range r.Signals {
			if s != initd.LongStop {
				interrupt(fmt.Errorf("%w (%s)", errStopSignal, s))
				return
			}
		}
	}()
	list := r.list()
	r.land.end.Ending = workorder.Succeeded()
	if err := list.Work(run); err != nil && run.Err() == nil {
		r.land.failed(err)
	}
	undo, stop := context.WithTimeout(context.WithoutCancel(ctx), standaloneGrace)
	defer stop()
	list.Undo(undo)
	if err := r.Rec.Finish(func(res *workorder.Result) { res.End(r.land.end.Ending) }); err != nil {
		r.Log.Error("write result", "error", err)
	}
	return workorder.ExitCode(r.land.end.Status, r.land.end.EndedBy)
}
