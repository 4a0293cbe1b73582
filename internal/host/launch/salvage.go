package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/outcome"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/salvage"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// salvage copies work out of a stopped box that its result reports as still there. With all, it copies every commit, since a
// killed box leaves no result. After an error the box still has the only copy.
func (c collector) salvage(
	ctx context.Context, rec *taskstore.Record, res *workorder.Result, box string, all bool,
) (said []string, err error) {
	left := res.Reasons.Has(workorder.ReasonLeft)
	bundle := filepath.Join(rec.Dir, workorder.BundleFile)
	if _, err := os.Stat(bundle); err != nil && (left || all) && rec.TargetBranch != "" {
		w := salvage.Work{Branch: rec.TargetBranch, Base: res.BaseBranch, Known: []string{res.BaseSHA}}
		if left {
			w.Head = res.HeadSHA
		} else if res.Pushed {
			w.Known = append(w.Known, res.HeadSHA)
		}
		switch head, err := salvage.Commits(ctx, runtime.CopierOf(c.Engine), box, w, bundle); {
		case errors.Is(err, salvage.ErrNoWork) && !left:
		case err != nil && archived(rec):
			said = append(said, err.Error()) // its objects are damaged; the archive has all of its files
		case err != nil:
			return nil, err
		default:
			for i := range res.Reasons {
				if r := &res.Reasons[i]; r.Code == workorder.ReasonLeft {
					r.Code = workorder.ReasonPush // as if the box had made the bundle
				}
			}
			res.HeadSHA, res.Pushed = head, false // part of it is not on the remote
			said = append(said, "the sandbox had no time to push or bundle its last commits: they were copied out of the stopped sandbox")
		}
	}
	if left || all || res.Uncommitted {
		more, err := c.salvageFurther(ctx, rec, res, box)
		if said = append(said, more...); err != nil {
			return said, err
		}
	}
	archive := filepath.Join(rec.Dir, filepath.FromSlash(workorder.ArchiveFile))
	if res.Uncommitted && !archived(rec) {
		if err := salvage.Files(ctx, runtime.CopierOf(c.Engine), box, archive); errors.Is(err, salvage.ErrNoWork) {
			return append(said, "the sandbox's working tree is missing"), nil
		} else if err != nil {
			return said, err
		}
		res.Evidence = append(res.Evidence, workorder.Evidence{
			Name: "files that could not be committed", Path: workorder.ArchiveFile,
			Kind: "tar+gzip",
		})
		said = append(said, "files that could not be committed were copied out of the stopped sandbox: "+
			"they are in "+workorder.ArchiveFile)
	}
	return said, nil
}

// salvageFurther copies the commits in further repositories that are not on their remotes.
func (c collector) salvageFurther(
	ctx context.Context, rec *taskstore.Record, res *workorder.Result, box string,
) (said []string, err error) {
	order, err := outcome.ReadOrder(rec.Dir)
	if err != nil {
		return nil, nil // the box never had one
	}
	for i := range order.Repos {
		r := &order.Repos[i]
		to := filepath.Join(rec.Dir, workorder.ReposDir, r.Name, workorder.BundleFile)
		if _, err := os.Stat(to); err == nil {
			continue
		}
		w := salvage.Work{Dir: r.Dir(), Branch: rec.TargetBranch}
		for _, is := range res.Repos {
			if is.Name == r.Name {
				w.Base, w.Known = is.BaseBranch, []string{is.BaseSHA}
				if is.Pushed {
					w.Known = append(w.Known, is.HeadSHA)
				}
			}
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return said, err
		}
		switch _, err := salvage.Commits(ctx, runtime.CopierOf(c.Engine), box, w, to); {
		case errors.Is(err, salvage.ErrNoWork):
		case err != nil:
			return said, fmt.Errorf("repository %s: %w", r.Name, err)
		default:
			said = append(said, "the commits of "+r.Name+", which may not all be pushed, were copied out of the stopped sandbox: "+
				text.Shell("git", "fetch", to, rec.TargetBranch)+" brings them into a clone, and the next attempt gets them")
		}
	}
	return said, nil
}

// archived reports whether the box left an archive of uncommitted files.
func archived(rec *taskstore.Record) bool {
	_, err := os.Stat(filepath.Join(rec.Dir, filepath.FromSlash(workorder.ArchiveFile)))
	return err == nil
}
