package boot

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// fakeSnapshots are there for the first done commands.
type fakeSnapshots struct {
	*fake
	done int
	more bool // setup does more than install
	why  error
	err  error
}

func (s *fakeSnapshots) Begin() int     { return s.done }
func (s *fakeSnapshots) Keeps() bool    { return s.done == 0 }
func (s *fakeSnapshots) Installs() bool { return !s.more }
func (s *fakeSnapshots) Keep(_ context.Context, whole bool) (why, err error) {
	if s.did("keep"); whole {
		s.did("keep whole")
	}
	return s.why, s.err
}

func (s *fakeSnapshots) Close() error { s.did("leave"); return nil }

// What setup left is kept once, before anything of the task ran, and setup does not run where it is there.
func TestSetupIsKept(t *testing.T) {
	t.Parallel()
	plain := func() *workorder.Order {
		o := order()
		o.Services = nil
		return o
	}
	supabase := order()
	supabase.Supabase = true
	for name, c := range map[string]struct {
		order *workorder.Order
		fake  *fake
		done  int
		more  bool
		why   error
		err   error
		want  []string // of these calls, in order
		fails bool
	}{
		"a new task":         {order: plain(), fake: &fake{}, want: []string{"setup-1", "setup-2", "tidy", "keep", "keep whole", "baseline", "agent", "leave"}},
		"not kept":           {order: plain(), fake: &fake{}, why: errors.New("full"), want: []string{"setup-1", "setup-2", "tidy", "keep", "keep whole", "baseline", "agent", "leave"}},
		"services":           {order: order(), fake: &fake{}, want: []string{"setup-1", "setup-2", "tidy", "keep", "anew", "baseline", "agent", "leave"}},
		"with their content": {order: order(), fake: &fake{}, more: true, want: []string{"setup-1", "setup-2", "keep", "baseline", "agent", "leave"}},
		"that stay down":     {order: order(), fake: &fake{anewErr: errors.New("down")}, want: []string{"setup-1", "setup-2", "tidy", "keep", "anew", "leave"}, fails: true},
		"supabase":           {order: supabase, fake: &fake{}, want: []string{"setup-1", "setup-2", "keep", "baseline", "agent", "leave"}},
		"the first is there": {order: plain(), fake: &fake{}, done: 1, want: []string{"setup-2", "baseline", "agent", "leave"}},
		"all is there":       {order: plain(), fake: &fake{}, done: 2, want: []string{"baseline", "agent", "leave"}},
		"a later attempt":    {order: plain(), fake: &fake{cloned: &Cloned{Base: "main", BaseSHA: "b0", Head: "h0", Attempt: 2, State: &workorder.State{}}}, want: []string{"setup-1", "setup-2", "baseline", "agent", "leave"}},
		"lost":               {order: plain(), fake: &fake{}, err: errors.New("lost"), want: []string{"setup-1", "setup-2", "tidy", "keep", "keep whole", "leave"}, fails: true},
	} {
		o, p := c.order, &fakeProver{}
		r := playBox(t, c.fake, o, func(b *Box) {
			b.Prover, b.Snapshots = p, &fakeSnapshots{fake: c.fake, done: c.done, more: c.more, why: c.why, err: c.err}
		})
		var got []string
		for _, call := range c.fake.calls {
			if slices.Contains([]string{"setup-1", "setup-2", "tidy", "keep", "keep whole", "anew", "baseline", "agent", "leave"}, call) {
				got = append(got, call)
			}
		}
		if warm := slices.Contains(got, "tidy"); warm != slices.Equal(p.before, []string{"b0"}) || !warm && len(p.before) > 0 {
			t.Errorf("%s: checks ran on %q", name, p.before)
		}
		if !slices.Equal(got, c.want) || (r.code != workorder.ExitOK) != c.fails {
			t.Errorf("%s: exit %d, %q", name, r.code, got)
		}
	}
	// A found command that fails is no reason to end, and nothing to keep.
	o := plain()
	o.Found = true
	f := &fake{shell: func(string) (int, string, error) { return 1, "", nil }}
	playBox(t, f, o, func(b *Box) { b.Snapshots = &fakeSnapshots{fake: f} })
	if f.called("keep") || !f.called("agent") {
		t.Errorf("%q", f.calls)
	}
}
