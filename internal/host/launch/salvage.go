package launch

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/salvage"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
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

// archived reports whether the box left an archive of uncommitted files.
func archived(rec *taskstore.Record) bool {
	_, err := os.Stat(filepath.Join(rec.Dir, filepath.FromSlash(workorder.ArchiveFile)))
	return err == nil
}
