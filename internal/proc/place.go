package proc

import (
	"errors"
	"os"
)

// Place is what a child sees of the machine: namespaces of its own for mounts and for shared memory, semaphores and message queues.
// It lasts as long as it is open.
type Place struct {
	mounts, ipc *os.File
}

// Close gives the place up. Children that are in it stay there.
func (p *Place) Close() error { return errors.Join(p.mounts.Close(), p.ipc.Close()) }
