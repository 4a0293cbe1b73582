package launch

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/companion"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/job"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	standbyCleanTime = time.Minute      // of removing a standby
	standbyPoll      = time.Second      // between two looks at the standbys
	standbyReplan    = 30 * time.Second // between two looks at the project
	standbyRetry     = 30 * time.Second // after a standby that failed to start
	standbyRest      = 3 * time.Second  // after a task took one: the task's own start comes first
)

// standbyFor returns the standby that the job's order needs.
func standbyFor(j *job.Job) workorder.Standby {
	o := j.Order
	if j.LocalRepo != "" {
		o.CloneURL = "https://" + companion.BoxName
	}
	return o.Standby()
}

// standbyKey returns the hash of everything that an order cannot change in a box with that spec.
func standbyKey(spec runtime.ContainerSpec, s workorder.Standby) (string, error) {
	spec.Name, spec.Labels, spec.Limits.CPUs, spec.Limits.DiskBytes = "", nil, 0, 0
	b, err := json.Marshal([]any{spec, s})
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16]), err
}

func (l *Launcher) standbys() companion.Standbys {
	return companion.Standbys{Engine: l.Engine, Dir: l.Store.Dir()}
}

// takeStandby takes a waiting box for the attempt, which gets the box's attempt id, and returns the box's id; empty if none fits. It calls
// serve when the attempt's id is known, before the box is the attempt's.
func (st starter) takeStandby(
	ctx context.Context, j *job.Job, rec *taskstore.Record, spec runtime.ContainerSpec, serve func() error,
) string {
	all := st.standbys()
	// The repository in a standby may have commits of a task that exists.
	if !all.Used() || len(spec.Files) > 0 || len(j.Order.Repos) > 0 || j.Order.MayContinue() {
		return ""
	}
	key, err := standbyKey(spec, standbyFor(j))
	var id string
	var boxes []runtime.Instance
	if err == nil {
		labels := map[string]string{workorder.LabelOwner: j.Owner, workorder.LabelStandby: ""}
		id, boxes, err = all.Take(ctx, labels, key, rec.Box, func(b runtime.Instance) error {
			rec.AttemptID = b.Labels[workorder.LabelAttempt]
			j.Order.AttemptID = rec.AttemptID
			st.emit(workorder.Event{Type: workorder.EventStandby, Name: b.Name})
			return serve()
		})
	}
	if err != nil {
		st.Log.Warn("take a standby", "task", rec.TaskID, "error", err)
		return ""
	}
	if id == "" {
		st.warnUnfit(boxes, rec.Project, key)
	}
	return id
}

// warnUnfit warns if boxes wait for tasks of the project, and none of the project's is like the one with the key.
func (st starter) warnUnfit(boxes []runtime.Instance, project, key string) {
	waits := false
	for _, b := range boxes {
		if b.Labels[workorder.LabelStandby] == key {
			return // it is being started, or a task has it
		}
		waits = waits || project != "" && b.Labels[workorder.LabelProject] == project && b.Ready()
	}
	if waits {
		st.emit(workorder.Event{Type: workorder.EventWarning, Text: "no sandbox of `standby` fits this task: its image, network, services, " +
			"limits or servers differ. Give `standby` the task's --harness, --command, --image and --network"})
	}
}

// order gives a standby its order. After an error there is no box.
func (st starter) order(ctx context.Context, id string, spec runtime.ContainerSpec, document io.Reader) error {
	r, ok := st.Engine.(runtime.StandbyRuntime)
	if !ok {
		return runtime.ErrUnsupported
	}
	err := r.Send(ctx, id, spec.Limits.CPUs, document)
	if err != nil {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), standbyCleanTime)
		defer cancel()
		err = errors.Join(err, st.Engine.Remove(clean, id))
	}
	return err
}

// StandbyOwner keeps boxes that wait for the tasks of a project.
type StandbyOwner struct {
	*Launcher
	Count  int
	MaxAge time.Duration // of a waiting box, which is then replaced; 0 means no limit
	Idle   time.Duration // without a task that takes one, after which Run ends; 0 means never
	// Job resolves a task of the project, as it is now, and a function that writes the repository's commits to a file; nil without one.
	Job func(context.Context) (*job.Job, func(ctx context.Context, file string) error, error)

	label string // of this process
	want  *standbyPlan
	known map[string]string // names of the boxes that waited before, by id
	used  time.Time         // the last time that a task took one
	retry time.Time         // no box is started before
}

// standbyPlan is what the standbys of a project are now.
type standbyPlan struct {
	at     time.Time
	key    string
	box    workorder.Standby
	spec   runtime.ContainerSpec
	bundle func(ctx context.Context, file string) error
}

// Run keeps the boxes until ctx ends or they are idle, and removes them.
func (k *StandbyOwner) Run(ctx context.Context) (err error) {
	if k.label, err = k.standbys().Keep(ctx); errors.Is(err, runtime.ErrUnsupported) {
		return exiterr.New(workorder.ExitBox, err, "use a Docker engine")
	} else if err != nil {
		return err
	}
	if err := k.replan(ctx); err != nil {
		return err
	}
	if err := k.standbys().RemoveDead(ctx, k.want.spec.Labels[workorder.LabelOwner]); err != nil {
		k.Log.Warn("remove standbys of killed commands", "error", err)
	}
	outlives := companion.Config{Dir: k.Store.Dir(), StandbyOwner: k.label}
	if _, err := k.StartCompanion(ctx, outlives); err != nil {
		return fmt.Errorf("start companion: %w", err)
	}
	k.known, k.used = map[string]string{}, k.now()
	defer func() {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), standbyCleanTime)
		defer cancel()
		err = errors.Join(err, k.standbys().RemoveAll(clean, k.label))
	}()
	for first := true; ; first = false {
		if err := k.tend(ctx); err != nil && ctx.Err() == nil {
			if first {
				return err
			}
			k.Log.Warn("keep standbys", "error", err)
			k.retry = k.now().Add(standbyRetry)
		}
		if k.Idle > 0 && k.now().Sub(k.used) > k.Idle {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(standbyPoll):
		}
	}
}

