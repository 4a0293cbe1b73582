package harness

import (
	"sync"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// conversation is the session that the processes of one run report. It is safe for concurrent use.
type conversation struct {
	mu    sync.Mutex
	id    string          // guarded by mu
	total workorder.Usage // guarded by mu; of the whole session, as reported by its processes
}

// sessionID matches ids that are safe in a command line and a glob: no option, no pattern, no path.
var sessionID = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`)

func (s *conversation) named(id string) {
	if !sessionID.MatchString(id) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id = id
}

func (s *conversation) name() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

func (s *conversation) used() workorder.Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

func (s *conversation) setUsed(u workorder.Usage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total = u
}
