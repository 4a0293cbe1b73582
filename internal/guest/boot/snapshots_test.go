package boot

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// fakeSnapshots are there for the first done commands.
type fakeSnapshots struct {
	*fake
	done int
	over bool // what an earlier setup left is there
	// emptied: nothing is kept any more.
	emptied bool
	why     error
	err     error
}

func (s *fakeSnapshots) Skippable(context.Context) int { return s.done }
func (s *fakeSnapshots) WouldSave() bool               { return s.done == 0 && !s.emptied }
func (s *fakeSnapshots) Restored() bool                { return s.over }
func (s *fakeSnapshots) Clear() error                  { s.did("empty"); s.over, s.emptied = false, true; return nil }

func (s *fakeSnapshots) Save(_ context.Context, whole bool) (why, err error) {
	if s.did("keep"); whole {
		s.did("keep whole")
	}
	if s.why == nil && s.err == nil {
		s.done = 2
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
		why   error
		err   error
		want  []string // of these calls, in order
		fails bool
	}{
		"a new task": {order: plain(), fake: &fake{}, want: []string{"setup-1", "setup-2", "keep", "keep whole", "baseline", "agent", "leave"}},
		"not kept": {order: plain(), fake: &fake{}, why: errors.New("full"), want: []string{
			"setup-1", "setup-2", "keep", "keep whole", "baseline", "agent", "leave",
		}},
		"services":           {order: order(), fake: &fake{}, want: []string{"setup-1", "setup-2", "keep", "baseline", "agent", "leave"}},
		"the first is there": {order: plain(), fake: &fake{}, done: 1, want: []string{"setup-2", "baseline", "agent", "leave"}},
		"all is there":       {order: plain(), fake: &fake{}, done: 2, want: []string{"baseline", "agent", "leave"}},
		"a later attempt": {order: plain(), fake: &fake{cloned: &rootgit.CloneResult{
			Result: claimed("h0", 2, &workorder.State{}),
		}}, want: []string{"setup-1", "setup-2", "baseline", "agent", "leave"}},
		"lost": {order: plain(), fake: &fake{}, err: errors.New("lost"), want: []string{
			"setup-1", "setup-2", "keep", "keep whole", "leave",
		}, fails: true},
	} {
		o, p := c.order, &fakeProver{}
		r := playBox(t, c.fake, o, func(b *Runner) {
			b.Prover, b.SetupCache = p, &fakeSnapshots{fake: c.fake, done: c.done, why: c.why, err: c.err}
		})
		var got []string
		for _, call := range c.fake.calls {
			if slices.Contains(
				[]string{"setup-1", "setup-2", "keep", "keep whole", "reset", "baseline", "agent", "leave"},
				call,
			) {
				got = append(got, call)
			}
		}
		// The normal log says why nothing is kept.
		if warned := strings.Contains(r.events, `"type":"warning","name":"setup"`); warned != (c.why != nil) {
			t.Errorf("%s: %s", name, r.events)
		}
		if !slices.Equal(got, c.want) || (r.code != workorder.ExitOK) != c.fails {
			t.Errorf("%s: exit %d, %q", name, r.code, got)
		}
	}
	// Setup that cannot run over what an earlier one left runs in an empty work tree; what fails there, fails.
	for name, c := range map[string]struct {
		fails int // how often
		found bool
		later bool // attempt
		want  []string
		exit  bool
	}{
		"in a later attempt": {fails: 1, later: true, want: []string{"setup-1", "empty", "again", "reset", "setup-1", "setup-2", "agent"}},
		"once":               {fails: 1, want: []string{"setup-1", "empty", "again", "reset", "setup-1", "setup-2", "agent"}},
		"once and found":     {fails: 1, found: true, want: []string{"setup-1", "empty", "again", "reset", "setup-1", "setup-2", "agent"}},
		"always":             {fails: 9, want: []string{"setup-1", "empty", "again", "reset", "setup-1"}, exit: true},
	} {
		o, left := plain(), c.fails
		o.Found = c.found
		f := &fake{shell: func(string) (int, string, error) { left--; return max(0, min(1, left+1)), "", nil }}
		if c.later {
			f.cloned = &rootgit.CloneResult{Result: claimed("h0", 2, &workorder.State{})}
		}
		r := playBox(t, f, o, func(b *Runner) { b.SetupCache = &fakeSnapshots{fake: f, over: true} })
		var got []string
		for _, call := range f.calls {
			if slices.Contains([]string{"setup-1", "setup-2", "empty", "again", "reset", "keep", "agent"}, call) {
				got = append(got, call)
			}
		}
		if !slices.Equal(got, c.want) || (r.code != workorder.ExitOK) != c.exit {
			t.Errorf("%s: exit %d, %q", name, r.code, got)
		}
	}
	// A found command that fails is no reason to end, and nothing to keep.
	o := plain()
	o.Found = true
	f := &fake{shell: func(string) (int, string, error) { return 1, "", nil }}
	playBox(t, f, o, func(b *Runner) { b.SetupCache = &fakeSnapshots{fake: f} })
	if f.called("keep") || !f.called("agent") {
		t.Errorf("%q", f.calls)
	}
}

// A rebase begins with what an earlier setup left, which is not the task's work, and without it where git cannot move the commits over it.
func TestRebaseOverEarlierSetup(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		over bool
		errs int
		want []string
	}{
		"nothing is kept": {want: []string{"rebase", "setup-1"}},
		"over it":         {over: true, want: []string{"baseline", "rebase", "setup-1"}},
		"without it":      {over: true, errs: 1, want: []string{"baseline", "rebase", "empty", "again", "rebase", "setup-1"}},
	} {
		f := &fake{cloned: rebasedTask()}
		r := playBox(t, f, rebaseOrder(), func(b *Runner) {
			b.SetupCache = &fakeSnapshots{fake: f, over: c.over}
			b.Rebaser = &stubborn{fakeRebaser{f: f}, c.errs}
		})
		var got []string
		for _, call := range f.calls[:slices.Index(f.calls, "setup-1")+1] {
			if slices.Contains([]string{"baseline", "rebase", "empty", "again", "setup-1"}, call) {
				got = append(got, call)
			}
		}
		if r.code != workorder.ExitOK || !slices.Equal(got, c.want) {
			t.Errorf("%s: exit %d, %q", name, r.code, got)
		}
	}
}

// stubborn fails as often as it says.
type stubborn struct {
	fakeRebaser
	fails int
}

func (s *stubborn) Begin(ctx context.Context) (Rebasing, error) {
	x, err := s.fakeRebaser.Begin(ctx)
	if s.fails--; s.fails >= 0 {
		err = errors.New("untracked files would be overwritten")
	}
	return x, err
}
