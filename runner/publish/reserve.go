package publish

import (
	"os"
	"path/filepath"
)

// An agent can fill the disk. What we note of a push needs little of it, so that much
// is taken with the lease and given back when it is missed.

// reserveBytes is enough for some hundred states and signs of life.
const reserveBytes = 4 << 20

func (p *Publisher) reserveFile() string { return filepath.Join(p.Dir, "reserve") }

// reserve takes the space. A disk that has no such space left to begin with is no
// reason not to try the run.
func (p *Publisher) reserve() { _ = os.WriteFile(p.reserveFile(), make([]byte, reserveBytes), 0o600) }

// unreserve gives it back; freed: there was some.
func (p *Publisher) unreserve() (freed bool) { return os.Remove(p.reserveFile()) == nil }
