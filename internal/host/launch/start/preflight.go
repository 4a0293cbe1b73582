package start

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/job"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func (st *Starter) preflight(ctx context.Context, j *job.Job) (runtime.Info, error) {
	o := &j.Order
	remote := make(chan error, 1)
	go func() {
		// A local repository was examined when the job was resolved.
		if o.Repo == "" || j.LocalRepo != "" {
			remote <- nil
			return
		}
		if o.Mode.GoesOn() {
			// It goes on from what the remote has of it; the base may be gone by now.
			remote <- st.Remote.Answers(ctx, o.CloneURL, j.Git)
			return
		}
		remote <- st.Remote.Check(ctx, o.CloneURL, o.Branch, j.Git)
	}()
	info, err := st.Host.Engine.Info(ctx)
	if err != nil {
		err = fault.New(workorder.ExitBox, err, "start the Docker engine, or point DOCKER_HOST at one that runs")
	} else if info.OSType != "" && info.OSType != "linux" {
		err = fault.New(workorder.ExitBox, fmt.Errorf("the engine at %s runs %s containers", info.Host, info.OSType), "a sandbox needs Linux containers")
	}
	if err == nil && j.LocalRepo != "" && !reachesUs(info) {
		err = fault.New(workorder.ExitBox, fmt.Errorf("the engine at %s is on another machine and cannot reach the repository %s", info.Host, j.LocalRepo),
			"push the repository to a remote and give --repo URL")
	}
	// Both are awaited: no goroutine outlives the call, and the engine's error wins.
	return info, errors.Join(err, <-remote)
}

// reachesUs reports whether boxes of the engine can open connections to this process.
func reachesUs(info runtime.Info) bool {
	if info.Local || strings.HasPrefix(info.Host, "unix://") || strings.HasPrefix(info.Host, "npipe://") {
		return true
	}
	u, err := url.Parse(info.Host)
	return err == nil && (u.Hostname() == "localhost" || u.Hostname() == "127.0.0.1")
}

// hostImages lists the service images that the engine can hand to the box.
func (st *Starter) hostImages(ctx context.Context, services []workorder.Service) map[string]string {
	ic, ok := st.Host.Engine.(runtime.ImageStore)
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
