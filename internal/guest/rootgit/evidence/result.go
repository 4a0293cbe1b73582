package evidence

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/sandbox-agent/sandbox-agent/internal/archive"
	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Result pushes the attempt's result, events and logs to a ref of the task. The result is always included, the other
// files as far as they fit, small logs first; left names the omitted ones. It does nothing without the lease. Call it
// once the result is written, before Release.
func (sd *Uploader) Result(ctx context.Context, root fs.FS) (left []string, err error) {
	if err := sd.Ledger.Load(); errors.Is(err, remote.ErrUnclaimed) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("keep the result: %w", err)
	}
	if _, lost := sd.Ledger.Fence.LostTo(); lost {
		return nil, nil
	}
	b := &fileSet{p: sd}
	result, err := fs.ReadFile(root, workorder.ResultFile)
	if err == nil {
		err = b.put(workorder.ResultFile, string(result))
	}
	if err != nil {
		return nil, fmt.Errorf("keep the result: %w", err)
	}
	if events, ok := zipped(root, workorder.EventsFile, b.space()); !ok {
		b.left = append(b.left, workorder.EventsFile)
	} else if err := b.put(workorder.EventsGzip, events); err != nil {
		return nil, fmt.Errorf("keep the events: %w", err)
	}
	for _, name := range logs(root) {
		if err := b.take(root, name); err != nil {
			return nil, fmt.Errorf("keep %s: %w", name, err)
		}
	}
	commit, err := b.commit(fmt.Sprintf("Result of task %s, attempt %d", sd.Repos.Order.TaskID, sd.Ledger.AttemptNumber()), "")
	if err != nil {
		return nil, fmt.Errorf("keep the result: %w", err)
	}
	return b.left, sd.sendResult(ctx, commit)
}

// sendResult moves the ref. The landing may have released the lease, so the ledger is refreshed while our attempt is
// the last one.
func (sd *Uploader) sendResult(ctx context.Context, commit string) error {
	ref := workorder.ResultRef(sd.Repos.Order.TaskID)
	_, err := sd.Send(ctx, []remote.Change{{Ref: ref, SHA: commit}}, false)
	if git.KindOf(err) == git.KindRejected {
		s, serr := sd.FetchState(ctx, "result")
		if serr != nil {
			return errors.Join(err, serr)
		}
		if s == nil || !sd.Ledger.IsOwn(s) {
			return nil // another box has begun: its result is the task's
		}
		refs, aerr := sd.Repos.ListRefs(ctx, "", ref)
		if aerr != nil {
			return errors.Join(err, aerr)
		}
		sd.Ledger.Refs[ref] = refs[ref]
		_, err = sd.Send(ctx, []remote.Change{{Ref: ref, SHA: commit}}, false)
	}
	if err != nil {
		return fmt.Errorf("push the result to %s: %w", sd.Repos.Order.Repo, err)
	}
	sd.Ledger.Refs[ref] = commit
	sd.Ledger.StoreBestEffort()
	return nil
}

// logs lists the files of the log directory, small ones first.
func logs(root fs.FS) (names []string) {
	size := map[string]int64{}
	_ = fs.WalkDir(root, workorder.LogsDir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // an unreadable file is skipped
		}
		if st, err := d.Info(); err == nil {
			size[name], names = st.Size(), append(names, name)
		}
		return nil
	})
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(size[a], size[b]), cmp.Compare(a, b)) })
	return names
}

func zipped(root fs.FS, name string, limit int) (content string, ok bool) {
	f, err := root.Open(name)
	if err != nil {
		return "", false
	}
	defer f.Close()
	var b bytes.Buffer
	z := gzip.NewWriter(&archive.LimitWriter{W: &b, Left: int64(limit)})
	if _, err := io.Copy(z, f); err != nil {
		return "", false
	}
	if err := z.Close(); err != nil {
		return "", false
	}
	return b.String(), true
}
