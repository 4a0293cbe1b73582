package runtime_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
)

var (
	errOther = errors.New("something else")
	running  = &runtime.Instance{ID: "box", State: "running"}
	exited   = &runtime.Instance{ID: "box", State: "exited"}
)

// look is what one question after the box brings.
type look struct {
	box *runtime.Instance
	err error
}

// looks answers one question after the other, the last answer for ever.
func looks(list ...look) func(context.Context) (*runtime.Instance, error) {
	return func(context.Context) (*runtime.Instance, error) {
		l := list[0]
		if len(list) > 1 {
			list = list[1:]
		}
		return l.box, l.err
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	away, notYet, lives, ended, gone := look{err: runtime.ErrUnavailable}, look{err: runtime.ErrCreating}, look{box: running}, look{box: exited}, look{}
	for name, c := range map[string]struct {
		looks []look
		done  bool  // says Read
		fails error // says Read
		reads int
		aways int
		want  error
	}{
		"ends":                         {looks: []look{lives, ended}, reads: 2},
		"has ended":                    {looks: []look{ended}, reads: 1},
		"gone":                         {looks: []look{gone}},
		"removed while it is read":     {looks: []look{lives, gone}, reads: 1},
		"removed before it is read":    {looks: []look{ended}, fails: runtime.ErrNotFound, reads: 1},
		"broken stream":                {looks: []look{lives, lives, lives, lives, ended}, reads: 3},
		"being made":                   {looks: []look{notYet, notYet, ended}, reads: 1},
		"done before the end":          {looks: []look{lives}, done: true, reads: 1},
		"read fails":                   {looks: []look{lives}, fails: errOther, reads: 1, want: errOther},
		"question fails":               {looks: []look{{err: errOther}}, want: errOther},
		"engine restarts":              {looks: []look{away, away, ended}, reads: 1, aways: 1},
		"engine restarts twice":        {looks: []look{away, lives, away, away, ended}, reads: 2, aways: 2},
		"engine stays away":            {looks: []look{away}, aways: 1, want: runtime.ErrUnavailable},
		"engine stays away from a box": {looks: []look{lives, away}, reads: 1, aways: 1, want: runtime.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				reads, aways := 0, 0
				w := &runtime.Watcher{
					Find:     looks(c.looks...),
					Read:     func(context.Context, *runtime.Instance) (bool, error) { reads++; return c.done, c.fails },
					Away:     func(error) { aways++ },
					Patience: 30 * time.Second, Pause: time.Second,
				}
				if err := w.Watch(t.Context()); !errors.Is(err, c.want) || reads != c.reads || aways != c.aways {
					t.Errorf("%v after %d reads, engine away %d times; want %v, %d, %d", err, reads, aways, c.want, c.reads, c.aways)
				}
			})
		})
	}
}

func TestWatchIsGivenUp(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	w := &runtime.Watcher{
		Find:     looks(look{box: running}),
		Read:     func(context.Context, *runtime.Instance) (bool, error) { cancel(errOther); return false, nil },
		Patience: time.Hour, Pause: time.Hour,
	}
	if err := w.Watch(ctx); !errors.Is(err, errOther) {
		t.Errorf("%v", err)
	}
}
