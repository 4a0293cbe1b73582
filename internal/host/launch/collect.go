package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/engine"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/render"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// CollectTimeout bounds copying out and removing: evidence can be gigabytes,
	// a stuck engine must not be waited for without end.
	CollectTimeout = 10 * time.Minute
	// companionExit is how long the companion is given to notice the box's end.
	companionExit = 3 * time.Second
)

// ErrRunning is returned by Collect for a box that has not ended.
var ErrRunning = errors.New("the run has not ended")

// finish follows the box to its end and collects it.
func (l *Launcher) finish(ctx context.Context, hard <-chan struct{}, rec *store.Record) (*workorder.Result, error) {
	end := &held{show: Judged(rec, l.show)}
	out, err := openRecorder(rec.Dir, end.event)
	if err != nil {
		return l.unfollowed(rec, err)
	}
	// Following outlives the user's wish to stop: a stop has a result too.
	base := context.WithoutCancel(ctx)
	followCtx, cancel := context.WithCancel(base)
	stopped := make(chan stopKind, 1)
	go func() { stopped <- l.stopper(followCtx, ctx, hard, rec) }()
	err = l.follow(followCtx, rec, out)
	cancel()
	kind := <-stopped
	if err = errors.Join(err, out.Close()); err != nil {
		return l.unfollowed(rec, err)
	}
	res, err := l.collect(base, rec, kind)
	end.release(l, rec, res)
	return res, err
}

// held keeps the last event of a run back until the result is whole: what the
// box says of itself lacks what only the host knows.
type held struct {
	show func(workorder.Event)
	last workorder.Event
}

func (h *held) event(e workorder.Event) {
	if e.Type == workorder.EventResult {
		h.last = e
		return
	}
	h.show(e)
}

// release shows the last event with the result as it was written, or as the box
// gave it when nothing could be written.
func (h *held) release(l *Launcher, rec *store.Record, res *workorder.Result) {
	switch {
	case res != nil:
		e := ending(h.last, rec, res)
		if e.Time.IsZero() {
			e.Time = l.now()
		}
		l.show(e)
	case h.last.Type != "":
		h.show(h.last)
	}
}

// unfollowed is the result of a run whose box may live on unseen: what is known
// now is written, and a later collection replaces it.
func (l *Launcher) unfollowed(rec *store.Record, err error) (*workorder.Result, error) {
	res := synthesise(rec, l.recorded(rec), lostTo(workorder.ReasonUnseen, err.Error()), l.now())
	return l.publish(rec, res), errors.Join(err, writeResult(rec, res))
}

// Attach follows a run that another process started, or collects one that has
// ended. Signals do not stop the run: whoever attaches may leave again.
func (l *Launcher) Attach(ctx context.Context, rec *store.Record) (*workorder.Result, error) {
	return l.home(ctx, rec, true, notStopped)
}

// Collect brings home a box that has ended. The caller holds the task's lock.
func (l *Launcher) Collect(ctx context.Context, rec *store.Record) (*workorder.Result, error) {
	box, err := l.box(ctx, rec)
	switch {
	case errors.Is(err, engine.ErrUnavailable):
		return nil, fault.New(workorder.ExitBox, err, "the result is collected when the engine answers again")
	case err != nil:
		return nil, err
	case box == nil:
		box = l.late(ctx, rec)
	}
	if box != nil && box.Live() {
		return nil, fmt.Errorf("task %s: %w", rec.TaskID, ErrRunning)
	}
	if rec.Box == "" && box == nil {
		return l.neverStarted(rec)
	}
	return l.home(ctx, rec, box != nil, foundEnded)
}

// home records what a box still says, if there is one, and collects it.
func (l *Launcher) home(ctx context.Context, rec *store.Record, follow bool, kind stopKind) (*workorder.Result, error) {
	l = l.noting(rec)
	end := &held{show: Judged(rec, l.show)}
	out, err := openRecorder(rec.Dir, end.event)
	if err != nil {
		return nil, err
	}
	if follow {
		err = l.follow(ctx, rec, out)
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return nil, err
	}
	res, err := l.collect(ctx, rec, kind)
	end.release(l, rec, res)
	return res, err
}

