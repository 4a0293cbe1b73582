package setupcache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/cachevolume"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Maintainer maintains the snapshots of a volume, in a standalone box. It works while boxes run.
type Maintainer struct {
	Dir string // mount point of the volume
	Log *slog.Logger
	Now func() time.Time // nil for time.Now
}

// with calls do with all snapshots, under the lock. It does nothing for a volume without any.
func (u *Maintainer) with(ctx context.Context, do func(entries) error) error {
	base := filepath.Join(u.Dir, format)
	if _, err := os.Lstat(base); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	f := &cachevolume.Dir{Base: base, Grace: grace, Log: u.Log}
	if err := f.Open("kept"); err != nil {
		return fmt.Errorf("snapshots: %w", err)
	}
	if err := f.Exclusive(ctx, func() error { return do(entries{f}) }); err != nil {
		return fmt.Errorf("snapshots: %w", err)
	}
	return nil
}

// List adds the snapshots to a report.
func (u *Maintainer) List(ctx context.Context, r *workorder.CacheReport) error {
	var dirs []string
	err := u.with(ctx, func(s entries) error {
		used, err := s.used()
		if err != nil {
			return err
		}
		return s.each(func(dir string, all []Meta) error {
			for _, m := range all {
				one := m.report(dir)
				one.Used = used[m.ID]
				r.Snapshots, dirs = append(r.Snapshots, one), append(dirs, filepath.Join(dir, m.ID))
			}
			return nil
		})
	})
	for i, dir := range dirs { // without the lock, so that no box has to wait
		var uerr error
		r.Snapshots[i].Bytes, uerr = cachevolume.Usage(ctx, dir)
		err = errors.Join(err, uerr)
	}
	return err
}

func (m *Meta) report(dir string) workorder.CacheSnapshot {
	one := workorder.CacheSnapshot{ID: m.ID, Project: m.Project, MadeAt: m.Made, UsedAt: m.Made, Below: m.depth() - 1, Image: m.Image}
	if fi, err := os.Stat(filepath.Join(dir, m.ID)); err == nil {
		one.UsedAt = fi.ModTime().UTC()
	}
	return one
}

// Prune removes snapshots that no box used for olderThan, and leftovers of dead boxes, and reports them; dryRun only reports.
func (u *Maintainer) Prune(ctx context.Context, r *workorder.CacheReport, olderThan time.Duration, dryRun bool) error {
	now := time.Now()
	if u.Now != nil {
		now = u.Now()
	}
	var trash *os.Root
	var cacheDir *cachevolume.Dir
	var gone []removed
	var dead []string
	err := u.with(ctx, func(s entries) (err error) {
		keep := func(_ int, used time.Time) bool { return olderThan > 0 && now.Sub(used) < olderThan }
		if gone, err = s.prune(keep, dryRun); err != nil {
			return err
		}
		if dryRun {
			dead, err = s.dir.Dead()
			return err
		}
		cacheDir = s.dir
		if _, err = s.dir.Reap(); err != nil {
			return err
		}
		trash, err = s.dir.Trash()
		return err
	})
	for _, g := range gone {
		one := g.report(filepath.Dir(g.dir))
		if dryRun {
			one.Bytes, _ = cachevolume.Usage(ctx, g.dir) // entries that disappear meanwhile count as zero
			r.FreedBytes += one.Bytes
		}
		r.RemovedSnapshots = append(r.RemovedSnapshots, one)
	}
	freed, uerr := cachevolume.Usage(ctx, dead...)
	r.FreedBytes += freed
	if trash != nil {
		freed, terr := cachevolume.Usage(ctx, cacheDir.Path("trash"))
		r.FreedBytes += freed
		err = errors.Join(err, terr)
		cacheDir.EmptyTrash(trash)
	}
	return errors.Join(err, uerr)
}
