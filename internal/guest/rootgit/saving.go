package rootgit

import (
	"context"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/save"
)

// saving saves the work in the background, with one AutoSaver after the other. It is safe for concurrent use.
type saving struct {
	saver *save.Saver

	mu   sync.Mutex
	auto *save.AutoSaver // nil before the first
}

// restart starts an AutoSaver, which outlives the step that starts it.
func (s *saving) restart(ctx context.Context, o save.Options) {
	auto := s.saver.StartAuto(context.WithoutCancel(ctx), o)
	s.mu.Lock()
	s.auto = auto
	s.mu.Unlock()
}

func (s *saving) current() *save.AutoSaver {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.auto
}

// Save starts saving work tree and commits periodically.
func (s *saving) Save() {
	if auto := s.current(); auto != nil {
		auto.Begin()
	}
}

// SaveNow saves at once.
func (s *saving) SaveNow() {
	if auto := s.current(); auto != nil {
		auto.Flush()
	}
}

// StopSaving ends the saves.
func (s *saving) StopSaving(ctx context.Context) {
	if auto := s.current(); auto != nil {
		auto.Stop(ctx)
	}
}

// Push pushes at once, and then new commits periodically; without commitsOnly also the work tree.
func (s *saving) Push(ctx context.Context, commitsOnly bool) {
	s.restart(ctx, save.Options{CommitsOnly: commitsOnly})
	s.Save()
	s.SaveNow()
}

// Changed returns when the work tree was last seen to change.
func (s *saving) Changed() time.Time {
	if auto := s.current(); auto != nil {
		return auto.Changed()
	}
	return time.Time{}
}
