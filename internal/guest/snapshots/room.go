package snapshots

import (
	"context"
	"errors"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// Fresh makes a place once more, as it was before any code of a task ran: its layers, with an empty folder above. Whole says whether a
// work tree may have its layers, scratch the same of places of temporary files, bare that no place has more than the image. ok is false for a path
// that lies on none. Remove deletes it with all that was written to it.
func (s *Store) Fresh(path string, whole, scratch, bare bool) (at string, remove func(context.Context) error, ok bool, err error) {
	for _, l := range s.laid {
		if l.Path != path || l.Whole && !whole {
			continue
		}
		if bare || l.Scratch && !scratch {
			l = &laid{Place: l.Place, upper: l.upper}
		}
		name := s.name(l)
		at, run := s.at("mounts", name), s.at("run", name)
		if err := overlay(at, run, s.at("mounts", l.upper), s.layers(l)); err != nil {
			return "", nil, false, err
		}
		return at, func(ctx context.Context) error {
			return errors.Join(drop(at), proc.Run(ctx, proc.Spec{Argv: []string{"/bin/rm", "-rf", "--one-file-system", "--", run}, Dir: "/", Env: []string{"LC_ALL=C.UTF-8"}}))
		}, true, nil
	}
	return "", nil, false, nil
}
