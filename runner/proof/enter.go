package proof

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// leaveTime bounds the removal of a room: a million files are removed in some 20 s.
	leaveTime = 2 * time.Minute
	// spaceTime bounds the wait for released resources: the kernel frees memory a moment after the last process ends.
	spaceTime  = 5 * time.Second
	spacePause = 100 * time.Millisecond
	// spaceShare is how much of the first side's free resources each side must have, in percent.
	spaceShare = 75
)

// FreeResources holds the resources available to commands, in bytes or as a number; 0 means unknown or unlimited.
type FreeResources struct{ Disk, Inodes, Memory int64 }

// lacks describes a resource that is markedly scarcer than in than; "" if none is.
func (f FreeResources) lacks(than FreeResources) string {
	for _, one := range []struct {
		name      string
		now, then int64
	}{{"bytes of disk", f.Disk, than.Disk}, {"inodes", f.Inodes, than.Inodes}, {"bytes of memory", f.Memory, than.Memory}} {
		if one.now < one.then/100*spaceShare {
			return fmt.Sprintf("%d %s are free, the first side had %d", one.now, one.name, one.then)
		}
	}
	return ""
}

// enter moves a side into a room, a new one if the side has left its last one.
func (r *sides) enter(ctx context.Context, s *side) (err error) {
	s.user = r.User
	if err := r.show(s); err != nil {
		return err
	}
	if r.Rooms == nil {
		return nil
	}
	if s.room == nil {
		if s.room, err = r.Rooms.Room(ctx, s.store, s.commit, s.bare); err != nil {
			return err
		}
		for _, what := range s.room.Missing() {
			if why := (workorder.Reason{Code: workorder.ReasonRoomNotClean, Detail: what}); !slices.Contains(r.reasons, why) {
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

// enough rejects a side with markedly fewer resources: a failure for lack of them says nothing about the commit.
func (r *sides) enough(ctx context.Context, s *side) error {
	over := time.After(spaceTime)
	for {
		now, err := s.room.FreeResources()
		if err != nil {
			return err
		}
		r.first = cmp.Or(r.first, &now)
		lacks := now.lacks(*r.first)
		if lacks == "" {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-over:
			return fmt.Errorf("its results would not be comparable: %s", lacks)
		case <-time.After(spacePause):
		}
	}
}

// leave stops everything of a side and removes its room, so that the other side has the same resources.
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
	if err := s.room.Remove(ctx); err != nil {
		return err
	}
	s.room, s.place = nil, ""
	return nil
}
