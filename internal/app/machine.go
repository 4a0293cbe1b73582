package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/image"
	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/artifact"
	"github.com/sandbox-agent/sandbox-agent/internal/host/cacheclient"
	"github.com/sandbox-agent/sandbox-agent/internal/host/doctor"
	"github.com/sandbox-agent/sandbox-agent/internal/host/gc"
	"github.com/sandbox-agent/sandbox-agent/internal/host/provision"
	"github.com/sandbox-agent/sandbox-agent/internal/host/resolve"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Machine checks this machine, and cleans up what the program keeps on it.
type Machine struct{ *Env }

// Machine returns the use cases of this machine.
func (e *Env) Machine() Machine { return Machine{e} }

// GarbageOptions choose what CollectGarbage removes.
type GarbageOptions struct{ DryRun, Images, Cache, Force bool }

// CollectGarbage collects finished tasks and removes what killed programs left. The actions are nil if it could not look.
func (m Machine) CollectGarbage(ctx context.Context, o GarbageOptions) ([]runtime.GCAction, error) {
	st, err := m.Store()
	if err != nil {
		return nil, err
	}
	be, err := m.Engine()
	if err != nil {
		return nil, err
	}
	collect := (&attemptRunner{t: &Tasks{Env: m.Env}, st: st, be: be}).Collect
	sweep := &gc.Collector{Store: st, Engine: be.Engine, DryRun: o.DryRun, Collect: collect}
	sweep.Volumes, _ = be.Engine.(runtime.Volumes)
	if o.Images {
		sweep.Images = be.Images
	}
	if o.Cache {
		sweep.Cache = m.CacheVolume()
	}
	done, err := sweep.Run(ctx)
	if ctx.Err() == nil {
		more, rerr := removeRoots(ctx, st.Dir(), o.DryRun)
		done, err = append(done, more...), errors.Join(err, rerr)
	}
	if m.OpenSandboxes == nil || ctx.Err() != nil {
		return done, err
	}
	more, cerr := m.collectSandboxes(ctx, o)
	return append(done, more...), errors.Join(err, SandboxError(cerr))
}

// collectSandboxes removes what is left of standalone sandboxes.
func (m Machine) collectSandboxes(ctx context.Context, o GarbageOptions) ([]runtime.GCAction, error) {
	boxes, err := m.Manager(false)
	if err != nil {
		return nil, err
	}
	defer boxes.Close()
	return boxes.GC(ctx, sandbox.GCOptions{DryRun: o.DryRun, Force: o.Force})
}

// removeRoots removes directories of programs to which no artifact links.
func removeRoots(ctx context.Context, state string, dryRun bool) (actions []runtime.GCAction, err error) {
	unused, err := artifact.Unused(state)
	for _, root := range unused {
		if !dryRun {
			if rerr := artifact.RemoveUnused(ctx, root); rerr != nil {
				err = errors.Join(err, rerr)
				continue
			}
		}
		actions = append(actions, runtime.GCAction{Action: runtime.GCRemoveRoot, Target: root})
	}
	return actions, err
}

// CheckFailed is the status of a failed check of Check.
const CheckFailed = doctor.Fail

// Check checks what this machine can do.
func (m Machine) Check(ctx context.Context) ([]doctor.Check, error) {
	st, err := m.Store()
	if err != nil {
		return nil, err
	}
	own, err := st.Owner(false)
	if err != nil {
		return nil, err
	}
	d := doctor.Doctor{StateDir: st.Dir(), Owner: own.ID}
	if be, err := m.Engine(); err != nil {
		d.OpenError = err
	} else {
		d.Engine = be.Engine
		d.Images = func(ctx context.Context) ([]string, error) {
			list, err := be.Images.List(ctx)
			return taskImages(list), err
		}
	}
	return d.Run(ctx), nil
}

// AllParts and NoParts alone select all and none of the parts of the default image.
const (
	AllParts = "all"
	NoParts  = "none"
)

// BuildImage builds the default image with these parts if it is missing, or with rebuild again and without the cache. nil parts are
// those of the project here, and an image with more will do. show receives the events.
func (m Machine) BuildImage(ctx context.Context, parts []string, rebuild bool, show func(workorder.Event)) (workorder.Image, error) {
	be, err := m.Engine()
	if err == nil {
		_, err = be.Engine.Info(ctx) // an engine that does not answer is reported before the build begins
	}
	if err != nil {
		return workorder.Image{}, err
	}
	exact := parts != nil
	switch {
	case slices.Equal(parts, []string{AllParts}):
		parts = image.Parts()
	case slices.Equal(parts, []string{NoParts}):
		parts = nil
	case parts == nil:
		if parts, err = m.parts(ctx); err != nil {
			return workorder.Image{}, err
		}
	}
	return be.Images.Build(ctx, parts, exact, rebuild, show)
}

