package launch

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/companion"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/job"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/statedir"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// starter prepares a job until its box has the order.
type starter struct{ *Launcher }

const (
	// StartTimeout bounds creating and starting a container, which takes seconds on a loaded machine.
	StartTimeout = 2 * time.Minute
	// endReserve is for the guest's work after its own limits, on a loaded machine, before the host stops the box.
	endReserve = time.Minute
)

// Images provides the image of a box.
type Images interface {
	// Ensure returns the image's identity. It builds the default image with these parts if it is missing, and never a custom one.
	Ensure(ctx context.Context, name string, parts []string, progress func(workorder.Event)) (workorder.Image, error)
	// Prepare returns img with packages and tools installed, the latter by version. The result is shared by all sandboxes
	// with the same request.
	Prepare(ctx context.Context, img workorder.Image, packages []string, tools map[string]string,
		progress func(workorder.Event)) (workorder.Image, error)
}

// Remote checks the repository before a container is started for it.
type Remote interface {
	// Check verifies that the repository answers, accepts the credential, has the base (any branch if it is empty) and can
	// have the branch target. It returns the full name of the base.
	Check(ctx context.Context, url, base, target string, cred *workorder.GitCredential) (name string, err error)
	// Answers verifies only that the repository answers and accepts the credential.
	Answers(ctx context.Context, url string, cred *workorder.GitCredential) error
}

// check checks whether engine and remote can run the job. It creates nothing.
func (st starter) check(ctx context.Context, j *job.Job, rec *taskstore.Record) (info runtime.Info, err error) {
	o := &j.Order
	err = st.step(ctx, rec, workorder.StepPreflight, func() error {
		var err error
		if info, err = st.preflight(ctx, j); err != nil {
			return err
		}
		o.HostImages = runtime.HostImages(ctx, st.Engine, o.Services)
		return nil
	})
	o.MTU = runtime.OuterMTU(info)
	rec.Engine, rec.EngineID, rec.Host.EngineVersion, rec.Host.CgroupVersion = info.Host, info.Identity(), info.Version, info.CgroupVersion
	return info, err
}