const (
	// createTime is how long after its beginning a run may still be about to get a container: the image is there by then.
	createTime = 2 * time.Minute
	// lateTime is how long the engine may take to make a container for a client that is gone; a busy one took over a second.
	lateTime = 3 * time.Second
	latePoll = 100 * time.Millisecond
)

// late looks again for a container that the engine may be making at this moment, for a command that was killed while it asked
// for it: left alone it would stay. Nil when none comes.
func (l *Launcher) late(ctx context.Context, rec *store.Record) *engine.Box {
	began := false
	if err := Events(rec.Dir, func(e workorder.Event) { began = began || e.Type == workorder.EventReady }); err == nil && began || l.now().Sub(rec.Begun()) > createTime {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lateTime)
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(latePoll):
		}
		if box, err := l.box(ctx, rec); err == nil && box != nil {
			return box
		}
	}
}

// neverStarted ends the record of a CLI that died before it made a box.
func (l *Launcher) neverStarted(rec *store.Record) (*workorder.Result, error) {
	res := synthesise(rec, l.recorded(rec), lostTo(workorder.ReasonNotReady, "the command was ended before it started a box"), l.now())
	l.done(rec, res)
	return res, errors.Join(writeResult(rec, res), l.Store.Save(rec))
}

// collect copies the output of an ended box, completes the result and removes the box. Who cancels ctx while it is copied leaves
// the box, with all of it, to the next one who collects; what comes after the copy takes no time and is not given up halfway.
func (l *Launcher) collect(ctx context.Context, rec *store.Record, kind stopKind) (*workorder.Result, error) {
	copying, cancel := context.WithTimeout(ctx, CollectTimeout)
	defer cancel()
	box, err := l.box(copying, rec)
	if err != nil {
		return nil, err
	}
	var out output
	var copyErr error
	if box != nil {
		out, copyErr = l.copyOut(copying, box.ID, rec.Dir)
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
		res = l.recordedResult(rec)
	}
	if res != nil && foreign(res, rec) {
		warnings = append(warnings, fmt.Sprintf("the box gave a result of another attempt (%q), which is not believed", res.AttemptID))
		res = nil
	}
	if res != nil {
		judge(res, rec)
		l.tellStop(res, rec.TaskID, kind)
	} else {
		res = l.lost(rec, box, kind)
	}
	complete(res, rec)
	if copyErr != nil {
		// The box holds the only copy of something: what is known now is written,
		// and the next collection replaces it.
		err := keptBox(rec, copyErr)
		res.Warnings = append(append(res.Warnings, warnings...), err.Error())
		return res, errors.Join(err, writeResult(rec, res))
	}
	if box != nil {
		said, err := l.salvage(ctx, rec, res, box.ID, out.result == nil && l.asked(rec.TaskID, kind) != killed)
		if err != nil {
			err = keptBox(rec, err)
			res.Warnings = append(append(res.Warnings, warnings...), err.Error())
			return res, errors.Join(err, writeResult(rec, res))
		}
		warnings = append(warnings, said...)
	}
	warnings = append(warnings, l.bundle(ctx, rec, res)...)
	res.Warnings = append(res.Warnings, warnings...)
	knownPR(rec, res)
	if err := writeResult(rec, res); err != nil {
		return res, err // the box stays: it holds the only copy
	}
	if err := writeReport(rec, res); err != nil {
		l.Log.Warn("collect", "task", rec.TaskID, "error", err) // all of it is in the result
	}
	if box != nil && !rec.Keep {
		if err := l.Engine.Remove(ctx, box.ID); err != nil {
			return res, err
		}
	}
	l.endCompanion(ctx, rec, box != nil)
	l.done(rec, res)
	return res, l.Store.Save(rec)
}

// recordedResult is the one in the run's last event: it arrives even when the
// box's file system does not.
func (l *Launcher) recordedResult(rec *store.Record) *workorder.Result {
	var res *workorder.Result
	if err := Events(rec.Dir, func(e workorder.Event) {
		if e.Type == workorder.EventResult && e.Result != nil {
			res = e.Result
		}
	}); err != nil {
		l.Log.Warn("read the record of the run", "task", rec.TaskID, "error", err)
	}
	return res
}

