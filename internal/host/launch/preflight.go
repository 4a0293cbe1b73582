package launch

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/job"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func (st starter) preflight(ctx context.Context, j *job.Job) (runtime.Info, error) {
	o := &j.Order
	remote := make(chan error, 1)
	go func() {
		// A local repository was examined when the job was resolved.
		if o.Repo == "" || j.LocalRepo != "" {
			remote <- nil
			return
		}
		if o.Mode.Continues() {
			// A later attempt starts from what the remote has of the task; the base may be gone by now.
			remote <- st.Remote.Answers(ctx, o.CloneURL, j.Git)
			return
		}
		base, err := st.Remote.Check(ctx, o.CloneURL, o.Branch, o.TargetBranch, j.Git)
		if err == nil && o.PR != nil && !strings.HasPrefix(base, workorder.BranchRef("")) {
			err = exiterr.New(workorder.ExitGit, fmt.Errorf("a pull request goes into a branch, and %s is none", o.Branch),
				"start from a branch, or take pr out of the project file")
		}
		remote <- err
	}()
	info, err := CheckEngine(ctx, st.Engine, j)
	// Both are awaited: no goroutine outlives the call, and the engine's error wins.
	return info, errors.Join(err, <-remote)
}

// CheckEngine asks the engine whether it can run the job, and changes nothing.
func CheckEngine(ctx context.Context, engine runtime.Runtime, j *job.Job) (runtime.Info, error) {
	info, err := engine.Info(ctx)
	runsIn := j.Order.OCIRuntime
	switch {
	case err != nil:
		err = exiterr.New(workorder.ExitBox, err, "start the Docker engine, or point DOCKER_HOST at one that runs")
	case info.OSType != "" && info.OSType != "linux":
		err = exiterr.New(workorder.ExitBox, fmt.Errorf("the engine at %s runs %s containers", info.Host, info.OSType),
			"a sandbox needs Linux containers")
	case tooOld(info.APIVersion):
		err = exiterr.New(workorder.ExitBox, fmt.Errorf("the engine at %s is too old: it has version %s of the Docker API (engine %s), a "+
			"sandbox needs 1.%d", info.Host, info.APIVersion, info.Version, leastAPI),
			"install Docker 20.10 or newer, or point DOCKER_HOST at such an engine")
	// a shim needs no entry
	case runsIn != "" && !strings.ContainsAny(runsIn, "./") && len(info.Runtimes) > 0 && !slices.Contains(info.Runtimes, runsIn):
		err = exiterr.New(workorder.ExitBox, fmt.Errorf("the engine at %s has no OCI runtime %s", info.Host, runsIn),
			"it has "+strings.Join(info.Runtimes, ", ")+"; without --oci-runtime its default one is used")
	case j.LocalRepo != "" && !reachesUs(info):
		err = exiterr.New(workorder.ExitBox, fmt.Errorf("the engine at %s is on another machine and cannot reach the repository %s", info.Host,
			j.LocalRepo),
			"push the repository to a remote and give --repo URL")
	}
	return info, err
}

// leastAPI is the minor version of the Docker API that has what holds a box: a namespace of its own for control groups. It is that of
// Docker 20.10.
const leastAPI = 41

func tooOld(api string) bool {
	major, minor, ok := strings.Cut(api, ".")
	n, err := strconv.Atoi(minor)
	return ok && major == "1" && err == nil && n < leastAPI
}

// CheckImage reports an image of the user's that the engine does not have: it is never built or fetched by itself. The default one, which
// has no name here, is built when it is missing.
func CheckImage(ctx context.Context, engine runtime.Runtime, name string) error {
	has, ok := engine.(runtime.ImageStore)
	if name == "" || !ok {
		return nil
	}
	id, err := has.ImageID(ctx, name)
	switch {
	case err != nil:
		return exiterr.New(workorder.ExitBox, err, "")
	case id == "":
		return exiterr.New(workorder.ExitBox, fmt.Errorf("image %s is not on the engine", name),
			fmt.Sprintf("a custom image is never built or fetched by itself: run `docker pull %s`, build it, or remove `image:` to use the "+
				"default image", name))
	}
	return nil
}

// reachesUs reports whether boxes of the engine can open connections to this process.
func reachesUs(info runtime.Info) bool {
	if info.Local || strings.HasPrefix(info.Host, "unix://") || strings.HasPrefix(info.Host, "npipe://") {
		return true
	}
	u, err := url.Parse(info.Host)
	return err == nil && (u.Hostname() == "localhost" || u.Hostname() == "127.0.0.1")
}
