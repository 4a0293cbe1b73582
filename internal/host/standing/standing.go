// Package standing creates boxes for standalone sandboxes. They run the steps of a task's box up to setup, then a server
// for clients.
package standing

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

// Boxes makes boxes without a task. It is a runtime.Stander.
type Boxes struct {
	runtime.Engine
	Images Images
	// CacheVolume is the volume that all boxes of the engine share.
	CacheVolume string
	// Order resolves the standing order of an existing box again, with its secrets, which are not stored.
	Order func(ctx context.Context, b runtime.Box) (*workorder.Envelope, error)
	// Progress, if non-nil, receives one line per step until a box is ready.
	Progress func(workorder.Event)
	Log      *slog.Logger

	mu    sync.Mutex
	known runtime.Info
	at    time.Time // when it was asked
}

// infoAge is how long the engine is not asked again what it is: that takes tens of milliseconds, and making a sandbox needs it twice.
const infoAge = 5 * time.Second

func (b *Boxes) info(ctx context.Context) (runtime.Info, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Since(b.at) < infoAge {
		return b.known, nil
	}
	info, err := b.Info(ctx)
	if err == nil {
		b.known, b.at = info, time.Now()
	}
	return info, err
}

var _ runtime.Stander = (*Boxes)(nil)

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

// Capabilities implements runtime.Stander.
func (b *Boxes) Capabilities(ctx context.Context) ([]runtime.Capability, error) {
	if _, err := b.info(ctx); err != nil {
		return nil, err
	}
	return []runtime.Capability{
		runtime.CapAnyImage, runtime.CapPersistent, runtime.CapNetworkNone, runtime.CapNetworkFull,
		runtime.CapNetworkRestricted, runtime.CapNetworkSwitch, runtime.CapMemory, runtime.CapCPUs, runtime.CapPIDs,
		runtime.CapOCIRuntime, runtime.CapServices, runtime.CapDocker, runtime.CapRepository, runtime.CapRemote,
	}, nil
}

// Stand implements runtime.Stander: it returns when the box serves.
func (b *Boxes) Stand(ctx context.Context, s runtime.StandSpec) (string, error) {
	o := &s.Box.Order
	img, err := b.Images.Ensure(ctx, s.Image, b.progress)
	if err == nil && len(o.Packages)+len(o.Tools) > 0 {
		if made, perr := b.Images.Prepare(ctx, img, o.Packages, o.Tools, b.progress); perr == nil {
			img = made
		} else {
			b.Log.Warn("packages and tools are installed in the sandbox, not in an image for all", "error", perr)
		}
	}
	if err != nil {
		return "", err
	}
	info, err := b.info(ctx)
	if err != nil {
		return "", err
	}
	o.ImageID, o.MTU = img.ID, runtime.OuterMTU(info)
	o.HostImages = runtime.HostImages(ctx, b.Engine, o.Services)
	order, err := json.Marshal(s.Box)
	if err != nil {
		return "", fmt.Errorf("write the standing order: %w", err)
	}
	files := map[string]string{}
	if s.Bundle != "" {
		files[workorder.RepoIn] = s.Bundle
	}
	begun := time.Now()
	id, err := b.Run(ctx, runtime.BoxSpec{
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
		CacheVolume: b.CacheVolume,
		Throwaway:   s.Throwaway,
	}, bytes.NewReader(append(order, '\n')))
	if err != nil {
		return "", err
	}
	if err := b.ready(ctx, id, begun, slices.Sorted(maps.Keys(o.HostImages))); err != nil {
		limit := cleanTime
		if ctx.Err() != nil { // a user waits for the program's end, and gc finds the rest
			limit = abandonedTime
		}
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
		defer cancel()
		return "", errors.Join(err, b.Remove(clean, id))
	}
	return id, nil
}

// StartAgain implements runtime.Stander.
func (b *Boxes) StartAgain(ctx context.Context, id string) error {
	boxes, err := b.Boxes(ctx, map[string]string{runtime.LabelSandbox: ""})
	if err != nil {
		return err
	}
	i := slices.IndexFunc(boxes, func(x runtime.Box) bool { return x.ID == id })
	if i < 0 {
		return fmt.Errorf("start the sandbox again: %w", runtime.ErrNotFound)
	}
	if boxes[i].Live() {
		return nil
	}
	env, err := b.Order(ctx, boxes[i])
	if err != nil {
		return fmt.Errorf("start the sandbox again: %w", err)
	}
	order, err := json.Marshal(env)
	if err != nil {
		return fmt.Errorf("write the standing order: %w", err)
	}
	begun := time.Now()
	if err := b.StartWith(ctx, id, bytes.NewReader(append(order, '\n'))); err != nil {
		return err
	}
	return b.ready(ctx, id, begun, nil)
}

// Stream implements runtime.Stander.
func (b *Boxes) Stream(ctx context.Context, id string) (io.ReadWriteCloser, error) {
	return b.StreamOf(ctx, id, []string{workorder.EntrypointIn, "dial"})
}

func (b *Boxes) progress(e workorder.Event) {
	if b.Progress != nil {
		b.Progress(e)
	}
}

// errServes ends the wait for a box.
var errServes = errors.New("it serves")

// ready waits until the box serves, and brings it the images that it asks for. A box that ends before is an error, with what it said.
func (b *Boxes) ready(ctx context.Context, id string, since time.Time, images []string) error {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	follow, done := context.WithCancelCause(ctx)
	defer done(nil)
	store, _ := b.Engine.(runtime.ImageStore)
	carrier := companion.Carrier{Files: runtime.CopierOf(b.Engine), Store: store, Images: images, Dir: os.TempDir(), Log: b.Log}
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
			jobs.Go(func() { carrier.Answer(ctx, id, e) })
			return
		case e.Type == workorder.EventStepStarted && e.Name == string(workorder.StepServe):
			done(errServes)
		case e.Type == workorder.EventStepFinished && e.Status == string(workorder.StepFailed):
			failed = e.Name + ": " + e.Text
		}
		b.progress(e)
	})
	said := &bytes.Buffer{}
	err := b.Logs(follow, id, runtime.LogOptions{Follow: true, Since: since, Stdout: out, Stderr: &limited{said, maxSaid}})
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
