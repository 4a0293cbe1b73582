package boot

import (
	"context"
	"errors"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/pipeline"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Standby runs the steps that need no order: the network policy, the inner engine, the services, and fetch, which gets the
// repository's objects. A Runner with Booted set has the rest.
func (r *Runner) Standby(ctx context.Context, fetch func(context.Context) error) error {
	r.begin()
	services := r.prep.servicesStep()
	services.Run = func(ctx context.Context) error { return errors.Join(r.Services.Up(ctx)) } // a task may do without one, a standby not
	list := &pipeline.List{Rec: r.Rec, Steps: compact(
		r.prep.boxStep(), r.prep.dockerStep(), services,
		&pipeline.Step{
			Name: workorder.StepClone, Title: "fetch the repository's base", After: []workorder.StepName{workorder.StepPrepare},
			Budget: cloneBudget, AllowFailure: true, Run: fetch,
		},
	)}
	return list.Work(ctx)
}
