package launch

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/host/engine"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func (l *Launcher) preflight(ctx context.Context, job *Job) (engine.Info, error) {
	o := &job.Order
	remote := make(chan error, 1)
	go func() {
		// A local repository was examined when the job was resolved.
		if o.Repo == "" || job.LocalRepo != "" {
			remote <- nil
			return
		}
		if o.Mode.GoesOn() {
			// It goes on from what the remote has of it; the base may be gone by now.
			remote <- l.Remote.Answers(ctx, o.CloneURL, job.Git)
			return
		}
		remote <- l.Remote.Check(ctx, o.CloneURL, o.Branch, job.Git)
	}()
	info, err := l.Engine.Info(ctx)
	if err != nil {
		err = fault.New(workorder.ExitBox, err, "start the Docker engine, or point DOCKER_HOST at one that runs")
	} else if info.OSType != "" && info.OSType != "linux" {
		err = fault.New(workorder.ExitBox, fmt.Errorf("the engine at %s runs %s containers", info.Host, info.OSType), "a box needs Linux containers")
	}
	if err == nil && job.LocalRepo != "" && !reachesUs(info) {
		err = fault.New(workorder.ExitBox, fmt.Errorf("the engine at %s is on another machine and cannot reach the repository %s", info.Host, job.LocalRepo),
			"push the repository to a remote and give --repo URL")
	}
	// Both are awaited: no goroutine outlives the call, and the engine's error wins.
	return info, errors.Join(err, <-remote)
}

// reachesUs reports whether boxes of the engine can open connections to this process.
func reachesUs(info engine.Info) bool {
	if info.Local || strings.HasPrefix(info.Host, "unix://") || strings.HasPrefix(info.Host, "npipe://") {
		return true
	}
	u, err := url.Parse(info.Host)
	return err == nil && (u.Hostname() == "localhost" || u.Hostname() == "127.0.0.1")
}

// hostImages lists the service images that the engine can hand to the box.
func (l *Launcher) hostImages(ctx context.Context, services []workorder.Service) map[string]string {
	ic, ok := l.Engine.(ImageChecker)
	if !ok {
		return nil
	}
	have := map[string]string{}
	for i := range services {
		ref := services[i].Image
		// An engine that cannot answer costs the short cut, not the run.
		if id, err := ic.ImageID(ctx, ref); err == nil && id != "" {
			have[ref] = id
		}
	}
	return have
}
