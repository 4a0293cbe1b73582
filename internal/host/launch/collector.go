package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/host/companion"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/outcome"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/statedir"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// collector copies an ended box's output to the host, completes the result and removes the box.
type collector struct{ *Launcher }

const (
	// CollectTimeout bounds copying and removing: evidence can be gigabytes, and an engine may hang.
	CollectTimeout = 10 * time.Minute
	companionExit  = companion.EndTime + time.Second
)

// collect copies the output of an ended box, completes the result and removes the box. If ctx is cancelled during the copy, the
// box stays complete for the next collection; the steps after the copy are short and are not interrupted.
func (c collector) collect(ctx context.Context, rec *taskstore.Record, kind StopKind) (*workorder.Result, error) {
	copying, cancel := context.WithTimeout(ctx, CollectTimeout)
	defer cancel()
	box, err := c.Find(copying, rec)
	if err != nil {
		return nil, err
	}
	var out output
	var copyErr error
	if box != nil {
		out, copyErr = c.copyOut(copying, box.ID, rec.Dir, c.recordedResult(rec))
	}
	if copyErr != nil && ctx.Err() != nil {
		return nil, keptBox(rec, ctx.Err())
	}
	ctx, cancelRest := context.WithTimeout(context.WithoutCancel(ctx), CollectTimeout)
	defer cancelRest()
	warnings := out.warnings
	var res *workorder.Result
	if out.result != nil {
		if res, err = workorder.DecodeResult(out.result); err != nil {
			warnings = append(warnings, err.Error())
		}
	}
	if res == nil {
		res = c.recordedResult(rec)
	}
	if res != nil && outcome.OtherAttempt(res, rec) {
		warnings = append(warnings, fmt.Sprintf("result of another attempt (%q) in the sandbox ignored", res.AttemptID))
		res = nil
	}
	if res != nil {
		outcome.Sanitize(res, rec)
		c.tellStop(res, rec.TaskID, kind)
	} else {
		res = c.lost(rec, box, kind)
	}
	Complete(res, rec)
	if copyErr != nil {
		// The box has the only copy of some output. The next collection replaces this result.
		err := keptBox(rec, copyErr)
		res.Warnings = append(append(res.Warnings, warnings...), err.Error())
		return res, errors.Join(err, outcome.WriteResult(rec, res))
	}
	if box != nil {
		said, err := c.salvage(ctx, rec, res, box.ID, out.result == nil && c.stopKind(rec.TaskID, kind) != Killed)
		if err != nil {
			err = keptBox(rec, err)
			res.Warnings = append(append(res.Warnings, warnings...), err.Error())
			return res, errors.Join(err, outcome.WriteResult(rec, res))
		}
		warnings = append(warnings, said...)
	}
	warnings = append(warnings, c.bundle(ctx, rec, res)...)
	res.Warnings = append(res.Warnings, warnings...)
	outcome.KnownPR(rec, res)
	outcome.KnownRepos(rec, res)
	if err := outcome.WriteResult(rec, res); err != nil {
		return res, err // keep the box: it has the only copy of the work
	}
	if err := outcome.WriteReport(rec, res); err != nil {
		c.Log.Warn("write the report", "task", rec.TaskID, "error", err) // the result is complete without it
	}
	removed := make(chan error, 1)
	go func() {
		if box != nil && !rec.Keep {
			removed <- c.Engine.Remove(ctx, box.ID)
		}
		close(removed)
	}()
	c.endCompanion(ctx, rec)
	if err := <-removed; err != nil {
		return res, err
	}
	c.done(rec, res)
	return res, c.Store.Save(rec)
}

// recordedResult returns the result of the run's last event: it arrives even if the box's file system is lost.
func (c collector) recordedResult(rec *taskstore.Record) *workorder.Result {
	var res *workorder.Result
	if err := outcome.Events(rec.Dir, func(e workorder.Event) {
		if e.Type == workorder.EventResult && e.Result != nil {
			res = e.Result
		}
	}); err != nil {
		c.Log.Warn("read the record of the run", "task", rec.TaskID, "error", err)
	}
	return res
}

