package ledger

import (
	"os"
	"path/filepath"
)

// An agent can fill the disk. Our note of a push needs little of it, so that much
// is taken with the lease and given back when it is missed.

// reserveBytes is enough for some hundred states and signs of life.
const reserveBytes = 4 << 20

func (bk *Book) reserveFile() string { return filepath.Join(bk.repos.Dir, "reserve") }

// Reserve takes the space. A disk that has no such space left to begin with is no
// reason not to try the run.
func (bk *Book) Reserve() { _ = os.WriteFile(bk.reserveFile(), make([]byte, reserveBytes), 0o600) }

// Unreserve gives it back; freed: there was some.
func (bk *Book) Unreserve() (freed bool) { return os.Remove(bk.reserveFile()) == nil }
