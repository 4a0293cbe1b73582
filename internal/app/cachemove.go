package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/host/cacheclient"
	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// CacheMove is the result of an export or import of setup caches.
type CacheMove struct {
	Images    []workorder.Image         `json:"images"` // once for each name
	Snapshots []workorder.CacheSnapshot `json:"snapshots"`
	Refused   []workorder.CacheSnapshot `json:"refused"` // with the reason
}

// CacheRepo returns the repository of setup caches: repo, or that of a project, as a task names it; "" if both are empty.
func (m Machine) CacheRepo(ctx context.Context, project, dir, repo string, box *CacheBox) (string, error) {
	if repo == "" && project != "" {
		p, err := m.CacheProject(ctx, project, dir, box, false)
		if err != nil {
			return "", err
		}
		if repo = p.Repo; repo == "" {
			return "", exiterr.New(workorder.ExitUsage, fmt.Errorf("project %s names no repository", p.Name), "give its repository: --repo REPO")
		}
	}
	if t, err := git.RepoTransport(repo); repo == "" || err == nil && t != git.TransportLocal {
		return repo, nil
	}
	local, err := localrepo.Open(ctx, repo)
	if err != nil {
		return "", err
	}
	return local.Path, nil
}

// ExportCache writes the setup caches of a repository, or all if repo is "", and the images that they were made with.
func (m Machine) ExportCache(
	ctx context.Context, box CacheBox, repo string, w io.Writer, show func(workorder.Event),
) (r *CacheMove, err error) {
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = interrupted(ctx, "export", "run it again: an archive is written only when it is whole")
		}
	}()
	rep, err := m.KeepCache(ctx, box, workorder.CacheList, workorder.CacheRequest{}, nil, show)
	if err != nil {
		return nil, err
	}
	be, err := m.Engine()
	if err != nil {
		return nil, err
	}
	info, err := be.Engine.Info(ctx)
	if err != nil {
		return nil, err
	}
	r = &CacheMove{Images: []workorder.Image{}, Refused: []workorder.CacheSnapshot{}}
	var ids []string
	lineages := map[string][]workorder.Image{}
	for _, s := range rep.Snapshots {
		if repo != "" && s.Project != repo {
			continue
		}
		lineage, known := lineages[s.Image]
		if !known && s.Image != "" {
			if lineage, err = be.Images.Lineage(ctx, s.Image); err != nil {
				return nil, err
			}
			lineages[s.Image] = lineage
			r.Images = append(r.Images, lineage...)
		}
		if len(lineage) == 0 {
			s.Problem = "new sandboxes do not use its image"
			r.Refused = append(r.Refused, s)
			continue
		}
		r.Snapshots, ids = append(r.Snapshots, s), append(ids, s.ID)
	}
	if len(ids) == 0 {
		return r, exiterr.New(workorder.ExitNotFound, errors.New("no setup cache to export"),
			"list setup caches with: sandbox-agent cache ls; a task's setup makes one")
	}
	slices.SortFunc(r.Images, func(x, y workorder.Image) int { return strings.Compare(x.Name+x.ID, y.Name+y.ID) })
	r.Images = slices.Compact(r.Images)
	var names []string
	for _, i := range r.Images {
		names = append(names, i.Name)
	}
	step(show, "images", fmt.Sprintf("saving %d", len(names)))
	images, err := be.Images.Save(ctx, names)
	if err != nil {
		return nil, err
	}
	defer images.Close()
	manifest := cacheclient.Manifest{Arch: info.Arch, Images: r.Images, Snapshots: r.Snapshots}
	err = cacheclient.WriteArchive(w, manifest, images, func(w io.Writer) error {
		step(show, "setup caches", fmt.Sprintf("exporting %d", len(ids)))
		rep, err := m.cache(ctx, box, workorder.CacheExport, workorder.CacheRequest{Snapshots: ids}, nil, w, show)
		if err == nil {
			r.Snapshots = rep.Moved
		}
		return err
	})
	return r, err
}

