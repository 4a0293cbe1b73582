package sandbox

import (
	"errors"
	"sync"
	"testing"
)

// Several programs do the same to one sandbox: each reset makes it anew, and of forks to one name one succeeds, with
// the files of its own origin.
func TestManyHands(t *testing.T) {
	t.Parallel()
	f, state := newFake(t), t.TempDir()
	create(t, f.newManager(state), Spec{Name: "a"})
	create(t, f.newManager(state), Spec{Name: "b"})
	const hands = 6
	at := func(do func(i int) error) []error {
		errs := make([]error, hands)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() { errs[i] = do(i) })
		}
		all.Wait()
		return errs
	}
	var found [hands]*Sandbox
	for i := range found {
		found[i] = find(t, f.newManager(state), "a")
	}
	if err := errors.Join(at(func(i int) error { _, err := found[i].Reset(t.Context()); return err })...); err != nil {
		t.Errorf("resets: %v", err)
	}
	won := 0
	for _, err := range at(func(i int) error {
		_, err := find(t, f.newManager(state), []string{"a", "b"}[i%2]).Fork(t.Context(), "fork")
		return err
	}) {
		switch {
		case err == nil:
			won++
		case !errors.Is(err, ErrExists):
			t.Errorf("a fork: %v", err)
		}
	}
	if won != 1 || len(f.images) != 1 {
		t.Errorf("%d forks succeeded, %d images are left", won, len(f.images))
	}
}
