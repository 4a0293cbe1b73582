// Package boxruntime creates boxes for standalone sandboxes. They run the steps of a task's box up to setup, then a server
// for clients.
package boxruntime

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/companion"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Images provides the images of boxes.
type Images interface {
	// Ensure returns the image's identity, and builds our own image if it is missing.
	Ensure(ctx context.Context, name string, progress func(workorder.Event)) (workorder.Image, error)
	// Prepare returns an image made of img with packages and tools (by version) installed. It is made once for all who want the same.
	Prepare(
		ctx context.Context, img workorder.Image, packages []string, tools map[string]string, progress func(workorder.Event),
	) (workorder.Image, error)
}

// Runtime creates standalone boxes. It is a runtime.SandboxRuntime.
type Runtime struct {
	runtime.ContainerEngine
	Images Images
	// CacheVolume is the volume that all boxes of the engine share.
	CacheVolume string
	// LoadOrder resolves the order of an existing box, with its secrets, which are not stored.
	LoadOrder func(ctx context.Context, b runtime.Instance) (*workorder.Envelope, error)
	// Progress, if non-nil, receives one line per step until a box is ready.
	Progress func(workorder.Event)
	Log      *slog.Logger

	mu    sync.Mutex
	known runtime.Info
	at    time.Time // when it was asked
}

var (
	_ runtime.SandboxRuntime = (*Runtime)(nil)
	_ runtime.ImageEnsurer   = (*Runtime)(nil)
)

// infoAge is how long the engine is not asked again what it is: that takes tens of milliseconds, and making a sandbox needs it twice.
const infoAge = 5 * time.Second

func (r *Runtime) info(ctx context.Context) (runtime.Info, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.at) < infoAge {
		return r.known, nil
	}
	info, err := r.Info(ctx)
	if err == nil {
		r.known, r.at = info, time.Now()
	}
	return info, err
}

var _ runtime.SandboxRuntime = (*Runtime)(nil)

const (
	// readyTime bounds the way from the start of a box to its server: the sum of what its steps may take at the most
	// would be hours, and none that works was seen to take longer.
	readyTime = 30 * time.Minute
	// lineLimit bounds a line of the box that is parsed, in bytes.
	lineLimit = 64 << 10
	// maxSaid bounds what is shown of a box that did not get ready, in characters.
	maxSaid = 2000
	// cleanTime bounds the removal of a box that did not get ready.
	cleanTime = time.Minute
	// abandonedTime bounds it after the caller has given up.
	abandonedTime = 5 * time.Second
)

// Capabilities implements runtime.SandboxRuntime.
func (r *Runtime) Capabilities(ctx context.Context) ([]runtime.Capability, error) {
	if _, err := r.info(ctx); err != nil {
		return nil, err
	}
	return []runtime.Capability{
		runtime.CapImage, runtime.CapPersistent, runtime.CapNetworkNone, runtime.CapNetworkFull,
		runtime.CapNetworkRestricted, runtime.CapNetworkUpdate, runtime.CapMemory, runtime.CapCPUs, runtime.CapPIDs,
		runtime.CapOCIRuntime, runtime.CapServices, runtime.CapDocker, runtime.CapRepository, runtime.CapRemoteRepository,
	}, nil
}

// EnsureImage implements runtime.ImageEnsurer. Steps go to Progress.
func (r *Runtime) EnsureImage(ctx context.Context, name string, spec *workorder.BoxSpec, _ func(string)) error {
	_, err := r.image(ctx, name, spec)
	return err
}

// image returns the image of a box, with the spec's packages and tools if they can be installed in an image.
func (r *Runtime) image(ctx context.Context, name string, spec *workorder.BoxSpec) (workorder.Image, error) {
	img, err := r.Images.Ensure(ctx, name, r.progress)
	if err != nil || len(spec.Packages)+len(spec.Tools) == 0 {
		return img, err
	}
	prepared, err := r.Images.Prepare(ctx, img, spec.Packages, spec.Tools, r.progress)
	if err != nil {
		r.Log.Warn("packages and tools are installed in the sandbox, not in an image for all", "error", err)
		return img, nil
	}
	return prepared, nil
}

