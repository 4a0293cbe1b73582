// Package rescue lands the work that boot could not land, and writes the result.
package rescue

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/land"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/boot"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/cgroups"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/dockerd"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/initd"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/innerengine"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/record"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/redact"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Rescue is the landing of a boot that died.
type Rescue struct {
	Log     *slog.Logger
	Rec     *record.Recorder
	Signals <-chan os.Signal
	// Logs is the directory of logs that is copied out of the box.
	Logs string
	// Secrets returns the values of an order that must not leave the box.
	Secrets func(*workorder.Envelope) *redact.Set
	// Open opens the task's repository and returns the user of its code; git runs in the control group.
	Open func(env *workorder.Envelope, git *proc.Cgroup, mask *redact.Set) (*rootgit.Repositories, *proc.Credential, error)
}

// Run reads the order from in, which is empty if PID 1 had none, and returns the exit code of the run.
func (x *Rescue) Run(ctx context.Context, in io.Reader) int {
	log, rec := x.Log, x.Rec
	reason := os.Getenv(initd.RescueReason)
	limit, err := time.ParseDuration(os.Getenv(initd.RescueLimit))
	if err != nil {
		limit = workorder.RescueGrace
	}
	raw, err := io.ReadAll(in)
	if err != nil || len(raw) == 0 {
		return rescueEnd(log, rec.Finish, reason, land.Result{})
	}
	env, err := workorder.DecodeEnvelope(bytes.NewReader(raw))
	if err != nil {
		return rescueEnd(log, rec.Finish, reason+"; "+err.Error(), land.Result{})
	}
	mask := x.Secrets(env)
	rec.SetMask(mask)
	defer func() { // last, because it is the least important
		if err := innerengine.KeepLogs(dockerd.DefaultLogDir, x.Logs, mask); err != nil {
			log.Warn("rescue: copy logs of the inner engine", "error", err)
		}
	}()
	before := rec.Result()
	groups, err := cgroups.Open()
	if err != nil {
		log.Warn("rescue", "error", err)
	}
	if env.Order.Repo == "" || env.Order.Mode == workorder.ModeStandalone { // there is nothing to land
		return rescueEnd(log, rec.Finish, reason, land.Result{})
	}
	repo, cred, err := x.Open(env, groups.Of(cgroups.Git), mask)
	if err != nil {
		return rescueEnd(log, rec.Finish, reason, land.Result{})
	}
	repo.Resume(before.Repos)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	calm, stir := context.WithCancel(ctx) // until a stop
	defer stir()
	go hurryAtStop(ctx, x.Signals, func(files time.Duration) { stir(); repo.AnnounceStop(files) }, cancel)
	rebase := env.Order.Mode == workorder.ModeRebase
	end := func(_ []workorder.Commit, head string) workorder.Attempt {
		r := rec.Result()
		if rebase && (r.Rebased == nil || head != r.Rebased.NewHead) {
			head = "" // an empty head means that nothing was read
		}
		r.End(rescued(reason))
		return boot.AttemptOf(&r, head)
	}
	// A rebase without conflicts has no agent; before it is pushed there is nothing to land.
	if !before.Reached(workorder.StepAgent) && (!rebase || !before.Reached(workorder.StepPush)) || env.Order.Mode == workorder.ModePlan {
		// There is no work; only the lease, if there is one, is returned.
		code := rescueEnd(log, rec.Finish, reason, land.Result{Head: before.HeadSHA})
		bringResult(calm, log, repo)
		err := repo.Authenticate()
		if err == nil {
			err = repo.Release(ctx, end(nil, before.HeadSHA))
		}
		if err != nil {
			log.Warn("rescue: release the task's lease", "error", err)
		}
		return code
	}
	// The agent may outlive boot, and would continue to write.
	if err := errors.Join(groups.Kill(cgroups.Work), groups.Kill(cgroups.Git)); err != nil {
		log.Warn("rescue: end the task's processes", "error", err)
	}
	proc.Sweep(cred.UID, nil)
	if err := rec.ReleaseForLanding(); err != nil {
		log.Warn("rescue", "error", err)
	}
	l := landWork(ctx, repo, before.BaseSHA, !rebase && agentAtIt(&before), end)
	if moved := before.Rebased; moved != nil {
		if moved.Pushed = l.Err == nil && l.Pushed && l.Head == moved.NewHead; !moved.Pushed {
			moved.Backup, moved.Kept = "", repo.Lander.SideRef()
		}
		rec.Update(func(r *workorder.Result) { r.Rebased = moved })
	}
	code := rescueEnd(log, rec.Finish, reason, l)
	bringResult(calm, log, repo)
	if err := repo.Release(ctx, end(nil, l.Head)); err != nil {
		log.Warn("rescue: release the task's lease", "error", err)
	}
	return code
}

