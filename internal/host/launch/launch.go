// Package launch takes a resolved job through its life on the host: checks that
// fail before a container exists, one box, its events as they come, the output copied
// out, the box removed. What it begins, any later process can finish: all state is in the
// engine's labels and in the state folder. It prints nothing.
package launch

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/companion"
	"github.com/sandbox-agent/sandbox-agent/internal/host/engine"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/render"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// startTimeout bounds creating and starting a container: on a loaded machine
	// it takes seconds, and an engine that needs longer is stuck.
	startTimeout = 2 * time.Minute
	// endReserve is for what the guest does after its own bounds on a loaded
	// machine (the result, its containers), before the host stops it from outside.
	endReserve = time.Minute
)

// CacheVolume is shared by all boxes of an engine, unless a user names another; the guest locks what it uses.
const CacheVolume = "sandbox-agent-cache"

// Images makes sure that the image of the box is on the engine.
type Images interface {
	// Ensure returns the image's identity. It builds the CLI's own image when it
	// is missing, and never builds over a name the user chose.
	Ensure(ctx context.Context, name string, progress func(workorder.Event)) (workorder.Image, error)
}

// ImageChecker is the optional ability of an engine to tell which images it has.
type ImageChecker interface {
	// ImageID is "" for an image that the engine does not have.
	ImageID(ctx context.Context, ref string) (string, error)
}

// Remote answers for the repository before a container is started for it.
type Remote interface {
	// Check verifies that the repository answers, accepts the credential and has
	// the branch (any branch when it is empty).
	Check(ctx context.Context, url, branch string, cred *workorder.GitCredential) error
	// Answers verifies that the repository answers and accepts the credential, whatever
	// branches it has.
	Answers(ctx context.Context, url string, cred *workorder.GitCredential) error
}

// Launcher carries out jobs.
type Launcher struct {
	Engine engine.Engine
	Store  *store.Store
	Images Images
	Remote Remote
	// StartCompanion starts the detached process that serves what lies on this machine.
	StartCompanion func(context.Context, companion.Config) (companion.Ready, error)
	// ImportBundle brings work that could not be pushed into a local repository.
	ImportBundle func(ctx context.Context, repo, bundle, taskID, branch string) error
	Log          *slog.Logger
	// Show is called for every event, the host's own (Seq 0) included, from one
	// goroutine at a time.
	Show func(workorder.Event)
	Now  func() time.Time
	// EngineGone overrides how long an engine that is away is waited for.
	EngineGone time.Duration
	// CacheVolume overrides which volume holds the layer cache.
	CacheVolume string
}

// Job is everything a run needs.
type Job struct {
	Order workorder.Order
	// Title is the task as lists show it; empty: its text.
	Title string
	// Secrets reads the values of Order.SecretNames. It is called once, when all is ready
	// for the box; nil: there are none.
	Secrets func(context.Context) (map[string]string, error)
	Git     *workorder.GitCredential
	// ForgeToken opens the pull request; empty: App does, there is none, or none is asked for.
	ForgeToken string
	// App renews what expires; nil: there is none.
	App *workorder.GitHubApp
	// LocalRepo is the top of a repository on this machine; empty for a remote one.
	LocalRepo  string
	Image      string
	Isolation  string
	OCIRuntime string
	Owner      string
	OutDir     string // parent of the task's output folder; empty: the state folder
	Keep       bool
	Detach     bool
	// Attempt is the number of the attempt at least; 0: nothing is known of former ones.
	Attempt int
	// Request is remembered for those who go on with the task.
	Request store.Request
	// bundle and archive are files of earlier attempts, for the box.
	bundle, archive string
	// Warnings are what was found odd while the job was resolved.
	Warnings []string
}

// BoxName is the name of the container of an attempt: the stopped one of a former
// attempt may have been kept.
func BoxName(taskID string, attempt int) string {
	if attempt <= 1 {
		return "sandbox-agent-" + taskID
	}
	return fmt.Sprintf("sandbox-agent-%s-%d", taskID, attempt)
}

func (l *Launcher) now() time.Time {
	if l.Now != nil {
		return l.Now()
	}
	return time.Now()
}

func (l *Launcher) engineGone() time.Duration {
	if l.EngineGone > 0 {
		return l.EngineGone
	}
	return engineGone
}