func (c collector) recorded(rec *taskstore.Record) func(func(workorder.Event)) error {
	return func(fn func(workorder.Event)) error { return outcome.Events(rec.Dir, fn) }
}

func (c collector) lost(rec *taskstore.Record, box *runtime.Instance, kind StopKind) *workorder.Result {
	where := outcome.LastStep(c.recorded(rec))
	e, end := outcome.LostEnding(workorder.ReasonVanished, "the sandbox vanished "+where), c.now()
	if box != nil {
		e.Reasons[0].Detail = fmt.Sprintf("the sandbox ended without a result %s (%s)", where, box.Status)
	}
	vanished := e.Reasons
	switch c.stopKind(rec.TaskID, kind) {
	case Killed:
		e.Status, e.EndedBy, e.Reasons = workorder.StatusInterrupted, workorder.EndedBySignal,
			workorder.Because(workorder.ReasonKilled, "killed on request %s", where)
	case StoppedSoftly:
		e.Status, e.EndedBy, e.Reasons = workorder.StatusInterrupted, workorder.EndedBySignal,
			append(workorder.Because(workorder.ReasonOnRequest, "stopped on request"), vanished...)
	case Overdue:
		e.Status, e.EndedBy, e.Reasons = workorder.StatusTimeout, workorder.EndedByHost,
			append(workorder.Because(workorder.ReasonOverdue, "stopped by the host, long after its timeout"), vanished...)
	case NotStopped:
	case FoundEnded:
		end = time.Time{}
	}
	if loss := c.loss(rec); loss != "" {
		e.Reasons = e.Reasons.And(workorder.ReasonUnsaved, "%s", loss)
	}
	return outcome.Synthesise(rec, c.recorded(rec), e, end)
}

// bundle imports work that the box could not push into the local repository.
func (c collector) bundle(ctx context.Context, rec *taskstore.Record, res *workorder.Result) []string {
	path := filepath.Join(rec.Dir, workorder.BundleFile)
	if _, err := os.Stat(path); err != nil {
		return nil
	}
	if rec.LocalRepo == "" || c.ImportBundle == nil || res.Pushed {
		return []string{"commits that could not be pushed are in " + path + ": fetch them into a clone with git fetch"}
	}
	if res.Reasons.Has(workorder.ReasonSecret) {
		return []string{"commits with the value of a secret were not imported into " + rec.LocalRepo + "; they are in " + path +
			": inspect them in a clone after git fetch"}
	}
	head, err := c.ImportBundle(ctx, rec.LocalRepo, path, rec.TaskID, rec.TargetBranch)
	if err != nil {
		return []string{fmt.Sprintf("import %s into %s: %v", path, rec.LocalRepo, err)}
	}
	res.Branch, res.Pushed = rec.TargetBranch, true
	if res.HeadSHA == "" { // the box left no result; its commits are saved now
		res.HeadSHA, res.Reasons = head, res.Reasons.Without(workorder.ReasonUnsaved)
	}
	// Only a failed push is repaired here. Changes that could not be committed are not in the bundle. A box of an older version
	// gives no reason code, so that the two cases look alike.
	before := res.Reasons.Of(workorder.ReasonAsBefore)
	if len(res.Reasons) == 1+len(before) && res.Reasons.Has(workorder.ReasonPush) && res.Status == workorder.StatusError &&
		res.EndedBy == workorder.EndedByGit {
		end := workorder.Succeeded()
		if len(before) > 0 { // next to a failed push, a box gives this reason only for unproven work
			end = workorder.Ending{Status: workorder.StatusUnproven, EndedBy: workorder.EndedByValidation, Reasons: before}
		}
		res.End(end)
		res.Resumable = false
	}
	res.NextCommand = outcome.NextCommand(rec, res)
	return []string{"the sandbox could not push the branch; it was imported into " + rec.LocalRepo + " from its bundle"}
}

