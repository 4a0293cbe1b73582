package record

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// An agent can fill the disk. The space for landing and the result is reserved until the agent's end.
const (
	reserveFile = "reserve"
	// landReserve is for the commit and packing of an ordinary change, resultReserve for result and remaining events.
	landReserve   = 12 << 20
	resultReserve = 4 << 20
)

// keepReserve allocates the space, once. A full disk is no error.
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

// ReleaseForLanding frees the space for landing. Call it after the end of the agent and all of its processes.
func (r *Recorder) ReleaseForLanding() error {
	err := os.Truncate(filepath.Join(r.state, reserveFile), resultReserve)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("release reserved disk space: %w", err)
	}
	return nil
}
