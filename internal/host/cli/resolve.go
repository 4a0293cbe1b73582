package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/host/credentials"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/job"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/internal/host/trust"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// resolved is a job with what the project says beside it.
type resolved struct {
	job     *job.Job
	project *projects.Project
	local   *localrepo.Repo
	by      string // how the project was named
	// trustedSum names what the user trusted of a project that came with a repository; empty means it is his own word.
	trustedSum string
	// untrusted is what would refuse the project if this were no rehearsal.
	untrusted error
}

// overrides are the flags that replace a value of the project.
func (o *runOptions) overrides() map[string]*string {
	return map[string]*string{
		"repo": &o.repo, "branch": &o.branch, "isolation": &o.isolation, "oci-runtime": &o.ociRuntime, "image": &o.image,
		"harness": &o.harness, "timeout-minutes": &o.timeoutMinutes, "max-budget-usd": &o.budget,
		"network": &o.network, "allow": (*string)(&o.allow),
	}
}

// ground finds the project and a repository on this machine.
func (o *runOptions) ground(ctx context.Context, a *App) (*resolved, error) {
	p, err := o.loadProject()
	if err != nil {
		return nil, err
	}
	asks := o.asks(ctx, a, p)
	values := o.overrides()
	for _, s := range settings {
		src, given := o.sources[s.flag]
		if s.key == "" || !given {
			continue
		}
		if err := p.Override(s.key, *values[s.flag], src); err != nil {
			return nil, err
		}
	}
	r := &resolved{project: p, by: foundBy(o, p)}
	// Before anything else: what follows reads the repository, and takes to the project's word.
	if r.untrusted = o.trusted(ctx, a, p, asks, p.Repo); r.untrusted != nil && !o.dryRun {
		return nil, r.untrusted
	}
	if theirs(ctx, o, p, p.Repo) {
		r.trustedSum = trust.Sum(p)
	}
	if p.Transport() == projects.TransportLocal {
		if r.local, err = localrepo.Open(ctx, p.Repo); err != nil {
			return nil, err
		}
		p.Repo = r.local.Path
	}
	return r, nil
}

// fromBase makes sure that a repository on this machine has what a new task starts from.
func (r *resolved) fromBase(ctx context.Context) (err error) {
	if r.local != nil {
		r.project.Branch, err = r.local.Base(ctx, r.project.Branch)
	}
	return err
}

// order makes the job.
func (r *resolved) order(o *runOptions, in projects.OrderInput) error {
	p := r.project
	order, err := p.Order(in)
	if err != nil {
		return fault.New(workorder.ExitInvalid, err, "")
	}
	r.job = &job.Job{
		Order: order, Keep: o.keep, Detach: o.detach,
		Request: r.request(o),
	}
	if r.local != nil {
		r.job.LocalRepo = r.local.Path
		if order.PR != nil && !credentials.HasForge(order.Repo, order.PR) {
			r.job.Order.PR = nil
			r.job.Warnings = append(r.job.Warnings, "no pull request will be opened: the repository is a path, which has no forge; pr.api_url and pr.repository in the project file name one")
		}
		if names := uncommitted(r.local, p.File); names != "" && !order.Mode.GoesOn() {
			r.job.Warnings = append(r.job.Warnings, "uncommitted changes in "+r.local.Path+" ("+names+") are not part of the run: it starts from the last commit of "+order.Branch)
		}
	}
	if o.out != "" {
		if r.job.OutDir, err = filepath.Abs(o.out); err != nil {
			return fmt.Errorf("find output folder: %w", err)
		}
	}
	return nil
}

// request is what the next attempt need not be told again.
func (r *resolved) request(o *runOptions) store.Request {
	req := store.Request{ProjectFile: o.project, ProjectBy: r.by, Overrides: map[string]string{}}
	if abs, err := filepath.Abs(r.project.File); err == nil {
		if _, err := os.Stat(abs); err == nil {
			req.ProjectFile = abs
		}
	}
	for flag, value := range o.overrides() {
		if _, given := o.sources[flag]; given {
			req.Overrides[flag] = *value
		}
	}
	if _, given := req.Overrides["repo"]; given {
		req.Overrides["repo"] = r.project.Repo // as it is found from every folder
	}
	return req
}

// uncommitted names some of what the run will not see. The project file is read
// where it lies, committed or not.
func uncommitted(r *localrepo.Repo, projectFile string) string {
	own := ""
	if abs, err := filepath.Abs(projectFile); err == nil {
		if target, err := filepath.EvalSymlinks(abs); err == nil {
			abs = target
		}
		own, _ = filepath.Rel(r.Path, abs) // none: it lies elsewhere
	}
	names := slices.DeleteFunc(slices.Clone(r.Changed), func(n string) bool {
		return n == own || strings.HasSuffix(n, "/") && strings.HasPrefix(own, n)
	})
	const enough = 3
	if more := len(names) - enough; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:enough], ", "), more)
	}
	return strings.Join(names, ", ")
}

// loadProject finds the project: the one named, else the file in the local
// repository that was named, else the one in the current folder.
func (o *runOptions) loadProject() (*projects.Project, error) {
	opts, err := projects.SystemOptions()
	if err != nil {
		return nil, err
	}
	if o.projectsDir != "" {
		opts.Folders = append([]string{o.projectsDir}, opts.Folders...)
	}
	ref := o.project
	if ref == "" && o.repo != "" {
		if t, err := projects.RepoTransport(o.repo); err == nil && t == projects.TransportLocal {
			in := filepath.Join(o.repo, projects.DefaultFile)
			if _, err := os.Stat(in); err == nil {
				if ref, err = filepath.Abs(in); err != nil {
					return nil, fmt.Errorf("find project file: %w", err)
				}
				o.foundInRepo = true
			}
		}
	}
	return projects.Load(ref, opts)
}
