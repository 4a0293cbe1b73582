// Package boxruntime creates boxes for standalone sandboxes, which run a task's steps up to setup and then a server.
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
	"slices"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/companion"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Images provides the images of boxes.
type Images interface {
	// Ensure returns the image's identity, and builds the default image with these parts if it is missing.
	Ensure(ctx context.Context, name string, parts []string, progress func(workorder.Event)) (workorder.Image, error)
	// Prepare returns img with packages and tools (by version) installed. It builds each combination once.
	Prepare(
		ctx context.Context, img workorder.Image, packages []string, tools map[string]string, progress func(workorder.Event),
	) (workorder.Image, error)
}

// Runtime creates standalone boxes. It is a runtime.SandboxRuntime.
type Runtime struct {
	runtime.ContainerEngine
	Images      Images
	CacheVolume string // shared by all boxes of the engine
	// LoadOrder resolves an existing box's order with its secrets, which are not stored.
	LoadOrder func(ctx context.Context, b runtime.Instance) (*workorder.Envelope, error)
	Progress  func(workorder.Event) // if non-nil, receives a line per step until a box is ready
	Log       *slog.Logger

	mu    sync.Mutex
	known runtime.Info
	at    time.Time // of known
}

var (
	_ runtime.SandboxRuntime = (*Runtime)(nil)
	_ runtime.ImageEnsurer   = (*Runtime)(nil)
	_ runtime.OutCopier      = (*Runtime)(nil)
)

// infoAge bounds the age of known: asking takes tens of milliseconds, and Create needs it twice.
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

const (
	cleanTime     = time.Minute     // of removing a failed box
	abandonedTime = 5 * time.Second // the same after the caller gave up
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

// image returns the image of a box, with the spec's packages and tools if an image can have them.
func (r *Runtime) image(ctx context.Context, name string, spec *workorder.BoxSpec) (workorder.Image, error) {
	img, err := r.Images.Ensure(ctx, name, spec.Parts, r.progress)
	if err != nil || len(spec.Packages)+len(spec.Tools) == 0 {
		return img, err
	}
	prepared, err := r.Images.Prepare(ctx, img, spec.Packages, spec.Tools, r.progress)
	if err != nil {
		r.Log.Warn("cannot prepare an image with the packages and tools: they are installed in this sandbox", "error", err)
		return img, nil
	}
	return prepared, nil
}

// Create implements runtime.SandboxRuntime. It returns when the box's server is ready.
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
		if ctx.Err() != nil { // a user waits for the program's end, and gc removes the rest
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
		return fmt.Errorf("start the stopped sandbox: %w", runtime.ErrNotFound)
	}
	if boxes[i].Running() {
		return nil
	}
	env, err := r.LoadOrder(ctx, boxes[i])
	if err != nil {
		return fmt.Errorf("start the stopped sandbox: %w", err)
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

// CopyOut implements runtime.OutCopier.
func (r *Runtime) CopyOut(ctx context.Context, id, path string) (io.ReadCloser, error) {
	return runtime.CopierOf(r.ContainerEngine).CopyOut(ctx, id, path)
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

// ready waits until the box serves.
func (r *Runtime) ready(ctx context.Context, id string, since time.Time, images []string) error {
	return companion.StartingBox{
		Engine: r.ContainerEngine, Images: images, Progress: r.progress, Log: r.Log,
		Ready: func(e workorder.Event) bool {
			return e.Type == workorder.EventStepStarted && e.Name == string(workorder.StepServe)
		},
	}.Wait(ctx, id, since)
}