// Complete adds the fields that only the host knows.
func Complete(res *workorder.Result, rec *taskstore.Record) {
	if rec.Image.ID != "" {
		res.Image = rec.Image
	}
	h := rec.Host
	res.Platform.Isolation, res.Platform.OCIRuntime, res.Platform.EngineVersion = h.Isolation, h.OCIRuntime, h.EngineVersion
	res.Platform.CgroupVersion = cmp.Or(res.Platform.CgroupVersion, h.CgroupVersion)
	// A run begins with the command, before the box.
	if lead := res.StartedAt.Sub(rec.Begun()); lead > 0 && lead < StartTimeout+CollectTimeout {
		res.StartedAt, res.DurationMS = rec.Begun(), res.DurationMS+lead.Milliseconds()
	}
	res.Steps = append(append([]workorder.Step{}, rec.Steps...), res.Steps...)
}

func (c collector) done(rec *taskstore.Record, res *workorder.Result) {
	rec.Collected, rec.Status, rec.EndedBy, rec.Reasons = true, res.Status, res.EndedBy, res.Reasons
	rec.FinishedAt, rec.ResumeAt = c.now().UTC(), res.ResumeAt
}

// tellStop adds the source of a stop to the result of an interrupted run: the box knows only a signal.
func (c collector) tellStop(res *workorder.Result, taskID string, kind StopKind) {
	if res.Status != workorder.StatusInterrupted {
		return
	}
	var who workorder.Reasons
	switch {
	case kind == StoppedSoftly:
		who = workorder.Because(workorder.ReasonByUser, "interrupted by the user")
	case c.stopKind(taskID, kind) == StoppedSoftly:
		who = workorder.Because(workorder.ReasonOnRequest, "stopped on request (sandbox-agent stop)")
	default:
		return
	}
	res.Reasons = append(who, res.Reasons.Without(workorder.ReasonSignal)...)
}

const companionPoll = 20 * time.Millisecond

// endCompanion ends the companion, which first completes the pushes that it has received.
func (c collector) endCompanion(ctx context.Context, rec *taskstore.Record) {
	p := rec.Companion
	if p == nil {
		return
	}
	// If it ended long ago and its id is reused, Signal fails.
	_ = p.Signal(unix.SIGTERM)
	if !waitGone(ctx, p, companionExit) {
		_ = p.Signal(unix.SIGKILL)
	}
	rec.Companion = nil
}

func waitGone(ctx context.Context, p *statedir.Process, most time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	t := time.NewTicker(companionPoll)
	defer t.Stop()
	for p.Alive() {
		select {
		case <-ctx.Done():
			return false
		case <-t.C:
		}
	}
	return true
}

// loss describes how much work a vanished box can have lost since its last save; "" if that is unknown.
func (c collector) loss(rec *taskstore.Record) string {
	var s outcome.Saves
	branch, state := workorder.BranchRef(rec.TargetBranch), workorder.StateRef(rec.TaskID)
	if err := outcome.Events(rec.Dir, func(e workorder.Event) { s.Event(e, branch, state) }); err != nil {
		return ""
	}
	// A save contains the state at the time when it began.
	took, why := time.Duration(s.Good.DurationMS)*time.Millisecond, s.Bad.Text
	why, _, _ = strings.Cut(why, "\n") // fits into a sentence
	switch {
	case s.Bad.Type != "" && s.Good.Type == "":
		return "nothing could be saved: " + why
	case s.Bad.Type != "":
		since := s.Good.Time.Add(-took)
		return fmt.Sprintf("nothing could be saved since %s, in its last %.0f s: %s", since.UTC().Format(time.RFC3339),
			math.Ceil(s.End.Sub(since).Seconds()), why)
	case s.Good.Type == "":
		return ""
	}
	o, err := outcome.ReadOrder(rec.Dir)
	if err != nil {
		return ""
	}
	// Unchanged work has no event, so the interval counts, not the time since the last event. A run cannot lose more than its
	// whole duration.
	most := min(o.CheckpointInterval()+took, c.now().Sub(rec.Begun()))
	return fmt.Sprintf("at most the work of the last %.0f s is lost", math.Ceil(most.Seconds()))
}