// landWork commits, if uncommitted changes are the agent's, and lands.
func landWork(ctx context.Context, repo *rootgit.Repositories, baseSHA string, commit bool, end land.RecordAttempt) land.Result {
	if err := repo.Authenticate(); err != nil {
		return land.Result{Err: err}
	}
	var left error
	if commit {
		d, _ := ctx.Deadline()
		slice, cancel := context.WithTimeout(ctx, time.Until(d)/2)
		left = repo.Commit(slice)
		cancel()
	}
	l := repo.Land(ctx, baseSHA, end)
	l.ArchiveLeftovers(ctx, left, repo.Archive)
	return l
}

// resultShare is the divisor for the part of the remaining time in which rescue may push the result.
const resultShare = 2

// bringResult pushes the result to the remote if there is time: returning the lease is more important.
func bringResult(ctx context.Context, log *slog.Logger, repo *rootgit.Repositories) {
	d, _ := ctx.Deadline()
	left := time.Until(d) / resultShare
	if left < workorder.ReleaseGrace || ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	err := repo.Authenticate()
	if err == nil {
		_, err = repo.Result(ctx)
	}
	if err != nil {
		log.Warn("rescue: push the result to the remote", "error", err)
	}
}

// rescueReserve is the time for rescue to write its result at a stop.
const rescueReserve = time.Second

// hurryAtStop ends the push of a stopped rescue while there is time to keep the commits as a file.
func hurryAtStop(ctx context.Context, signals <-chan os.Signal, hurry func(time.Duration), end func()) {
	var grace time.Duration
	var stopped time.Time
	var over <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-over:
			end()
			return
		case s := <-signals:
			if s == initd.LongStop {
				grace = workorder.LongStop
			} else if stopped.IsZero() {
				stopped = time.Now()
			}
			if !stopped.IsZero() {
				shutdown := workorder.ShutdownIn(grace)
				hurry(shutdown.Bundle)
				over = time.After(time.Until(stopped.Add(shutdown.Rescue - shutdown.Bundle - rescueReserve)))
			}
		}
	}
}

// agentAtIt reports whether uncommitted changes are the agent's: once validation has begun they are validation's,
// unless the agent runs again.
func agentAtIt(r *workorder.Result) bool {
	repair := r.Step(workorder.StepRepair)
	return !r.Reached(workorder.StepValidate) || repair != nil && repair.Status == workorder.StepRunning
}

// rescued returns the ending of a run that boot did not end.
func rescued(reason string) workorder.Ending {
	return workorder.Ending{
		Status: workorder.StatusError, EndedBy: workorder.EndedByBox, Reasons: workorder.Reasons{{Code: workorder.ReasonBoot, Detail: reason}},
	}
}

func rescueEnd(log *slog.Logger, finish func(func(*workorder.Result)) error, reason string, l land.Result) int {
	err := finish(func(r *workorder.Result) {
		l.CopyTo(r)
		r.End(rescued(reason))
		if why, failed := l.Failed(); failed {
			r.Reasons = append(r.Reasons, why)
		}
		if l.Unresolved != "" {
			r.Reasons = r.Reasons.And(workorder.ReasonUnresolved, "%s", l.Unresolved)
		}
	})
	if err != nil {
		log.Error("rescue: write result", "error", err)
	}
	return workorder.ExitCode(workorder.StatusError, workorder.EndedByBox)
}
