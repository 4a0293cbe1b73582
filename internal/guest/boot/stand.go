package boot

import (
	"context"
	"fmt"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/initd"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/pipeline"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// whyAgain is why a step is skipped in a box that is started again: its results exist.
const whyAgain = "it ran before the box was stopped"

// standing returns the steps of a standalone box: those before a task's agent, and then the server. Services
// are recreated each time, since their containers do not outlive the inner engine.
func (b *Box) standing() *pipeline.List {
	p := b.prep
	steps := []*pipeline.Step{
		p.boxStep(), p.dockerStep(), p.cloneStep(), p.servicesStep(), once(b, p.packagesStep()), p.toolsStep(), p.supabaseStep(),
		once(b, p.envStep()), once(b, b.setup.setupStep()),
		p.serveStep(),
	}
	return &pipeline.List{Rec: b.Rec, Steps: compact(steps...)}
}

// once skips a step that has run before.
func once(b *Box, s *pipeline.Step) *pipeline.Step {
	skip := s.Skip
	s.Skip = func() string {
		if why := skip(); why != "" || !b.Stander.Again() {
			return why
		}
		return whyAgain
	}
	return s
}

func (b *preparer) serveStep() *pipeline.Step {
	return &pipeline.Step{
		Name: workorder.StepServe, Title: "serve clients until the sandbox is released", After: append(afterTree(workorder.StepSetup),
			prepared...),
		Run: func(ctx context.Context) error {
			over, err := b.Stander.Serve(ctx)
			if over != nil {
				b.Rec.Emit(workorder.Event{Type: workorder.EventOutput, Name: string(workorder.StepServe), Text: "the sandbox ends: " + over.Error()})
			}
			return err
		},
	}
}

// standingGrace bounds the cleanup: services are stopped by their own signal, since their data is kept.
const standingGrace = 9 * time.Second

// stand runs a standalone box. It lands nothing.
func (b *Box) stand(ctx context.Context) int {
	run, interrupt := context.WithCancelCause(ctx)
	defer interrupt(nil)
	b.lives = lives{run: run, land: context.WithoutCancel(ctx), after: context.WithoutCancel(ctx)}
	b.interrupt = interrupt
	go func() {
		for s := range b.Signals {
			if s != initd.LongStop {
				interrupt(fmt.Errorf("%w (%s)", errStopSignal, s))
				return
			}
		}
	}()
	list := b.list()
	b.land.end.Ending = workorder.Succeeded()
	if err := list.Work(run); err != nil && run.Err() == nil {
		b.land.failed(err)
	}
	undo, stop := context.WithTimeout(context.WithoutCancel(ctx), standingGrace)
	defer stop()
	list.Undo(undo)
	if err := b.Rec.Finish(func(r *workorder.Result) { r.End(b.land.end.Ending) }); err != nil {
		b.Log.Error("write result", "error", err)
	}
	return workorder.ExitCode(b.land.end.Status, b.land.end.EndedBy)
}
