package rootgit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/land"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/tree"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Repositories are the task's repository and its further ones, each with a lease, saves and a branch of its own. Methods
// that are not declared here are those of the task's repository. It implements boot.Repository.
type Repositories struct {
	*Repository
	others []*further
	lost   chan struct{} // closed when the lease of any is lost
}

// further is one of Order.Repos.
type further struct {
	*Repository
	is     workorder.RepoResult
	left   error // names the paths that could not be committed
	landed land.Result
}

// Open returns the repositories of an order; nothing is fetched yet.
func Open(log *slog.Logger, env *workorder.Envelope, c Config) *Repositories {
	rs := &Repositories{Repository: New(log, env, c)}
	if m := env.Order.Mode; m == workorder.ModeRebase || m == workorder.ModeStandalone {
		return rs
	}
	for i := range env.Order.Repos {
		r := &env.Order.Repos[i]
		its, space := c, *c.Space
		space.Dir, space.Adds = r.Dir(), true
		its.Space, its.Before, its.Name = &space, "", r.Name
		for _, dir := range []*string{&its.Out, &its.Git, &its.SSH} {
			*dir = filepath.Join(*dir, workorder.ReposDir, r.Name)
		}
		its.Emit = func(e workorder.Event) {
			if e.Name != "" { // a ref
				e.Name = r.Name + ":" + e.Name
			} else if e.Text != "" {
				e.Text = r.Name + ": " + e.Text
			}
			c.Emit(e)
		}
		rs.others = append(rs.others, &further{
			Repository: New(log, env.ForRepo(r), its), is: workorder.RepoResult{Name: r.Name, Repo: r.Repo},
		})
	}
	return rs
}

// Each calls do for each repository.
func (rs *Repositories) Each(do func(*Repository)) {
	do(rs.Repository)
	for _, o := range rs.others {
		do(o.Repository)
	}
}

// atOnce calls do for all repositories at once, with nil for the task's own, and returns all errors.
func (rs *Repositories) atOnce(do func(*Repository, *further) error) error {
	errs := make([]error, 1+len(rs.others))
	var all sync.WaitGroup
	for i, o := range rs.others {
		all.Go(func() { errs[1+i] = o.named(do(o.Repository, o)) })
	}
	errs[0] = do(rs.Repository, nil)
	all.Wait()
	return errors.Join(errs...)
}

// Resume takes over what Clone found in another process.
func (rs *Repositories) Resume(repos []workorder.RepoResult) {
	for _, o := range rs.others {
		for i := range repos {
			if repos[i].Name == o.is.Name {
				o.is = repos[i]
			}
		}
	}
}

// Authenticate prepares the credentials, before untrusted code runs.
func (rs *Repositories) Authenticate() error {
	err := rs.Repository.Authenticate()
	for _, o := range rs.others {
		err = errors.Join(err, o.named(o.Authenticate()))
	}
	return err
}

func (o *further) named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("repository %s: %w", o.is.Name, err)
}

// Clone clones the task's repository, and then the further ones into it.
func (rs *Repositories) Clone(ctx context.Context) (CloneResult, error) {
	c, err := rs.Repository.Clone(ctx)
	if err != nil {
		return c, err
	}
	for _, o := range rs.others {
		its, err := o.clone(ctx, rs.cfg.Space)
		if err != nil {
			return c, o.named(err)
		}
		c.Repos, c.Further = append(c.Repos, o.is), append(c.Further, its)
	}
	rs.watchLeases()
	return c, nil
}

// clone makes the work tree below that of the task's repository, which must ignore it.
func (o *further) clone(ctx context.Context, in *Workspace) (c CloneResult, err error) {
	// As the agent's user: a link of that name in the repository leads no further than that user may write.
	if err := in.feed(
		ctx, "mkdir -- "+text.Shell(o.is.Name)+" && mkdir -p .git/info && cat >>.git/info/exclude", "/"+o.is.Name+"/\n",
	); err != nil {
		return c, fmt.Errorf("make its directory in %s, which the repository there must not have itself: %w", in.Dir, err)
	}
	for _, dir := range []string{o.cfg.Git, filepath.Dir(filepath.Join(o.cfg.Out, workorder.ArchiveFile)), filepath.Dir(o.cfg.SSH)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return c, err
		}
	}
	if c, err = o.Clone(ctx); err != nil {
		return c, err
	}
	o.is.BaseBranch, o.is.BaseSHA, o.is.HeadSHA, o.is.Commits = c.Base, c.BaseSHA, c.Head, c.Commits
	if o.is.Pushed = c.Pushed && len(c.Commits) > 0; o.is.Pushed {
		o.is.Branch = o.env.Order.TargetBranch
	}
	return c, nil
}