func (l *Launcher) show(e workorder.Event) {
	if l.Show != nil {
		l.Show(e)
	}
}

// Run carries out the job as the first attempt that this state folder knows of its
// task. When ctx ends the run is stopped gracefully and still followed to its result; when
// hard is closed the box is killed. The error says that we failed; how the task ended
// is in the result. Every run that got as far as a record has a result.
func (l *Launcher) Run(ctx context.Context, hard <-chan struct{}, job *Job) (*workorder.Result, error) {
	cause := checkOrder(job)
	if !workorder.ValidTaskID(job.Order.TaskID) {
		return nil, cause // no folder can have that name
	}
	rec := l.newRecord(job)
	lock, noDir, err := l.record(rec)
	if err != nil {
		return nil, errors.Join(cause, err)
	}
	defer lock.Unlock()
	l = l.noting(rec)
	l.announce(job, rec)
	var info engine.Info
	if cause = errors.Join(cause, noDir); cause == nil {
		cause = l.saveOrder(rec, &job.Order)
	}
	if cause == nil {
		cause = l.unlessStopped(ctx, rec.TaskID, func(ctx context.Context) (err error) {
			info, err = l.ground(ctx, job, rec)
			return err
		})
	}
	if cause != nil {
		return l.stillborn(ctx, rec, cause)
	}
	return l.carryOut(ctx, hard, job, rec, info)
}

// checkOrder looks for mistakes in what the box will be told.
func checkOrder(job *Job) error {
	checked := job.Order
	if job.LocalRepo != "" {
		checked.CloneURL = job.LocalRepo // the real one is known when it is served
	}
	return fault.New(workorder.ExitInvalid, checked.Check(), "")
}

// carryOut starts the box and follows it to its end.
func (l *Launcher) carryOut(ctx context.Context, hard <-chan struct{}, job *Job, rec *store.Record, info engine.Info) (*workorder.Result, error) {
	err := l.unlessStopped(ctx, rec.TaskID, func(ctx context.Context) error { return l.begin(ctx, job, rec, info) })
	if err != nil {
		return l.stillborn(ctx, rec, err)
	}
	if err := l.Store.Save(rec); err != nil {
		// The box runs, and what was saved before its start is enough to find it.
		l.Log.Warn("save the record of the task", "task", rec.TaskID, "error", err)
	}
	if job.Detach {
		if grace, asked := l.noted(rec.TaskID); asked {
			return nil, l.stopBox(ctx, rec, grace) // nobody follows it who would
		}
		return nil, nil
	}
	return l.finish(ctx, hard, rec)
}

// announce says first of all what the task is called and where its output will lie.
func (l *Launcher) announce(job *Job, rec *store.Record) {
	l.show(workorder.Event{Time: l.now(), Type: workorder.EventTask, ID: rec.TaskID, Path: rec.Dir, Name: rec.TargetBranch})
	for _, w := range job.Warnings {
		l.show(workorder.Event{Time: l.now(), Type: workorder.EventWarning, Text: w})
	}
}

// record makes the task's record and takes its lock. A run whose output folder
// cannot be made is recorded in the state folder: noDir says why it goes no further.
func (l *Launcher) record(rec *store.Record) (lock *store.Lock, noDir, err error) {
	elsewhere := rec.Dir != ""
	lock, err = l.Store.Create(rec)
	if err == nil || !elsewhere || errors.Is(err, store.ErrExists) {
		return lock, nil, err
	}
	rec.Dir = ""
	lock, again := l.Store.Create(rec)
	if again != nil {
		return nil, nil, err
	}
	return lock, err, nil
}

func (l *Launcher) newRecord(job *Job) *store.Record {
	o := &job.Order
	rec := &store.Record{
		TaskID: o.TaskID, Project: o.Project, Task: shorten(cmp.Or(job.Title, o.Task)), CreatedAt: l.now().UTC(), StartedAt: l.now().UTC(),
		AttemptID: o.AttemptID, Attempt: max(job.Attempt, 1), Request: job.Request,
		Keep: job.Keep, LocalRepo: job.LocalRepo, TargetBranch: o.TargetBranch, Harness: o.Harness.Name,
		Mode: o.Mode, Repo: o.Repo, Branch: o.Branch, Limits: o.Limits,
		Host: workorder.Host{Isolation: job.Isolation, OCIRuntime: job.OCIRuntime},
	}
	if job.OutDir != "" {
		rec.Dir = filepath.Join(job.OutDir, o.TaskID)
	}
	return rec
}

