package remote

import (
	"os"
	"path/filepath"
)

// An agent can fill the disk. The ledger needs little space, so that much
// is reserved with the lease and freed when it is needed.

// reserveBytes is enough for some hundred states and heartbeats.
const reserveBytes = 4 << 20

func (l *Ledger) reserveFile() string { return filepath.Join(l.repos.Dir, "reserve") }

// Reserve takes the space. If the disk has too little left at the start,
// the run is tried all the same.
func (l *Ledger) Reserve() { _ = os.WriteFile(l.reserveFile(), make([]byte, reserveBytes), 0o600) }

// Unreserve frees the space; freed reports whether there was any.
func (l *Ledger) Unreserve() (freed bool) { return os.Remove(l.reserveFile()) == nil }
