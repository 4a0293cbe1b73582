package proc

import (
	"errors"
	"os"
)

// Place is what a child sees of the machine: a namespace of its own for mounts and, if it has one, another for shared memory,
// semaphores and message queues. It lasts as long as it is open.
type Place struct {
	mounts *os.File
	ipc    *os.File // nil means the caller's
}

// Close gives the place up. Children that are in it stay there.
func (p *Place) Close() error {
	err := p.mounts.Close()
	if p.ipc != nil {
		err = errors.Join(err, p.ipc.Close())
	}
	return err
}
