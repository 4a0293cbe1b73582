package provision

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/build"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// EnsureDerived makes the image name from a Dockerfile whose build argument BASE is the
// default image's base. An existing image of that name is used as it is.
func EnsureDerived(ctx context.Context, engine Engine, o Options, name string, dockerfile []byte) error {
	if _, err := inspect(ctx, engine, name); !cerrdefs.IsNotFound(err) {
		return err
	}
	base, err := EnsureBase(ctx, engine, o)
	if err != nil {
		return err
	}
	if o.Progress == nil {
		o.Progress = func(workorder.Event) {}
	}
	b := builder{engine: engine, name: name, o: o}
	ctx, cancel := context.WithTimeoutCause(ctx, buildDeadline, fmt.Errorf("the image was not built within %s", buildDeadline))
	defer cancel()
	start := time.Now()
	b.emit(workorder.Event{Type: workorder.EventStepStarted, Name: StepImage, Text: name})
	err = b.derive(ctx, dockerfile, build.ImageBuildOptions{BuildArgs: buildArgs(base, readHost(ctx).proxies)})
	e := workorder.Event{Type: workorder.EventStepFinished, Name: StepImage, Status: string(workorder.StepDone), DurationMS: time.Since(start).Milliseconds()}
	if err != nil {
		e.Status, e.Text = string(workorder.StepFailed), err.Error()
	}
	b.emit(e)
	return err
}

// derive builds from a Dockerfile alone.
func (b *builder) derive(ctx context.Context, dockerfile []byte, o build.ImageBuildOptions) error {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	if err := w.WriteHeader(&tar.Header{Name: "Dockerfile", Mode: 0o644, Size: int64(len(dockerfile))}); err != nil {
		return fmt.Errorf("build image %s: %w", b.name, err)
	}
	if _, err := w.Write(dockerfile); err != nil {
		return fmt.Errorf("build image %s: %w", b.name, err)
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("build image %s: %w", b.name, err)
	}
	return b.submit(ctx, &buf, o)
}