// parts returns the parts of the image that tasks of the current directory's project need, or those of any project if there is none.
func (m Machine) parts(ctx context.Context) ([]string, error) {
	flags, err := TaskSettings(nil, m.Getenv)
	if err != nil {
		return nil, err
	}
	flags.DryRun = true
	g, err := m.Resolver(false).Find(ctx, &flags)
	switch {
	case err == nil:
		return g.Project.Spec().Parts, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case exiterr.Code(err) != workorder.ExitNoProject:
		m.Say(fmt.Sprintf("note: the image is not that of the project here: %v", err))
	}
	return workorder.Parts(false, false, cmp.Or(flags.Values["harness"], workorder.HarnessClaudeCode)), nil
}

// Images returns the images that this program built.
func (m Machine) Images(ctx context.Context) ([]provision.BuiltImage, error) {
	be, err := m.Engine()
	if err != nil {
		return nil, err
	}
	return be.Images.List(ctx)
}

// taskImages are the names of images that a task's sandbox would be made of. Other images are current, too: the small one
// does not have what a task needs.
func taskImages(list []provision.BuiltImage) (names []string) {
	for _, i := range list {
		for _, tag := range i.Tags {
			if i.Current && strings.HasPrefix(tag, provision.Repository+":") {
				names = append(names, tag)
			}
		}
	}
	return names
}

// CacheBox shapes the sandbox that works on the cache.
type CacheBox struct{ Image, Isolation, OCIRuntime string }

// CacheProject finds a project whose images are cached. Its settings also hold for the cache's box, so that the layers fit its
// runs. If ask is set and there is a person, it asks them for trust.
func (m Machine) CacheProject(ctx context.Context, project, dir string, box *CacheBox, ask bool) (*projects.Project, error) {
	s := &TaskFlags{Project: project, ProjectsDir: dir, Values: map[string]string{}}
	for flag, value := range map[string]string{"image": box.Image, "isolation": box.Isolation, "oci-runtime": box.OCIRuntime} {
		if value != "" {
			s.Values[flag] = value
		}
	}
	p, err := resolve.Load(s)
	if err != nil {
		return nil, err
	}
	if err := m.Resolver(ask).TrustBox(ctx, s, p); err != nil {
		return nil, err
	}
	*box = CacheBox{cmp.Or(box.Image, p.Image), cmp.Or(box.Isolation, p.Isolation), cmp.Or(box.OCIRuntime, p.OCIRuntime)}
	return p, nil
}

// KeepCache carries out one request on the cache that sandboxes share. archive is nil except for CacheLoad. show, if not
// nil, receives events of the work.
func (m Machine) KeepCache(
	ctx context.Context, box CacheBox, verb string, req workorder.CacheRequest, archive io.Reader, show func(workorder.Event),
) (*workorder.CacheReport, error) {
	return m.cache(ctx, box, verb, req, archive, nil, show)
}

// cache is KeepCache. out receives the data of an export.
func (m Machine) cache(ctx context.Context, box CacheBox, verb string, req workorder.CacheRequest, archive io.Reader, out io.Writer,
	show func(workorder.Event),
) (*workorder.CacheReport, error) {
	isolation := cmp.Or(box.Isolation, workorder.IsolationConfined)
	if !slices.Contains([]string{workorder.IsolationConfined, workorder.IsolationPrivileged}, isolation) {
		return nil, Usagef("isolation %q unknown: use %s or %s", isolation, workorder.IsolationConfined, workorder.IsolationPrivileged)
	}
	st, err := m.Store()
	if err != nil {
		return nil, err
	}
	own, err := st.Owner(true)
	if err != nil {
		return nil, err
	}
	be, err := m.Engine()
	if err != nil {
		return nil, err
	}
	c := &cacheclient.Client{
		Engine: be.Engine, Images: be.Images, Owner: own.ID, Dir: st.Dir(), Log: m.Log(), Show: show,
		Image: box.Image, Isolation: isolation, OCIRuntime: box.OCIRuntime, CacheVolume: m.CacheVolume(),
	}
	return c.Do(ctx, m.Hard, verb, req, archive, out)
}
