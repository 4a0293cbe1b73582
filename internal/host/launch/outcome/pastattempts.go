package outcome

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// LastBundle returns the newest bundle of commits that an attempt could not push. It is empty if there is none, or if a later
// attempt has pushed these commits or their replacements. The box checks whether the remote has the commits by now.
func LastBundle(rec *taskstore.Record) (string, error) {
	return unsaved(rec, workorder.BundleFile, func(past *taskstore.Record) bool {
		res, err := ReadResult(past)
		return err == nil && res.Pushed
	})
}

// LastArchive returns the newest archive of files that git could not commit. It is empty if there is none, or if a later attempt
// received it and has saved something: its saves include the files. An attempt saves nothing before its agent begins.
func LastArchive(rec *taskstore.Record) (string, error) {
	return unsaved(rec, workorder.ArchiveFile, func(past *taskstore.Record) bool {
		o, err := ReadOrder(past.Dir)
		if err != nil || !o.Archive {
			return false
		}
		res, err := ReadResult(past)
		if err != nil || !res.Reached(workorder.StepAgent) {
			return false
		}
		_, err = os.Stat(filepath.Join(past.Dir, workorder.BundleFile))
		return err == nil || res.Pushed || res.Checkpoint != nil
	})
}

// FurtherRepos returns the further repositories that attempts at the task had, by their names at the last of them.
func FurtherRepos(rec *taskstore.Record) (all []workorder.OrderRepo) {
	for _, a := range slices.Backward(rec.Attempts()) {
		past, err := rec.At(a.Number)
		if err != nil {
			continue
		}
		o, err := ReadOrder(past.Dir)
		if err != nil {
			continue // that attempt wrote no order
		}
		for _, r := range o.Repos {
			if !slices.ContainsFunc(all, func(known workorder.OrderRepo) bool { return known.Name == r.Name || known.Repo == r.Repo }) {
				all = append(all, r)
			}
		}
	}
	return all
}

// KnownRepos gives a result what the last attempt that worked on further repositories knew of those it has not.
func KnownRepos(rec *taskstore.Record, res *workorder.Result) {
	for _, a := range slices.Backward(rec.PastAttempts) {
		past, err := rec.At(a.Number)
		if err != nil {
			continue
		}
		was, err := ReadResult(past)
		if err != nil {
			continue
		}
		for _, r := range was.Repos {
			if !slices.ContainsFunc(res.Repos, func(is workorder.RepoResult) bool { return is.Name == r.Name }) {
				res.Repos = append(res.Repos, r)
			}
		}
	}
}

// LastOf is LastBundle or LastArchive, by the file's name, for a further repository.
func LastOf(rec *taskstore.Record, repo, file string) (string, error) {
	return unsaved(rec, path.Join(workorder.ReposDir, repo, file), func(past *taskstore.Record) bool {
		res, err := ReadResult(past)
		if err != nil {
			return false
		}
		i := slices.IndexFunc(res.Repos, func(r workorder.RepoResult) bool { return r.Name == repo })
		return i >= 0 && res.Repos[i].Pushed || file == workorder.ArchiveFile && res.Reached(workorder.StepAgent)
	})
}

// unsaved returns the newest file of that name from previous attempts. It is empty if there is none, or if a later attempt made
// it obsolete.
func unsaved(rec *taskstore.Record, name string, obsolete func(past *taskstore.Record) bool) (string, error) {
	for _, a := range slices.Backward(rec.PastAttempts) {
		past, err := rec.At(a.Number)
		if err != nil {
			return "", err
		}
		at := filepath.Join(past.Dir, filepath.FromSlash(name))
		// The box may have left a directory of that name.
		switch fi, err := os.Lstat(at); {
		case err == nil && fi.Mode().IsRegular():
			return at, nil
		case err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR):
			return "", fmt.Errorf("look for work that was not pushed: %w", err)
		}
		if obsolete(past) {
			return "", nil
		}
	}
	return "", nil
}

// Spent returns the known cost of the task's attempts in US dollars, by attempt id. A vanished attempt counts with its last
// reported cost.
func Spent(rec *taskstore.Record) map[string]float64 {
	usd := map[string]float64{}
	for _, a := range rec.Attempts() {
		past, err := rec.At(a.Number)
		if err != nil || !workorder.ValidAttemptID(a.ID) {
			continue
		}
		// A missing output or a negative cost is skipped.
		if res, err := ReadResult(past); err == nil && res.Usage.CostUSD != nil && *res.Usage.CostUSD > 0 {
			usd[a.ID] = *res.Usage.CostUSD
		}
	}
	return usd
}

// TaskText returns the text with which the task began: later attempts have none, or an addition.
func TaskText(rec *taskstore.Record) (string, error) {
	for _, a := range rec.Attempts() {
		past, err := rec.At(a.Number)
		if err != nil {
			return "", err
		}
		o, err := ReadOrder(past.Dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // that attempt wrote no order
		}
		if err != nil {
			return "", err
		}
		if o.Task != "" {
			return o.Task, nil
		}
	}
	return "", errors.New("work order missing in all attempts")
}

// ReadOrder reads the order beside an output without validating it: one that was never sent is incomplete.
func ReadOrder(dir string) (*workorder.Order, error) {
	b, err := os.ReadFile(filepath.Join(dir, workorder.OrderFile))
	if err != nil {
		return nil, fmt.Errorf("read the work order: %w", err)
	}
	var o workorder.Order
	if err := json.Unmarshal(b, &o); err != nil {
		return nil, fmt.Errorf("read the work order: %w", err)
	}
	return &o, nil
}