// ground looks, before anything is made, whether engine and remote can do it.
func (l *Launcher) ground(ctx context.Context, job *Job, rec *store.Record) (info engine.Info, err error) {
	o := &job.Order
	err = l.step(ctx, rec, workorder.StepPreflight, func() error {
		var err error
		if info, err = l.preflight(ctx, job); err != nil {
			return err
		}
		o.HostImages = l.hostImages(ctx, o.Services)
		return nil
	})
	o.MTU = outerMTU(info)
	rec.Engine, rec.EngineID, rec.Host.EngineVersion, rec.Host.CgroupVersion = info.Host, info.Identity(), info.Version, info.CgroupVersion
	return info, err
}

// begin does everything up to the moment the box has its order.
func (l *Launcher) begin(ctx context.Context, job *Job, rec *store.Record, info engine.Info) error {
	err := l.step(ctx, rec, workorder.StepImage, func() error {
		img, err := l.Images.Ensure(ctx, job.Image, l.show)
		rec.Image = img
		return err
	})
	if err != nil {
		return err
	}
	var secrets map[string]string
	if job.Secrets != nil && len(job.Order.SecretNames) > 0 {
		// Last, as reading them can mean a prompt or a charge, and nothing may keep them longer
		// than needed: what can fail without them has not failed.
		err := l.step(ctx, rec, workorder.StepSecrets, func() (err error) {
			secrets, err = job.Secrets(ctx)
			return err
		})
		if err != nil {
			return err
		}
	}
	rec.Box = BoxName(rec.TaskID, rec.Number())
	rec.Deadline = l.now().Add(longest(&job.Order)).UTC()
	return l.step(ctx, rec, workorder.StepStart, func() error { return l.start(ctx, job, rec, info, secrets) })
}

// longest is what a run can take to land that keeps its own bounds: the clock of its
// timeout starts with the box, and an ordinary landing follows when that has run out. What comes after a landing has workorder.AfterLimit more.
func longest(o *workorder.Order) time.Duration {
	return startTimeout + o.Timeout() + workorder.AgentGrace + workorder.LandLimit + endReserve
}

func (l *Launcher) start(ctx context.Context, job *Job, rec *store.Record, info engine.Info, secrets map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := l.companionFor(ctx, job, rec, info); err != nil {
		return err
	}
	// Saved before the box exists: whoever finds the box finds the record.
	if err := l.Store.Save(rec); err != nil {
		return err
	}
	if err := l.saveOrder(rec, &job.Order); err != nil {
		return err
	}
	env, err := json.Marshal(workorder.Envelope{Order: job.Order, Secrets: secrets, Git: job.Git, ForgeToken: job.ForgeToken, App: job.App})
	if err != nil {
		return fmt.Errorf("write the work order: %w", err)
	}
	spec := boxSpec(job, rec, info)
	spec.CacheVolume = cmp.Or(l.CacheVolume, CacheVolume)
	_, err = l.Engine.Run(ctx, spec, bytes.NewReader(append(env, '\n')))
	switch {
	case errors.Is(err, engine.ErrConflict):
		return l.conflict(ctx, job, rec, err)
	case errors.Is(err, engine.ErrIsolation):
		return fault.New(workorder.ExitBox, err, isolationHint(job))
	case err != nil:
		return fault.New(workorder.ExitBox, err, "`sandbox-agent doctor` tells what this engine can do")
	}
	return nil
}

// errOther ends a start for another box of the task.
var errOther = errors.New("another box works on the task")

