package proof

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// leaveTime bounds giving up a place: a million files are removed in some 20 s.
	leaveTime = 2 * time.Minute
	// spaceTime is how long what a side gave up may take to be free: the kernel gives memory back a moment after the last process.
	spaceTime  = 5 * time.Second
	spacePause = 100 * time.Millisecond
	// spaceShare is what each side has to have of what was free for the first one, in percent. Other boxes share the disk, so that it is
	// never the same.
	spaceShare = 75
)

// Free is what commands can take, each in bytes or a number; 0 means not known, or without a bound.
type Free struct{ Disk, Inodes, Memory int64 }

// lacks says what there is markedly less of than there was; "" means nothing.
func (f Free) lacks(than Free) string {
	for _, one := range []struct {
		name      string
		now, then int64
	}{{"bytes of disk", f.Disk, than.Disk}, {"inodes", f.Inodes, than.Inodes}, {"bytes of memory", f.Memory, than.Memory}} {
		if one.now < one.then/100*spaceShare {
			return fmt.Sprintf("%d %s are free, there were %d for the side before", one.now, one.name, one.then)
		}
	}
	return ""
}

// enter brings a side to a place, a new one where the side has left its last one.
func (r *sides) enter(ctx context.Context, s *side) (err error) {
	s.user = r.User
	if err := r.show(s); err != nil {
		return err
	}
	if r.Ground == nil {
		return nil
	}
	if s.room == nil {
		if s.room, err = r.Ground.Room(ctx, s.store, s.commit, s.bare); err != nil {
			return err
		}
		for _, what := range s.room.Lacks() {
			if why := (workorder.Reason{Code: workorder.ReasonWeakPlace, Detail: what}); !slices.Contains(r.reasons, why) {
				r.reasons = append(r.reasons, why)
			}
		}
	}
	s.user = s.room.User()
	if err := s.room.Enter(ctx); err != nil {
		return err
	}
	return r.enough(ctx, s)
}

// enough refuses a side that has markedly less than the one before: what fails for want of it says nothing about the commit, and code of
// the other commit can bring it about.
func (r *sides) enough(ctx context.Context, s *side) error {
	over := time.After(spaceTime)
	for {
		now, err := s.room.Free()
		if err != nil {
			return err
		}
		if r.first == nil {
			r.first = &now
		}
		lacks := now.lacks(*r.first)
		if lacks == "" {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-over:
			return fmt.Errorf("what it shows would not be comparable: %s", lacks)
		case <-time.After(spacePause):
		}
	}
}

// leave ends everything of a side and gives its place up. The other side would have less of everything as long as it is there.
func (r *sides) leave(ctx context.Context, s *side) error {
	r.rest(ctx, s)
	if s.room == nil {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, leaveTime, fmt.Errorf("it took longer than %s", leaveTime))
	defer cancel()
	if s.root != nil {
		_ = s.root.Close()
		s.root = nil
	}
	if err := s.room.Leave(ctx); err != nil {
		return err
	}
	s.room, s.place = nil, ""
	return nil
}
