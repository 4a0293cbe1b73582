package docker

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/volume"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
)

// Probe runs a command in a temporary container that is confined like a box.
func (e *Engine) Probe(ctx context.Context, spec runtime.ContainerSpec, argv []string) (string, error) {
	cfg, hc, err := hostConfig(spec)
	if err != nil {
		return "", err
	}
	cfg.Entrypoint, cfg.Cmd = argv, nil
	cfg.OpenStdin, cfg.StdinOnce, cfg.AttachStdin = false, false, false
	ctx, cancel := context.WithTimeout(ctx, e.createTime)
	defer cancel()
	made, err := e.c.ContainerCreate(ctx, cfg, hc, nil, nil, "")
	if err != nil {
		return "", e.startError("create sandbox", spec, err)
	}
	defer func() {
		clean, cancel := cleanup(ctx)
		defer cancel()
		_ = e.Remove(clean, made.ID) // otherwise gc removes it by its label
	}()
	done, errs := e.c.ContainerWait(ctx, made.ID, container.WaitConditionNextExit)
	if err := e.c.ContainerStart(ctx, made.ID, container.StartOptions{}); err != nil {
		return "", e.startError("start sandbox", spec, err)
	}
	var code int64
	select {
	case r := <-done:
		code = r.StatusCode
	case err := <-errs:
		return "", e.wrap("wait for sandbox", err)
	case <-ctx.Done():
		return "", fmt.Errorf("wait for sandbox: %w", ctx.Err())
	}
	var out bytes.Buffer
	if err := e.Logs(ctx, made.ID, runtime.LogOptions{Stdout: &out, Stderr: &out}); err != nil {
		return "", err
	}
	if code != 0 && strings.TrimSpace(out.String()) != "" {
		return out.String(), fmt.Errorf("exit status %d: %s", code, strings.TrimSpace(out.String()))
	}
	return out.String(), nil
}

// Volumes implements runtime.Volumes.
func (e *Engine) Volumes(ctx context.Context, labels map[string]string) ([]runtime.Volume, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // the engine walks its store
	defer cancel()
	f := filters.NewArgs(filters.Arg("dangling", "true"))
	for k, v := range labels {
		f.Add("label", k+"="+v)
	}
	r, err := e.c.VolumeList(ctx, volume.ListOptions{Filters: f})
	if err != nil {
		return nil, e.wrap("list volumes", err)
	}
	var all []runtime.Volume
	for _, v := range r.Volumes {
		created, _ := time.Parse(time.RFC3339, v.CreatedAt) // zero, that is old, if unknown
		all = append(all, runtime.Volume{Name: v.Name, Labels: v.Labels, Created: created})
	}
	return all, nil
}

// RemoveVolume implements runtime.Volumes.
func (e *Engine) RemoveVolume(ctx context.Context, name string) error {
	ctx, cancel := e.answered(ctx)
	defer cancel()
	return e.wrap("remove volume "+name, e.c.VolumeRemove(ctx, name, false))
}
