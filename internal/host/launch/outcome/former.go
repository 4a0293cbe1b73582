package outcome

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// LastBundle is the newest file of commits that an attempt could not push; "":
// there is none, or a later attempt has pushed, with what was in it or in its place. The
// box finds out whether they have reached the remote since.
func LastBundle(rec *store.Record) (string, error) {
	return unsaved(rec, workorder.BundleFile, func(past *store.Record) bool {
		res, err := ReadResult(past)
		return err == nil && res.Pushed
	})
}

// LastArchive is the newest archive of files that git could not take; "" means there is
// none, or a later attempt was given it and has saved something since: what became of
// the files is part of that. An attempt that ended before its agent began has saved nothing.
func LastArchive(rec *store.Record) (string, error) {
	return unsaved(rec, workorder.ArchiveFile, func(past *store.Record) bool {
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

// unsaved is the newest file of that name among what former attempts left; "" means there
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
		o, err := ReadOrder(past.Dir)
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

// ReadOrder reads the order that lies beside an output. It is not checked again:
// one that was never sent is not whole.
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
