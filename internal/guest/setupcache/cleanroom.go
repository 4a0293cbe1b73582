package setupcache

import (
	"context"
	"errors"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// Fresh recreates a directory in its state before any code of a task ran: its layers below an empty directory. whole
// allows a work tree's layers, scratch those of temporary files; bare uses only the image's content. ok is false for a
// path without layers. remove deletes it with all writes to it.
func (s *Store) Fresh(path string, whole, scratch, bare bool) (at string, remove func(context.Context) error, ok bool, err error) {
	for _, l := range s.mounts.dirs {
		if l.Path != path || l.Whole && !whole {
			continue
		}
		if bare || l.Scratch && !scratch {
			l = &mountedDir{Dir: l.Dir, upper: l.upper}
		}
		name := s.mounts.newUpper(l)
		s.fresh[l.Name] = name
		at, run := s.mounts.path("mounts", name), s.mounts.path("run", name)
		if err := overlay(at, run, s.mounts.path("mounts", l.upper), s.mounts.layers(l)); err != nil {
			return "", nil, false, err
		}
		return at, func(ctx context.Context) error {
			return errors.Join(
				drop(at),
				proc.Run(ctx, proc.Spec{Argv: []string{"/bin/rm", "-rf", "--one-file-system", "--", run}, Dir: "/", Env: []string{"LC_ALL=C.UTF-8"}}),
			)
		}, true, nil
	}
	return "", nil, false, nil
}