func (l *Launcher) recorded(rec *store.Record) func(func(workorder.Event)) error {
	return func(fn func(workorder.Event)) error { return Events(rec.Dir, fn) }
}

// lostTo is the ending of a run of which nothing is known any more.
func lostTo(code workorder.ReasonCode, detail string) workorder.Ending {
	return workorder.Ending{Status: workorder.StatusLost, EndedBy: workorder.ByHost, Reasons: workorder.Because(code, "%s", detail)}
}

func (l *Launcher) lost(rec *store.Record, box *engine.Box, kind stopKind) *workorder.Result {
	where := lastStep(l.recorded(rec))
	e, end := lostTo(workorder.ReasonVanished, "the box vanished "+where), l.now()
	if box != nil {
		e.Reasons[0].Detail = fmt.Sprintf("the box ended without a result %s (%s)", where, box.Status)
	}
	vanished := e.Reasons
	switch l.asked(rec.TaskID, kind) {
	case killed:
		e.Status, e.EndedBy, e.Reasons = workorder.StatusInterrupted, workorder.BySignal, workorder.Because(workorder.ReasonKilled, "killed on request %s", where)
	case stoppedSoftly:
		e.Status, e.EndedBy, e.Reasons = workorder.StatusInterrupted, workorder.BySignal, append(workorder.Because(workorder.ReasonOnRequest, "stopped on request"), vanished...)
	case overdue:
		e.Status, e.EndedBy, e.Reasons = workorder.StatusTimeout, workorder.ByHost, append(workorder.Because(workorder.ReasonOverdue, "stopped from outside, long after its timeout"), vanished...)
	case notStopped:
	case foundEnded:
		end = time.Time{}
	}
	if loss := l.loss(rec); loss != "" {
		e.Reasons = e.Reasons.And(workorder.ReasonUnsaved, "%s", loss)
	}
	return synthesise(rec, l.recorded(rec), e, end)
}

// bundle imports work that the box could not push into the local repository.
func (l *Launcher) bundle(ctx context.Context, rec *store.Record, res *workorder.Result) []string {
	path := filepath.Join(rec.Dir, workorder.BundleFile)
	if _, err := os.Stat(path); err != nil {
		return nil
	}
	if rec.LocalRepo == "" || l.ImportBundle == nil || res.Pushed {
		return []string{"work that could not be pushed is in " + path + ": git fetch it into a clone"}
	}
	if err := l.ImportBundle(ctx, rec.LocalRepo, path, rec.TaskID, rec.TargetBranch); err != nil {
		return []string{fmt.Sprintf("import %s into %s: %v", path, rec.LocalRepo, err)}
	}
	res.Branch, res.Pushed = rec.TargetBranch, true
	// Only this is mended. What could not be committed is not in the bundle; and a box of an older version, which gives no code, does
	// not say which of the two it was.
	if len(res.Reasons) == 1 && res.Reasons.Has(workorder.ReasonPush) && res.Status == workorder.StatusError && res.EndedBy == workorder.ByGit {
		res.End(workorder.Succeeded())
		res.Resumable = false
	}
	res.NextCommand = nextCommand(rec, res)
	return []string{"the branch was not pushed by the box; it was imported into " + rec.LocalRepo + " from its bundle"}
}

// complete adds what only the host knows.
func complete(res *workorder.Result, rec *store.Record) {
	if rec.Image.ID != "" {
		res.Image = rec.Image
	}
	h := rec.Host
	res.Host.Isolation, res.Host.OCIRuntime, res.Host.EngineVersion = h.Isolation, h.OCIRuntime, h.EngineVersion
	if res.Host.CgroupVersion == 0 {
		res.Host.CgroupVersion = h.CgroupVersion
	}
	// The run began with the command, not with the box.
	if lead := res.StartedAt.Sub(rec.Begun()); lead > 0 && lead < startTimeout+CollectTimeout {
		res.StartedAt, res.DurationMS = rec.Begun(), res.DurationMS+lead.Milliseconds()
	}
	res.Steps = append(append([]workorder.Step{}, rec.Steps...), res.Steps...)
}