// watchLeases closes lost when another box has taken one of the leases.
func (rs *Repositories) watchLeases() {
	if len(rs.others) == 0 {
		return
	}
	rs.lost = make(chan struct{})
	var once sync.Once
	rs.Each(func(r *Repository) {
		go func() {
			<-r.Lost()
			once.Do(func() { close(rs.lost) })
		}()
	})
}

// Lost returns a channel that is closed when another box holds one of the leases.
func (rs *Repositories) Lost() <-chan struct{} {
	if rs.lost != nil {
		return rs.lost
	}
	return rs.Repository.Lost()
}

// RecordSetupFiles records the files that setup left, which are not the agent's work.
func (rs *Repositories) RecordSetupFiles(ctx context.Context) (hidden []string, err error) {
	hidden, err = rs.Repository.RecordSetupFiles(ctx)
	for _, o := range rs.others {
		more, oerr := o.RecordSetupFiles(ctx)
		for _, p := range more {
			hidden = append(hidden, path.Join(o.is.Name, p))
		}
		err = errors.Join(err, o.named(oerr))
	}
	return hidden, err
}

// Save starts saving all.
func (rs *Repositories) Save() { rs.Each((*Repository).Save) }

// SaveNow saves at once.
func (rs *Repositories) SaveNow() { rs.Each((*Repository).SaveNow) }

// Push pushes all at once, and then new commits periodically.
func (rs *Repositories) Push(ctx context.Context, commitsOnly bool) {
	rs.Each(func(r *Repository) { r.Push(ctx, commitsOnly) })
}

// StopSaving ends the saves.
func (rs *Repositories) StopSaving(ctx context.Context) {
	_ = rs.atOnce(func(r *Repository, _ *further) error {
		r.StopSaving(ctx)
		return nil
	})
}

// AnnounceStop tells all that the box is being stopped.
func (rs *Repositories) AnnounceStop(files time.Duration) {
	rs.Each(func(r *Repository) { r.AnnounceStop(files) })
}

// Changed returns when one of the work trees was last seen to change.
func (rs *Repositories) Changed() (last time.Time) {
	rs.Each(func(r *Repository) {
		if at := r.Changed(); at.After(last) {
			last = at
		}
	})
	return last
}

// Commit commits what is uncommitted in all. What is left in further ones is archived by Land.
func (rs *Repositories) Commit(ctx context.Context) error {
	return rs.atOnce(func(r *Repository, o *further) error {
		err := r.Commit(ctx)
		if o == nil {
			return err
		}
		o.left = nil
		if _, partly := errors.AsType[*tree.UncommittedError](err); partly {
			o.left, err = err, nil
		}
		return err
	})
}

// Land lands the work of all.
func (rs *Repositories) Land(ctx context.Context, baseSHA string, end land.RecordAttempt) (l land.Result) {
	_ = rs.atOnce(func(r *Repository, o *further) error {
		if o == nil {
			l = r.Land(ctx, baseSHA, end)
		} else {
			o.landed = o.land(ctx, end)
		}
		return nil
	})
	for _, o := range rs.others {
		l.Add(o.is, o.landed)
	}
	return l
}

func (o *further) land(ctx context.Context, end land.RecordAttempt) land.Result {
	l := o.Land(ctx, o.is.BaseSHA, end)
	l.ArchiveLeftovers(ctx, o.left, o.Archive)
	for _, file := range []*string{&l.Bundle, &l.Archive} {
		if *file != "" {
			*file = path.Join(workorder.ReposDir, o.is.Name, *file)
		}
	}
	o.is.HeadSHA, o.is.Commits, o.is.Pushed, o.is.Branch = l.Head, l.Commits, l.Pushed, ""
	if l.Pushed {
		o.is.Branch = o.env.Order.TargetBranch
	}
	return l
}

// Release ends the saves and returns the leases.
func (rs *Repositories) Release(ctx context.Context, end workorder.Attempt) error {
	return rs.atOnce(func(r *Repository, o *further) error {
		its := end
		if o != nil {
			its.HeadSHA = o.is.HeadSHA
		}
		return r.Release(ctx, its)
	})
}

// Surface adds the findings in further repositories, with their directory before the path.
func (rs *Repositories) Surface(ctx context.Context, base, head string) (found []workorder.SurfaceFinding, err error) {
	if head != base {
		found, err = rs.Repository.Surface(ctx, base, head)
	}
	for _, o := range rs.others {
		if !o.is.Pushed {
			continue
		}
		more, oerr := o.Surface(ctx, o.is.BaseSHA, o.is.HeadSHA)
		for _, f := range more {
			f.Path = path.Join(o.is.Name, f.Path)
			found = append(found, f)
		}
		err = errors.Join(err, o.named(oerr))
	}
	return found, err
}

// Close ends the git gateways.
func (rs *Repositories) Close() { rs.Each((*Repository).Close) }