// ImportCache adds the setup caches of an archive, and the images that they need. repo, if set, replaces their repository. The
// result has all that were refused, even with an error.
func (m Machine) ImportCache(ctx context.Context, box CacheBox, repo string, in io.Reader, show func(workorder.Event)) (*CacheMove, error) {
	a, err := cacheclient.OpenArchive(in)
	if err != nil {
		return nil, exiterr.New(workorder.ExitInvalid, err, "")
	}
	be, err := m.Engine()
	if err != nil {
		return nil, err
	}
	info, err := be.Engine.Info(ctx)
	if err != nil {
		return nil, err
	}
	if info.Arch != a.Arch {
		return nil, exiterr.New(workorder.ExitInvalid, fmt.Errorf("its images are for %s, and this engine runs %s", a.Arch, info.Arch), "")
	}
	for _, s := range a.Snapshots {
		if repo != "" && s.Project != a.Snapshots[0].Project {
			return nil, Usagef("the archive has setup caches of several repositories: leave out --repo")
		}
	}
	if err := m.loadImages(ctx, be, a, show); ctx.Err() != nil {
		return nil, interrupted(ctx, "import", importAgain)
	} else if err != nil {
		return nil, err
	}
	r := &CacheMove{Images: a.Images, Snapshots: []workorder.CacheSnapshot{}, Refused: []workorder.CacheSnapshot{}}
	err = a.ReadSetup(func(tar io.Reader) error {
		step(show, "setup caches", fmt.Sprintf("importing %d", len(a.Snapshots)))
		rep, err := m.KeepCache(ctx, box, workorder.CacheImport, workorder.CacheRequest{Repo: repo}, tar, show)
		if rep != nil {
			r.Snapshots, r.Refused = append(r.Snapshots, rep.Moved...), append(r.Refused, rep.Refused...)
		}
		return err
	})
	if ctx.Err() != nil {
		_ = a.Close()
		return r, interrupted(ctx, "import", importAgain)
	}
	if err = errors.Join(err, a.Close()); ExitCode(err) == workorder.ExitGeneral {
		err = exiterr.New(workorder.ExitInvalid, err, "")
	}
	for _, s := range a.Snapshots {
		same := func(o workorder.CacheSnapshot) bool { return o.ID == s.ID }
		if !slices.ContainsFunc(r.Snapshots, same) && !slices.ContainsFunc(r.Refused, same) {
			s.Problem = "it is missing in the archive"
			r.Refused = append(r.Refused, s)
		}
	}
	if len(r.Refused) > 0 && err == nil {
		all := len(r.Refused) + len(r.Snapshots)
		err = exiterr.New(workorder.ExitInvalid, fmt.Errorf("%d of %d setup caches were refused", len(r.Refused), all), "")
	}
	return r, err
}

const importAgain = "run it again: what was imported stays"

func interrupted(ctx context.Context, what, next string) error {
	return exiterr.New(workorder.ExitInterrupted, fmt.Errorf("%s interrupted: %w", what, context.Cause(ctx)), next)
}

// step reports progress.
func step(show func(workorder.Event), name, text string) {
	if show != nil {
		show(workorder.Event{Time: time.Now(), Type: workorder.EventService, Name: name, Status: text})
	}
}

// loadImages loads an archive's images unless the engine has all of them.
func (m Machine) loadImages(ctx context.Context, be *Backend, a *cacheclient.Archive, show func(workorder.Event)) error {
	var outdated []error
	missing := false
	for _, i := range a.Images {
		old, err := be.Images.Outdated(ctx, i.Name)
		if err != nil {
			return err
		}
		if old {
			outdated = append(outdated, fmt.Errorf("image %s is not that of this program's version", i.Name))
		}
		has, err := be.Images.Find(ctx, i.Name)
		if err != nil {
			return err
		}
		missing = missing || has != i.ID
		if has != i.ID && has != "" {
			m.Warn(fmt.Sprintf("image %s is replaced: setup caches made with the previous one are no longer used", i.Name))
		}
	}
	if len(outdated) > 0 {
		return exiterr.New(workorder.ExitInvalid, errors.Join(outdated...), "install the same version of this program on both machines")
	}
	if !missing {
		step(show, "images", "there already")
		return exiterr.New(workorder.ExitInvalid, a.SkipImages(), "")
	}
	step(show, "images", fmt.Sprintf("loading %d", len(a.Images)))
	if err := a.ReadImages(func(tar io.Reader) error { return be.Images.Load(ctx, tar) }); err != nil {
		return errors.Join(context.Cause(ctx), exiterr.New(workorder.ExitInvalid, err, ""))
	}
	for _, i := range a.Images {
		if has, err := be.Images.Find(ctx, i.Name); err != nil || has != i.ID {
			return errors.Join(exiterr.New(workorder.ExitBox, fmt.Errorf("image %s has another id on this engine", i.Name),
				"use engines with the same kind of image store on both machines"), err)
		}
	}
	return nil
}