// Create implements runtime.SandboxRuntime: it returns when the box serves.
func (r *Runtime) Create(ctx context.Context, s runtime.SandboxSpec) (string, error) {
	o := &s.Box.Order
	img, err := r.image(ctx, s.Image, &o.BoxSpec)
	if err != nil {
		return "", err
	}
	info, err := r.info(ctx)
	if err != nil {
		return "", err
	}
	o.ImageID, o.MTU = img.ID, runtime.OuterMTU(info)
	o.HostImages = runtime.HostImages(ctx, r.ContainerEngine, o.Services)
	order, err := json.Marshal(s.Box)
	if err != nil {
		return "", fmt.Errorf("write the standing order: %w", err)
	}
	files := map[string]string{}
	if s.Bundle != "" {
		files[workorder.RepoIn] = s.Bundle
	}
	begun := time.Now()
	id, err := r.Run(ctx, runtime.ContainerSpec{
		Name:        s.Name,
		Image:       cmp.Or(img.Name, s.Image),
		Labels:      s.Labels,
		Files:       files,
		Isolation:   cmp.Or(o.Isolation, workorder.IsolationConfined),
		OCIRuntime:  s.OCIRuntime,
		Limits:      o.Limits,
		DNS:         o.Network.DNS,
		Fuse:        info.HasFuse(),
		CgroupV2:    info.CgroupVersion == 2,
		Seccomp:     info.Seccomp,
		CacheVolume: r.CacheVolume,
		Throwaway:   s.Throwaway,
	}, bytes.NewReader(append(order, '\n')))
	if err != nil {
		return "", err
	}
	if err := r.ready(ctx, id, begun, slices.Sorted(maps.Keys(o.HostImages))); err != nil {
		limit := cleanTime
		if ctx.Err() != nil { // a user waits for the program's end, and gc finds the rest
			limit = abandonedTime
		}
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
		defer cancel()
		return "", errors.Join(err, r.Remove(clean, id))
	}
	return id, nil
}

// Start implements runtime.SandboxRuntime.
func (r *Runtime) Start(ctx context.Context, id string) error {
	boxes, err := r.Instances(ctx, map[string]string{runtime.LabelSandbox: ""})
	if err != nil {
		return err
	}
	i := slices.IndexFunc(boxes, func(x runtime.Instance) bool { return x.ID == id })
	if i < 0 {
		return fmt.Errorf("start the sandbox again: %w", runtime.ErrNotFound)
	}
	if boxes[i].Running() {
		return nil
	}
	env, err := r.LoadOrder(ctx, boxes[i])
	if err != nil {
		return fmt.Errorf("start the sandbox again: %w", err)
	}
	order, err := json.Marshal(env)
	if err != nil {
		return fmt.Errorf("write the standing order: %w", err)
	}
	begun := time.Now()
	if err := r.StartWithInput(ctx, id, bytes.NewReader(append(order, '\n'))); err != nil {
		return err
	}
	return r.ready(ctx, id, begun, nil)
}

// Stream implements runtime.SandboxRuntime.
func (r *Runtime) Stream(ctx context.Context, id string) (io.ReadWriteCloser, error) {
	return r.ExecStream(ctx, id, []string{workorder.EntrypointIn, "dial"})
}

func (r *Runtime) progress(e workorder.Event) {
	if r.Progress != nil {
		r.Progress(e)
	}
}

// errServes ends the wait for a box.
var errServes = errors.New("it serves")

// ready waits until the box serves, and brings it the images that it asks for. A box that ends before is an error, with what it said.
func (r *Runtime) ready(ctx context.Context, id string, since time.Time, images []string) error {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	follow, done := context.WithCancelCause(ctx)
	defer done(nil)
	store, _ := r.ContainerEngine.(runtime.ImageStore)
	carrier := companion.ImageSender{Files: runtime.CopierOf(r.ContainerEngine), Store: store, Images: images, Dir: os.TempDir(), Log: r.Log}
	var jobs sync.WaitGroup
	defer jobs.Wait()
	var failed string
	out := text.WholeLines(lineLimit, func(line []byte) {
		e, err := workorder.DecodeEvent(line)
		if err != nil {
			return
		}
		switch {
		case e.Type == workorder.EventImageRequest:
			jobs.Go(func() { carrier.HandleRequest(ctx, id, e) })
			return
		case e.Type == workorder.EventStepStarted && e.Name == string(workorder.StepServe):
			done(errServes)
		case e.Type == workorder.EventStepFinished && e.Status == string(workorder.StepFailed):
			failed = e.Name + ": " + e.Text
		}
		r.progress(e)
	})
	said := &bytes.Buffer{}
	err := r.Logs(follow, id, runtime.LogOptions{Follow: true, Since: since, Stdout: out, Stderr: &limited{said, maxSaid}})
	switch {
	case errors.Is(context.Cause(follow), errServes):
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("make the sandbox ready: %w", context.Cause(ctx))
	case failed == "" && err != nil:
		return err
	}
	return fmt.Errorf(
		"the sandbox did not get ready: %w",
		errors.New(text.Runes(text.Clean(strings.TrimSpace(cmp.Or(failed, said.String(), "it ended"))), maxSaid)),
	)
}

// limited keeps the first bytes.
type limited struct {
	b    *bytes.Buffer
	most int
}

func (l *limited) Write(p []byte) (int, error) {
	l.b.Write(p[:max(0, min(len(p), l.most-l.b.Len()))])
	return len(p), nil
}
