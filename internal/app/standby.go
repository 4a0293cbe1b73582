package app

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/job"
	"github.com/sandbox-agent/sandbox-agent/internal/host/tasks"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// StandbyOptions configure KeepStandbys.
type StandbyOptions struct {
	Flags        TaskFlags
	Count        int // 0 means the project's number, and 1 without one
	MaxAge, Idle time.Duration
	Show         func(workorder.Event)
}

// KeepStandbys keeps sandboxes that wait for tasks of a project until ctx ends, and removes them.
func KeepStandbys(ctx context.Context, t *Tasks, o StandbyOptions) error {
	boxes := &attemptRunner{t: t}
	if err := boxes.open(); err != nil {
		return err
	}
	own, err := boxes.st.Owner(true)
	if err != nil {
		return err
	}
	k := &launch.StandbyOwner{Launcher: t.launcher(boxes.be, boxes.st, o.Show), Count: o.Count, MaxAge: o.MaxAge, Idle: o.Idle}
	k.Job = func(ctx context.Context) (*job.Job, func(context.Context, string) error, error) {
		p := t.newJob(TaskRequest{Flags: o.Flags})
		if p.r, err = t.Resolver.Find(ctx, &p.Flags); err == nil {
			err = p.r.FromBase(ctx)
		}
		if err == nil {
			task := tasks.State{Request: tasks.Request{Task: workorder.NewTaskID()}}
			err = p.order(ctx, task, tasks.Attempt{Text: "standby", Mode: workorder.ModeCreate})
		}
		if err != nil {
			return nil, nil, err
		}
		p.r.Job.Owner = own.ID
		if len(p.r.Project.Repos) > 0 {
			return nil, nil, exiterr.New(workorder.ExitInvalid, errors.New("no sandbox can wait for tasks with `repos`"),
				"remove repos from the project file, or start its tasks without a standby")
		}
		k.Count = cmp.Or(o.Count, p.r.Project.Standby, 1)
		if p.r.Local == nil {
			return p.r.Job, nil, nil
		}
		return p.r.Job, func(ctx context.Context, file string) error { return p.r.Local.Bundle(ctx, file, p.r.Project.Branch) }, nil
	}
	return k.Run(ctx)
}
