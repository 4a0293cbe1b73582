package record

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// An agent can fill the disk. Landing and the result need some space, so that
// much is reserved at the start and freed after the agent's end.
const (
	reserveFile = "reserve"
	// landReserve is for the commit and the packing of an ordinary change, resultReserve for the result and the
	// remaining events.
	landReserve   = 12 << 20
	resultReserve = 4 << 20
)

// keepReserve allocates the space, once. If the disk has too little left at the start, the run is tried all
// the same.
func (r *Recorder) keepReserve() {
	f, err := os.OpenFile(filepath.Join(r.state, reserveFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	err = unix.Fallocate(int(f.Fd()), 0, 0, landReserve+resultReserve)
	if errors.Is(err, unix.EOPNOTSUPP) {
		zeros := make([]byte, 1<<20)
		for range (landReserve + resultReserve) / len(zeros) {
			if _, err := f.Write(zeros); err != nil {
				return
			}
		}
	}
}

// ReleaseForLanding frees the space for landing. Call it after the end of the agent and
// all of its processes: they would use it at once.
func (r *Recorder) ReleaseForLanding() error {
	err := os.Truncate(filepath.Join(r.state, reserveFile), resultReserve)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("release reserved disk space: %w", err)
	}
	return nil
}
