package proc

import (
	"errors"
	"os"
)

// Namespace is a mount namespace for children, optionally with an IPC namespace. It exists while it is open.
type Namespace struct {
	mounts *os.File
	ipc    *os.File // nil means the caller's
}

// Close releases the namespace. Children in it stay there.
func (n *Namespace) Close() error {
	err := n.mounts.Close()
	if n.ipc != nil {
		err = errors.Join(err, n.ipc.Close())
	}
	return err
}