// begin does everything until the box has its order.
func (st starter) begin(ctx context.Context, j *job.Job, rec *taskstore.Record, info runtime.Info) error {
	err := st.step(ctx, rec, workorder.StepImage, func() error {
		return st.image(ctx, j, rec)
	})
	if err != nil {
		return err
	}
	var secrets map[string]string
	if j.Secrets != nil && len(j.Order.SecretNames) > 0 {
		// Secrets come last: reading them can mean a prompt or a charge, and they must not be held longer than needed.
		err := st.step(ctx, rec, workorder.StepSecrets, func() (err error) {
			if secrets, err = j.Secrets(ctx); err == nil {
				st.leaveOut(j, secrets)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	rec.Box = runtime.BoxName(rec.TaskID, rec.Number())
	rec.Deadline = st.now().Add(longest(&j.Order)).UTC()
	return st.step(ctx, rec, workorder.StepStart, func() error { return st.start(ctx, j, rec, info, secrets) })
}

// image provides the image of the job's box.
func (st starter) image(ctx context.Context, j *job.Job, rec *taskstore.Record) error {
	img, err := st.Images.Ensure(ctx, j.Order.Image, j.Order.Parts, st.emit)
	if err == nil {
		img = st.prepared(ctx, j, img)
	}
	rec.Image, j.Order.ImageID = img, img.ID
	return err
}

// prepared returns the image with the project's packages and tools. Without it the box installs them and reports missing ones.
func (st starter) prepared(ctx context.Context, j *job.Job, img workorder.Image) workorder.Image {
	o := &j.Order
	if len(o.Packages)+len(o.Tools) == 0 {
		return img
	}
	p, err := st.Images.Prepare(ctx, img, o.Packages, o.Tools, st.emit)
	if err != nil && ctx.Err() != nil {
		return img // the next step reports the stop
	}
	if err != nil {
		st.Log.Warn("prepare image: packages and tools are installed in the sandbox instead", "error", err)
		return img
	}
	return p
}

// leaveOut removes optional secrets without a value from the order.
func (st starter) leaveOut(j *job.Job, secrets map[string]string) {
	missing := slices.DeleteFunc(slices.Clone(j.Order.SecretNames), func(name string) bool { _, there := secrets[name]; return there })
	if len(missing) > 0 {
		j.Order.LeaveOut(missing)
		st.emit(workorder.Event{Type: workorder.EventWarning, Text: "optional secrets without a value omitted: " + strings.Join(missing, ", ")})
	}
}

// longest is the longest time until a run within its own limits has landed. Its timeout starts with the box, and a landing
// follows it. The steps after a landing have workorder.AfterLimit more.
func longest(o *workorder.Order) time.Duration {
	return StartTimeout + o.Timeout() + workorder.AgentGrace + workorder.LandLimit + endReserve
}

func (st starter) start(ctx context.Context, j *job.Job, rec *taskstore.Record, info runtime.Info, secrets map[string]string) error {
	all := ctx
	ctx, cancel := context.WithTimeout(all, StartTimeout)
	defer cancel()
	spec := boxSpec(j, rec, info)
	spec.CacheVolume = cmp.Or(st.CacheVolume, runtime.CacheVolume)
	// The companion starts while the engine creates the box, which reads its order once it has started.
	ready := make(chan struct{})
	var cerr error
	serve := sync.OnceValue(func() error {
		// Saved before the box exists, so that each box that is found has its record.
		if err := st.Store.Save(rec); err != nil {
			return err
		}
		go func() {
			defer close(ready)
			ctx, cancel := context.WithTimeout(all, StartTimeout)
			defer cancel()
			cerr = st.companionFor(ctx, j, rec, info)
		}()
		return nil
	})
	standby := st.takeStandby(ctx, j, rec, spec, serve)
	if standby == "" {
		release, err := st.slot(all, "task "+rec.TaskID)
		if err != nil {
			rec.Box = "" // there is none
			return err
		}
		defer release()
		rec.Deadline = st.now().Add(longest(&j.Order)).UTC() // without the wait
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(all, StartTimeout)
		defer cancel()
	}
	if err := serve(); err != nil {
		return err
	}
	order := &lateReader{open: func() ([]byte, error) {
		if <-ready; cerr != nil {
			return nil, cerr
		}
		if err := st.saveOrder(rec, &j.Order); err != nil {
			return nil, err
		}
		env, err := json.Marshal(workorder.Envelope{
			Order: j.Order, Secrets: secrets, Git: j.Git, RepoGit: j.RepoGit, ForgeToken: j.ForgeToken, App: j.App,
		})
		if err != nil {
			return nil, fmt.Errorf("write the work order: %w", err)
		}
		return append(env, '\n'), nil
	}}
	var err error
	if standby != "" {
		err = st.order(ctx, standby, spec, order)
	} else {
		spec.Labels[workorder.LabelAttempt] = rec.AttemptID // may be that of a standby that was lost
		_, err = st.Engine.Run(ctx, spec, order)
	}
	<-ready
	switch {
	case cerr != nil:
		return cerr
	case errors.Is(err, runtime.ErrConflict):
		return st.conflict(ctx, j, rec, err)
	case errors.Is(err, runtime.ErrIsolation):
		return exiterr.New(workorder.ExitBox, err, isolationHint(j))
	case err != nil:
		return exiterr.New(workorder.ExitBox, err, "show the capabilities of this engine with: sandbox-agent doctor")
	}
	return nil
}

// slot calls Launcher.Slot.
func (l *Launcher) slot(ctx context.Context, name string) (release func(), err error) {
	if l.Slot == nil {
		return func() {}, nil
	}
	return l.Slot(ctx, name)
}

// lateReader reads what open returns at the first read.
type lateReader struct {
	open func() ([]byte, error)
	r    *bytes.Reader
}

func (l *lateReader) Read(p []byte) (int, error) {
	if l.r == nil {
		b, err := l.open()
		if err != nil {
			return 0, err
		}
		l.r = bytes.NewReader(b)
	}
	return l.r.Read(p)
}

// ErrTaskBusy ends a start because the task has another box.
var ErrTaskBusy = errors.New("another sandbox works on the task")

// conflict finds out which task owns the box with the record's name.
func (st starter) conflict(ctx context.Context, j *job.Job, rec *taskstore.Record, err error) error {
	name := rec.Box
	rec.Box = "" // the name belongs to another container
	boxes, lerr := st.Engine.Instances(ctx, map[string]string{workorder.LabelTask: rec.TaskID})
	if lerr != nil {
		return exiterr.New(workorder.ExitBox, errors.Join(err, lerr), "")
	}
	i := slices.IndexFunc(boxes, func(b runtime.Instance) bool { return b.Name == name })
	switch {
	case i < 0:
		return exiterr.New(workorder.ExitBox, err, "try again; if another program's container has the name, choose another --task-id")
	case boxes[i].Labels[workorder.LabelOwner] == j.Owner && !boxes[i].Running():
		return exiterr.New(workorder.ExitBox, fmt.Errorf("%w: %s is left over from a run that is not in this state directory", err, name),
			"remove it with: sandbox-agent gc")
	}
	return exiterr.New(workorder.ExitGit, fmt.Errorf("%w: %s runs on this engine, started from another state directory (%s)",
		ErrTaskBusy, name, boxes[i].Labels[workorder.LabelOwner]),
		"wait for its end, or follow it with that state directory: sandbox-agent logs -f "+rec.TaskID)
}

func isolationHint(j *job.Job) string {
	switch {
	case j.Order.OCIRuntime != "":
		return "install the OCI runtime " + j.Order.OCIRuntime + " in the engine, or omit --oci-runtime for the default"
	case j.Order.Isolation == workorder.IsolationPrivileged:
		return "this engine does not allow privileged containers: use --isolation confined"
	}
	return "show the supported --isolation values (confined, privileged) with: sandbox-agent doctor"
}

func boxSpec(j *job.Job, rec *taskstore.Record, info runtime.Info) runtime.ContainerSpec {
	files := map[string]string{}
	maps.Copy(files, j.Kept)
	if j.Bundle != "" {
		files[workorder.BundleIn] = j.Bundle
	}
	if j.Archive != "" {
		files[workorder.ArchiveIn] = j.Archive
	}
	limits := j.Order.Limits
	limits.MemoryBytes = cmp.Or(limits.MemoryBytes, info.MemoryBytes/10*job.MemoryTenths)
	return runtime.ContainerSpec{
		Files: files,
		Name:  rec.Box,
		Image: cmp.Or(rec.Image.Name, j.Order.Image),
		Labels: map[string]string{
			workorder.LabelTask: rec.TaskID, workorder.LabelAttempt: rec.AttemptID, workorder.LabelOwner: j.Owner,
			workorder.LabelProject: rec.Project,
		},
		Isolation: j.Order.Isolation, OCIRuntime: j.Order.OCIRuntime, Limits: limits, DNS: j.Order.Network.DNS,
		Fuse: info.HasFuse(), CgroupV2: info.CgroupVersion == 2, Seccomp: info.Seccomp,
	}
}

// step runs one step of the host with its events and its record.
func (st starter) step(ctx context.Context, rec *taskstore.Record, name workorder.StepName, do func() error) error {
	s := workorder.Step{Name: name, Status: workorder.StepDone, StartedAt: st.now().UTC()}
	st.emit(workorder.Event{Time: s.StartedAt, Type: workorder.EventStepStarted, Name: string(name)})
	err := do()
	end := st.now()
	s.DurationMS = end.Sub(s.StartedAt).Milliseconds()
	if err != nil {
		s.Status, s.Error = workorder.StepFailed, err.Error()
		if ctx.Err() != nil {
			s.Error = "interrupted" // instead of the client's error for a cancelled request
		}
	}
	rec.Steps = append(rec.Steps, s)
	st.emit(workorder.Event{
		Time: end, Type: workorder.EventStepFinished, Name: string(name), Status: string(s.Status),
		DurationMS: s.DurationMS, Text: s.Error,
	})
	return err
}

func (st starter) saveOrder(rec *taskstore.Record, o *workorder.Order) error {
	b, err := json.MarshalIndent(o, "", "  ")
	if err != nil {
		return fmt.Errorf("write the work order: %w", err)
	}
	return statedir.WriteFile(filepath.Join(rec.Dir, workorder.OrderFile), append(text.EscapeControls(b), '\n'), 0o600)
}

func (st starter) companionFor(ctx context.Context, j *job.Job, rec *taskstore.Record, info runtime.Info) error {
	o := &j.Order
	if !j.Serves() && len(o.HostImages) == 0 {
		return nil
	}
	cfg := companion.Config{
		TaskID: rec.TaskID, AttemptID: rec.AttemptID, Dir: st.Store.TaskDir(rec.TaskID), Images: slices.Sorted(maps.Keys(o.HostImages)),
		Repo: j.LocalRepo, Repos: j.LocalRepos(), TargetBranch: o.TargetBranch, Listen: "127.0.0.1:0",
	}
	if info.Local && info.Gateway != "" {
		cfg.Listen = info.Gateway + ":0"
	}
	ready, err := st.StartCompanion(ctx, cfg)
	if err != nil && info.Rootless && j.Serves() {
		return exiterr.New(workorder.ExitBox, fmt.Errorf("start companion: %w", err), runtime.RootlessHint)
	}
	if err != nil {
		return exiterr.New(workorder.ExitBox, fmt.Errorf("start companion: %w", err), "its log is "+filepath.Join(cfg.Dir, companion.LogFile))
	}
	rec.Companion = statedir.ProcessOf(ready.PID)
	if j.LocalRepo != "" {
		o.CloneURL = ready.URL("")
		j.Git = &workorder.GitCredential{Username: "sandbox", Token: ready.Token, CA: ready.CA}
	}
	for i := range o.Repos {
		if r := &o.Repos[i]; r.CloneURL == "" {
			r.CloneURL = ready.URL(r.Name)
			if j.RepoGit == nil {
				j.RepoGit = map[string]*workorder.GitCredential{}
			}
			j.RepoGit[r.Name] = &workorder.GitCredential{Username: "sandbox", Token: ready.Token, CA: ready.CA}
		}
	}
	return nil
}