func (l *Launcher) done(rec *store.Record, res *workorder.Result) {
	rec.Collected, rec.Status, rec.EndedBy, rec.Reason, rec.ReasonCode = true, res.Status, res.EndedBy, res.Reasons.String(), res.Reasons.Code()
	rec.FinishedAt, rec.ResumeAt = l.now().UTC(), res.ResumeAt
}

// publish shows a result that the host made.
func (l *Launcher) publish(rec *store.Record, res *workorder.Result) *workorder.Result {
	complete(res, rec)
	l.show(workorder.Event{Time: l.now(), Type: workorder.EventResult, Status: string(res.Status), Result: res})
	return res
}

// stillborn ends a run for which no box was started.
func (l *Launcher) stillborn(ctx context.Context, rec *store.Record, cause error) (*workorder.Result, error) {
	status, by, code := workorder.StatusError, workorder.ByBox, workorder.ReasonNotReady
	switch {
	case ctx.Err() != nil:
		status, by, code = workorder.StatusInterrupted, workorder.BySignal, workorder.ReasonByUser
		cause = fault.New(workorder.ExitInterrupted, errors.New("you interrupted it before its box was started"), "")
	case errors.Is(cause, errStopped):
		status, by, code = workorder.StatusInterrupted, workorder.BySignal, workorder.ReasonOnRequest
	case errors.Is(cause, errOther):
		by, code = workorder.ByLease, workorder.ReasonLease
	case fault.Code(cause) == workorder.ExitGit:
		by, code = workorder.ByGit, workorder.ReasonClone
	case fault.Code(cause) == workorder.ExitInvalid, fault.Code(cause) == workorder.ExitNoProject:
		by, code = workorder.ByOrder, workorder.ReasonOrder
	}
	res := synthesise(rec, func(func(workorder.Event)) error { return nil }, workorder.Ending{Status: status, EndedBy: by, Reasons: workorder.Because(code, "%v", cause)}, l.now())
	res = l.publish(rec, res)
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), CollectTimeout)
	defer cancel()
	if rec.Box != "" {
		box, err := l.box(clean, rec)
		rec.Unsure = err != nil || box != nil && box.Live()
	}
	l.endCompanion(clean, rec, false)
	l.done(rec, res)
	return res, errors.Join(cause, writeResult(rec, res), l.Store.Save(rec))
}

// Reject records a run that lacks what it needs before any look at engine and remote, so that a script finds a
// result for it too, and with its order, so that it can be gone on with. It returns cause, joined with
// what went wrong in recording.
func (l *Launcher) Reject(ctx context.Context, job *Job, cause error) error {
	rec := l.newRecord(job)
	lock, noDir, err := l.record(rec)
	if err != nil {
		return errors.Join(cause, err)
	}
	defer lock.Unlock()
	l = l.noting(rec)
	l.announce(job, rec)
	_, err = l.stillborn(ctx, rec, errors.Join(cause, noDir, l.saveOrder(rec, &job.Order)))
	return err
}

func writeResult(rec *store.Record, res *workorder.Result) error {
	b, err := res.Encode()
	if err != nil {
		return err
	}
	return store.WriteFile(filepath.Join(rec.Dir, workorder.ResultFile), render.EscapeControls(b), 0o600)
}

// Amend changes the stored result of a collected task.
func Amend(rec *store.Record, change func(*workorder.Result)) error {
	r, err := ReadResult(rec)
	if err != nil {
		return err
	}
	change(r)
	return writeResult(rec, r)
}

// ReadResult reads the result of a collected task.
func ReadResult(rec *store.Record) (*workorder.Result, error) {
	b, err := os.ReadFile(filepath.Join(rec.Dir, workorder.ResultFile))
	if err != nil {
		return nil, fmt.Errorf("read result: %w", err)
	}
	return workorder.DecodeResult(b)
}