// tend brings the standbys one step closer to what is wanted.
func (k *StandbyOwner) tend(ctx context.Context) error {
	if k.now().Sub(k.want.at) > standbyReplan {
		if err := k.replan(ctx); err != nil {
			return err
		}
	}
	boxes, err := k.Engine.Instances(ctx, map[string]string{workorder.LabelStandbyOwner: k.label})
	if err != nil {
		return err
	}
	fit := 0
	there := map[string]bool{}
	for _, b := range boxes {
		there[b.ID] = true
		switch stale := b.Labels[workorder.LabelStandby] != k.want.key || k.MaxAge > 0 && k.now().Sub(b.Created) > k.MaxAge; {
		case !b.Waits():
			k.taken(b.ID, b.Name)
		case b.Ready() && !stale && fit < k.Count:
			fit++
		case b.State == "running": // a task takes it, or it ends by itself
		default:
			k.emit(workorder.Event{Type: workorder.EventStandby, Name: b.Name, Status: "removed"})
			delete(k.known, b.ID)
			if err := k.standbys().Remove(ctx, b); err != nil {
				return err
			}
		}
	}
	for id, name := range maps.Clone(k.known) {
		if !there[id] { // its task has ended already
			k.taken(id, name)
		}
	}
	if fit >= k.Count || k.now().Before(k.retry) {
		return nil
	}
	return k.boot(ctx)
}

// taken notes that a task took a box that waited before.
func (k *StandbyOwner) taken(id, name string) {
	if k.known[id] == "" {
		return
	}
	delete(k.known, id)
	k.used, k.retry = k.now(), k.now().Add(standbyRest)
	k.emit(workorder.Event{Type: workorder.EventStandby, Name: name, Status: "taken"})
}

// replan finds out what the standbys should be.
func (k *StandbyOwner) replan(ctx context.Context) error {
	j, bundle, err := k.Job(ctx)
	if err != nil {
		return err
	}
	rec := k.newRecord(j)
	info, err := CheckEngine(ctx, k.Engine, j)
	if err != nil {
		return err
	}
	j.Order.HostImages, j.Order.MTU = runtime.HostImages(ctx, k.Engine, j.Order.Services), runtime.OuterMTU(info)
	if err := (starter{k.Launcher}).image(ctx, j, rec); err != nil {
		return err
	}
	p := &standbyPlan{at: k.now(), box: standbyFor(j), spec: boxSpec(j, rec, info), bundle: bundle}
	p.spec.CacheVolume = cmp.Or(k.CacheVolume, runtime.CacheVolume)
	if p.key, err = standbyKey(p.spec, p.box); err != nil {
		return err
	}
	k.want = p
	return nil
}

// boot starts a box, and pauses it when it is ready.
func (k *StandbyOwner) boot(ctx context.Context) (err error) {
	p := k.want
	box, spec := p.box, p.spec
	box.ID = workorder.NewTaskID()
	spec.Name, spec.Standby, spec.Limits.CPUs = runtime.StandbyName(box.ID), true, 0
	spec.Labels = map[string]string{
		workorder.LabelTask: box.ID, workorder.LabelAttempt: workorder.NewAttemptID(), workorder.LabelOwner: p.spec.Labels[workorder.LabelOwner],
		workorder.LabelProject: p.spec.Labels[workorder.LabelProject], workorder.LabelStandby: p.key, workorder.LabelStandbyOwner: k.label,
	}
	frame, err := box.Frame()
	if err != nil {
		return err
	}
	if p.bundle != nil {
		dir := k.standbys().TempDir(k.label)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		file := filepath.Join(dir, "repo.bundle")
		if err := p.bundle(ctx, file); err != nil {
			k.Log.Warn("standby without the repository", "error", err)
		} else {
			spec.Files = map[string]string{workorder.RepoIn: file}
		}
	}
	r, ok := k.Engine.(runtime.StandbyRuntime)
	if !ok {
		return runtime.ErrUnsupported
	}
	release, err := k.slot(ctx, "standby "+spec.Name)
	if err != nil {
		return err
	}
	defer release()
	k.emit(workorder.Event{Type: workorder.EventStandby, Name: spec.Name, Status: "starting"})
	begun := k.now()
	id, err := k.Engine.Run(ctx, spec, bytes.NewReader(frame))
	if err != nil {
		return err
	}
	err = companion.StartingBox{
		Engine: k.Engine, Images: slices.Sorted(maps.Keys(box.HostImages)), Progress: func(workorder.Event) {}, Log: k.Log,
		Ready: func(e workorder.Event) bool {
			return e.Type == workorder.EventStandby && e.Status == string(workorder.StepDone)
		},
	}.Wait(ctx, id, time.Time{})
	if err == nil {
		err = r.Pause(ctx, id)
	}
	if err != nil {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), standbyCleanTime)
		defer cancel()
		return errors.Join(err, k.Engine.Remove(clean, id))
	}
	k.known[id] = spec.Name
	k.emit(workorder.Event{Type: workorder.EventStandby, Name: spec.Name, Status: "ready", DurationMS: k.now().Sub(begun).Milliseconds()})
	return nil
}
