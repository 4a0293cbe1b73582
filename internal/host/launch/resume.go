package launch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Resume carries out the job as the next attempt of a task whose last one is
// collected. The caller holds the task's lock until it returns. It ends as Run does, but for
// one thing: where engine or remote cannot do it there is no attempt, and the output
// stays that of the last one.
func (l *Launcher) Resume(ctx context.Context, hard <-chan struct{}, job *Job, last *store.Record) (*workorder.Result, error) {
	job.Order.Ended = nil
	for _, a := range last.Attempts() {
		if workorder.ValidAttemptID(a.ID) && !a.Unsure {
			job.Order.Ended = append(job.Order.Ended, a.ID)
		}
	}
	if err := checkOrder(job); err != nil {
		return nil, err
	}
	next := l.newRecord(job)
	next.Task, next.Dir = cmp.Or(last.Task, next.Task), last.Dir
	var early []workorder.Event
	looking := *l
	looking.Show = func(e workorder.Event) {
		early = append(early, e) // recorded when there is an attempt that they belong to
		l.show(e)
	}
	looking.announce(job, next)
	info, err := looking.ground(ctx, job, next)
	if ctx.Err() != nil {
		err = fault.New(workorder.ExitInterrupted, errors.New("you interrupted it before its box was started"), "")
	}
	if err != nil {
		return nil, err
	}
	if err := l.Store.NextAttempt(last, next); err != nil {
		return nil, err
	}
	for _, e := range early {
		if err := note(next.Dir, e); err != nil {
			l.Log.Debug("record an event of the host", "task", next.TaskID, "error", err)
		}
	}
	l = l.noting(next)
	if job.bundle, err = lastBundle(next); err == nil {
		job.archive, err = lastArchive(next)
	}
	if err != nil {
		return l.stillborn(ctx, next, err)
	}
	job.Order.Bundle, job.Order.Archive = job.bundle != "", job.archive != ""
	if err := l.saveOrder(next, &job.Order); err != nil {
		return l.stillborn(ctx, next, err)
	}
	return l.carryOut(ctx, hard, job, next, info)
}

// lastBundle is the newest file of commits that an attempt could not push; "":
// there is none, or a later attempt has pushed, with what was in it or in its place. The
// box finds out whether they have reached the remote since.
func lastBundle(rec *store.Record) (string, error) {
	return unsaved(rec, workorder.BundleFile, func(past *store.Record) bool {
		res, err := ReadResult(past)
		return err == nil && res.Pushed
	})
}

// lastArchive is the newest archive of files that git could not take; "": there is
// none, or a later attempt was given it and has saved something since: what became of
// the files is part of that. An attempt that ended before its agent began has saved nothing.
func lastArchive(rec *store.Record) (string, error) {
	return unsaved(rec, workorder.ArchiveFile, func(past *store.Record) bool {
		o, err := readOrder(past.Dir)
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

// unsaved is the newest file of that name among what former attempts left; "": there
// is none, or a later attempt has made it obsolete.
func unsaved(rec *store.Record, name string, obsolete func(past *store.Record) bool) (string, error) {
	for _, a := range slices.Backward(rec.Former) {
		past, err := rec.At(a.Number)
		if err != nil {
			return "", err
		}
		path := filepath.Join(past.Dir, filepath.FromSlash(name))
		// A box can leave a folder of that name, and no box could be given that.
		switch fi, err := os.Lstat(path); {
		case err == nil && fi.Mode().IsRegular():
			return path, nil
		case err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR):
			return "", fmt.Errorf("look for work that was not pushed: %w", err)
		}
		if obsolete(past) {
			return "", nil
		}
	}
	return "", nil
}

// Spent is what attempts of the task are known to have cost, in US dollars, by
// their ids. One that vanished counts with what it had told by then.
func Spent(rec *store.Record) map[string]float64 {
	usd := map[string]float64{}
	for _, a := range rec.Attempts() {
		past, err := rec.At(a.Number)
		if err != nil || !workorder.ValidAttemptID(a.ID) {
			continue
		}
		// An output that is gone, or a cost below zero, says nothing.
		if res, err := ReadResult(past); err == nil && res.Usage.CostUSD != nil && *res.Usage.CostUSD > 0 {
			usd[a.ID] = *res.Usage.CostUSD
		}
	}
	return usd
}

// TaskText is the task as it was first given: later attempts are given none, or
// an addition.
func TaskText(rec *store.Record) (string, error) {
	for _, a := range rec.Attempts() {
		past, err := rec.At(a.Number)
		if err != nil {
			return "", err
		}
		o, err := readOrder(past.Dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // that run did not get so far
		}
		if err != nil {
			return "", err
		}
		if o.Task != "" {
			return o.Task, nil
		}
	}
	return "", errors.New("no attempt has left its work order")
}

// readOrder reads the order that lies beside an output. It is not checked again:
// one that was never sent is not whole.
func readOrder(dir string) (*workorder.Order, error) {
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