// conflict tells whose box has the name that the record's was to have.
func (l *Launcher) conflict(ctx context.Context, job *Job, rec *store.Record, err error) error {
	name := rec.Box
	rec.Box = "" // it is not ours
	boxes, lerr := l.Engine.Boxes(ctx, map[string]string{workorder.LabelTask: rec.TaskID})
	if lerr != nil {
		return fault.New(workorder.ExitBox, errors.Join(err, lerr), "")
	}
	i := slices.IndexFunc(boxes, func(b engine.Box) bool { return b.Name == name })
	switch {
	case i < 0:
		return fault.New(workorder.ExitBox, err, "if it is none of this program's, choose another --task-id; else it is gone by now: try again")
	case boxes[i].Labels[workorder.LabelOwner] == job.Owner && !boxes[i].Live():
		return fault.New(workorder.ExitBox, fmt.Errorf("%w: %s is left of a run that this state folder does not know any more", err, name), "`sandbox-agent gc` removes it")
	}
	return fault.New(workorder.ExitGit, fmt.Errorf("%w: %s runs on this engine, started from another state folder (%s)", errOther, name, boxes[i].Labels[workorder.LabelOwner]),
		"wait for its end, or follow it there: `sandbox-agent logs -f "+rec.TaskID+"` with that state folder")
}

func isolationHint(job *Job) string {
	switch {
	case job.OCIRuntime != "":
		return "the engine must have the OCI runtime " + job.OCIRuntime + "; without --oci-runtime its default one is used"
	case job.Isolation == engine.IsolationPrivileged:
		return "this engine cannot give a privileged box; ask for what it has: --isolation confined"
	}
	return "`sandbox-agent doctor` tells which --isolation this engine can give (confined, privileged)"
}

// memoryTenths of the machine's memory are a box's, unless the project says something else: what runs away in
// a box is ended there, before the machine's own programs are.
const memoryTenths = 9

// boxSpec is the box a job gets.
func boxSpec(job *Job, rec *store.Record, info engine.Info) engine.BoxSpec {
	files := map[string]string{}
	if job.bundle != "" {
		files[workorder.BundleIn] = job.bundle
	}
	if job.archive != "" {
		files[workorder.ArchiveIn] = job.archive
	}
	limits := job.Order.Limits
	if limits.MemoryBytes == 0 {
		limits.MemoryBytes = info.MemoryBytes / 10 * memoryTenths
	}
	return engine.BoxSpec{
		Files: files,
		Name:  rec.Box,
		Image: cmp.Or(rec.Image.Name, job.Image),
		Labels: map[string]string{
			workorder.LabelTask: rec.TaskID, workorder.LabelAttempt: rec.AttemptID, workorder.LabelOwner: job.Owner, workorder.LabelProject: rec.Project,
		},
		Isolation: job.Isolation, OCIRuntime: job.OCIRuntime, Limits: limits, DNS: job.Order.Network.DNS,
		Fuse: info.HasFuse(), CgroupV2: info.CgroupVersion == 2,
	}
}

// cutShort is the error of a step that the user ended.
const cutShort = "interrupted"

// step runs one of the host's own steps with its events and its record.
func (l *Launcher) step(ctx context.Context, rec *store.Record, name workorder.StepName, do func() error) error {
	s := workorder.Step{Name: name, Status: workorder.StepDone, StartedAt: l.now().UTC()}
	l.show(workorder.Event{Time: s.StartedAt, Type: workorder.EventStepStarted, Name: string(name)})
	err := do()
	end := l.now()
	s.DurationMS = end.Sub(s.StartedAt).Milliseconds()
	if err != nil {
		s.Status, s.Error = workorder.StepFailed, err.Error()
		if ctx.Err() != nil {
			s.Error = cutShort // what a client says of a request that was given up helps nobody
		}
	}
	rec.Steps = append(rec.Steps, s)
	l.show(workorder.Event{Time: end, Type: workorder.EventStepFinished, Name: string(name), Status: string(s.Status), DurationMS: s.DurationMS, Text: s.Error})
	return err
}

func (l *Launcher) saveOrder(rec *store.Record, o *workorder.Order) error {
	b, err := json.MarshalIndent(o, "", "  ")
	if err != nil {
		return fmt.Errorf("write the work order: %w", err)
	}
	return store.WriteFile(filepath.Join(rec.Dir, workorder.OrderFile), append(render.EscapeControls(b), '\n'), 0o600)
}

// shorten makes a list entry of a task.
func shorten(task string) string {
	const most = 120
	r := []rune(strings.Join(strings.Fields(task), " "))
	if len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return string(r)
}
