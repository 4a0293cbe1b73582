package provision

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/statedir"
)

// retryAfter is how long a failed image build is not repeated: a build takes minutes, and each task would start one.
// A package that does not exist stays so for days, a network that was away is back within the hour.
const retryAfter = time.Hour

// maxFailure bounds what a failure's file keeps of its reason, in bytes.
const maxFailure = 4 << 10

// failure is the file that remembers that an image could not be made, and why. Its time is that of the try.
type failure string

// lately is the failure of a try that was made less than retryAfter ago; nil means that the image may be tried.
func (f failure) lately(now time.Time) error {
	fi, err := os.Stat(string(f))
	if err != nil || now.Sub(fi.ModTime()) >= retryAfter {
		return nil
	}
	why, err := os.ReadFile(string(f))
	if err != nil {
		return nil
	}
	return fmt.Errorf("it failed %s ago, and is tried again after %s: %s", now.Sub(fi.ModTime()).Round(time.Second), retryAfter, why)
}

// note remembers a failure, and forgets those of all images that are over.
func (f failure) note(why error, now time.Time) error {
	dir := filepath.Dir(string(f))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("remember that an image cannot be made: %w", err)
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if fi, ierr := e.Info(); ierr == nil && now.Sub(fi.ModTime()) >= retryAfter {
			if rerr := os.Remove(filepath.Join(dir, e.Name())); !errors.Is(rerr, fs.ErrNotExist) {
				err = errors.Join(err, rerr)
			}
		}
	}
	text := why.Error()
	return errors.Join(err, statedir.WriteFile(string(f), []byte(text[:min(len(text), maxFailure)]), 0o600))
}
