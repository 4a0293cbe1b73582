package ledger

import (
	"os"
	"path/filepath"
)

// An agent can fill the disk. The ledger needs little space, so that much
// is reserved with the lease and freed when it is needed.

// reserveBytes is enough for some hundred states and heartbeats.
const reserveBytes = 4 << 20

func (bk *Book) reserveFile() string { return filepath.Join(bk.repos.Dir, "reserve") }

// Reserve takes the space. If the disk has too little left at the start,
// the run is tried all the same.
func (bk *Book) Reserve() { _ = os.WriteFile(bk.reserveFile(), make([]byte, reserveBytes), 0o600) }

// Unreserve frees the space; freed reports whether there was any.
func (bk *Book) Unreserve() (freed bool) { return os.Remove(bk.reserveFile()) == nil }
