package launch

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
		if err := st.furtherRemotes(ctx, j); err != nil {
			remote <- err
			return
		}
		// A local repository was checked when the job was resolved.
		if o.Repo == "" || j.LocalRepo != "" {
			remote <- nil
			return
		}
		if o.Mode.Continues() {
			// A later attempt starts from the task's state on the remote; the base may be deleted by now.
			remote <- st.Remote.Answers(ctx, o.CloneURL, j.Git)
			return
		}
		base, err := st.Remote.Check(ctx, o.CloneURL, o.Branch, o.TargetBranch, j.Git)
		if err == nil && o.PR != nil && !strings.HasPrefix(base, workorder.BranchRef("")) {
			err = exiterr.New(workorder.ExitGit, fmt.Errorf("a pull request needs a branch as its base, and %s is not one", o.Branch),
				"start from a branch, or remove pr from the project file")
		}
		remote <- err
	}()
	info, err := CheckEngine(ctx, st.Engine, j)
	// Wait for both: no goroutine outlives the call.
	return info, errors.Join(err, <-remote)
}

// furtherRemotes checks the further repositories that are not on this machine.
func (st starter) furtherRemotes(ctx context.Context, j *job.Job) error {
	var errs []error
	for _, r := range j.Order.Repos {
		if r.CloneURL == "" {
			continue
		}
		var err error
		if j.Order.Mode.Continues() {
			err = st.Remote.Answers(ctx, r.CloneURL, j.RepoGit[r.Name])
		} else {
			_, err = st.Remote.Check(ctx, r.CloneURL, r.Branch, j.Order.TargetBranch, j.RepoGit[r.Name])
		}
		if err != nil {
			errs = append(errs, exiterr.New(exiterr.Code(err), fmt.Errorf("repos.%s: %w", r.Name, err), exiterr.Hint(err)))
		}
	}
	return errors.Join(errs...)
}

// CheckEngine reports why the engine cannot run the job. It changes nothing.
func CheckEngine(ctx context.Context, engine runtime.Runtime, j *job.Job) (runtime.Info, error) {
	info, err := engine.Info(ctx)
	runsIn := j.Order.OCIRuntime
	switch {
	case err != nil:
		err = exiterr.New(workorder.ExitBox, err, "start the Docker engine, or point DOCKER_HOST at a running one")
	case info.OSType != "" && info.OSType != "linux":
		err = exiterr.New(workorder.ExitBox, fmt.Errorf("the engine at %s runs %s containers", info.Host, info.OSType),
			"use an engine with Linux containers")
	case tooOld(info.APIVersion):
		err = exiterr.New(workorder.ExitBox, fmt.Errorf("the engine at %s is too old: Docker API %s (engine %s), need 1.%d or newer",
			info.Host, info.APIVersion, info.Version, leastAPI),
			"install Docker 20.10 or newer, or point DOCKER_HOST at such an engine")
	// A name with a dot or slash is a shim and needs no entry.
	case runsIn != "" && !strings.ContainsAny(runsIn, "./") && len(info.Runtimes) > 0 && !slices.Contains(info.Runtimes, runsIn):
		err = exiterr.New(workorder.ExitBox, fmt.Errorf("the engine at %s has no OCI runtime %s", info.Host, runsIn),
			"available: "+strings.Join(info.Runtimes, ", ")+"; omit --oci-runtime for the default")
	case j.Serves() && !reachesUs(info):
		local := slices.AppendSeq([]string{j.LocalRepo}, maps.Values(j.LocalRepos()))
		err = exiterr.New(workorder.ExitBox, fmt.Errorf("the engine at %s is on another machine and cannot reach the repository %s", info.Host,
			strings.TrimSpace(strings.Join(local, " "))),
			"push the repository to a remote and give --repo URL")
	}
	return info, err
}

// leastAPI is the minor version of the Docker API of Docker 20.10, the first with private cgroup namespaces, which confine a box.
const leastAPI = 41

func tooOld(api string) bool {
	major, minor, ok := strings.Cut(api, ".")
	n, err := strconv.Atoi(minor)
	return ok && major == "1" && err == nil && n < leastAPI
}

// CheckImage returns an error if the engine does not have the user's image: it is never built or pulled automatically. The
// default image, with an empty name, is built if missing.
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
			fmt.Sprintf("a custom image is never built or pulled automatically: run `docker pull %s`, build it, or remove `image:` to use "+
				"the default image", name))
	}
	return nil
}

// reachesUs reports whether boxes of the engine can connect to this process.
func reachesUs(info runtime.Info) bool {
	if info.Local || strings.HasPrefix(info.Host, "unix://") || strings.HasPrefix(info.Host, "npipe://") {
		return true
	}
	u, err := url.Parse(info.Host)
	return err == nil && (u.Hostname() == "localhost" || u.Hostname() == "127.0.0.1")
}
