package rootgit

import (
	"errors"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/claim"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// twin is another box that was given the very order of f.
func (f *fixture) twin(t *testing.T, change func(*workorder.Order)) *fixture {
	t.Helper()
	n := newBox(t, f.srv, f.Repos.Order.Mode)
	o := *f.Repos.Order
	n.Repos.Order = &o
	if change != nil {
		change(n.Repos.Order)
	}
	return n
}

// ends ends an attempt that made a commit.
func (f *fixture) ends(t *testing.T, end workorder.Attempt) {
	t.Helper()
	f.write(t, "work-"+string(end.Status), "1")
	if err := f.Committer.Commit(t.Context(), says("x")); err != nil {
		t.Fatal(err)
	}
	l := f.Lander.Land(t.Context(), f.base, f.bundle, func(_ []workorder.Commit, head string) workorder.Attempt {
		end.HeadSHA = head
		return end
	})
	if l.Err != nil || !l.Pushed {
		t.Fatalf("landed %+v", l)
	}
}

// The same order in two boxes is one attempt and two holders: the second waits, and takes over only from a dead one.
func TestSameOrderTwiceAtOnce(t *testing.T) {
	t.Parallel()
	for _, mode := range []workorder.Mode{workorder.ModeCreate, workorder.ModeContinue} {
		for _, exists := range []workorder.IfExists{"", workorder.IfExistsReport} {
			t.Run(string(mode)+string(exists), func(t *testing.T) {
				t.Parallel()
				srv := gittest.New(t, token)
				srv.Create(t, "r.git", nil)
				first := newBox(t, srv, mode)
				first.Repos.Order.IfExists = exists
				first.quick(10).start(t)
				first.quick(0.3)
				had := first.state(t).Lease
				_, err := first.twin(t, nil).claim(t)
				held, isHeld := errors.AsType[*remote.LeaseHeldError](err)
				if refused := mode == workorder.ModeCreate &&
					exists == ""; refused != errors.Is(err, claim.ErrTaskExists) ||
					refused == isHeld {
					t.Errorf("got %v", err)
				}
				if isHeld && held.AttemptID != first.Repos.Order.AttemptID {
					t.Errorf("held by %+v", held)
				}
				if now := first.state(t).Lease; now == nil || had.Incarnation == "" || now.Incarnation != had.Incarnation {
					t.Errorf("the lease was %+v and is %+v", had, now)
				}
			})
		}
	}
}

func TestSameOrderAfterADeadBox(t *testing.T) {
	t.Parallel()
	srv := gittest.New(t, token)
	srv.Create(t, "r.git", nil)
	first := newBox(t, srv, workorder.ModeCreate).quick(2)
	first.Repos.Order.IfExists = workorder.IfExistsReport
	spent := 1.5
	first.Pusher.Usage = func() workorder.Usage { return workorder.Usage{CostUSD: &spent} }
	first.start(t)
	saved := first.commit(t, "saved")
	k := first.keep(t)
	first.branchIs(t, saved)
	k.Stop(t.Context())
	first.Heartbeat.Stop()

	second := first.twin(t, nil)
	c, err := second.claim(t)
	if err != nil || !c.Continues || c.Attempt != 2 || c.Head != saved || second.Repos.Order.Mode != workorder.ModeContinue ||
		second.saw(workorder.EventLease, "waiting") != 1 {
		t.Fatalf("claimed %+v, %v, events %+v", c, err, second.seen())
	}
	s := second.state(t)
	if len(s.Attempts) != 2 || s.Attempts[0].ID == s.Attempts[1].ID || s.Attempts[1].ID != first.Repos.Order.AttemptID ||
		s.Attempts[0].Status != workorder.StatusLost ||
		s.SpentUSD() != spent {
		t.Errorf("the attempts are %+v, they cost %v", s.Attempts, s.SpentUSD())
	}
	// The dead one was not dead: the lease of its own order is not its own, nor for a process that comes after it.
	for name, f := range map[string]*fixture{"box": first, "rescue": first.rescue(t)} {
		if l := f.Lander.Land(t.Context(), first.base, first.bundle, ended(workorder.StatusSuccess)); l.Err == nil || l.Pushed {
			t.Errorf("the %s landed %+v without the lease", name, l)
		}
		if err := f.Lander.Release(t.Context(), workorder.Attempt{}); err != nil || f.state(t).Lease == nil {
			t.Errorf("the %s released another's lease: %v", name, err)
		}
	}
}

// A host that knows the attempt to be over reports it, and no box waits.
func TestSameOrderAfterAnEndedBox(t *testing.T) {
	t.Parallel()
	srv := gittest.New(t, token)
	srv.Create(t, "r.git", nil)
	first := newBox(t, srv, workorder.ModeContinue)
	first.start(t)
	first.Heartbeat.Stop()
	second := first.twin(t, func(o *workorder.Order) { o.Ended = []string{o.AttemptID} })
	if _, err := second.claim(t); err != nil || second.saw(workorder.EventLease, "waiting") != 0 {
		t.Errorf("%v, events %+v", err, second.seen())
	}
}

// Rescue, another process of the same box, is the same holder.
func TestRescueIsTheSameHolder(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.Heartbeat.Stop()
	if err := f.rescue(
		t,
	).Lander.Release(
		t.Context(),
		workorder.Attempt{Status: workorder.StatusError},
	); err != nil || f.state(t).Lease != nil ||
		f.state(t).Last().Status != workorder.StatusError {
		t.Errorf("%v; the remote says %+v", err, f.state(t))
	}
}

func TestIfExists(t *testing.T) {
	t.Parallel()
	later, before := time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
	done := workorder.Attempt{Status: workorder.StatusSuccess, EndedBy: workorder.EndedByAgent}
	for name, c := range map[string]struct {
		end    workorder.Attempt
		exists workorder.IfExists
		mode   workorder.Mode
		told   bool
		runs   bool
	}{
		"done, no word":         {end: done},
		"done, refuse":          {end: done, exists: workorder.IfExistsRefuse},
		"done, continue":        {end: done, exists: workorder.IfExistsContinue, runs: true},
		"done, tell":            {end: done, exists: workorder.IfExistsReport, told: true},
		"done, tell a continue": {end: done, exists: workorder.IfExistsReport, mode: workorder.ModeContinue, told: true},
		"a plan of it":          {end: done, exists: workorder.IfExistsReport, mode: workorder.ModePlan},
		"failed checks": {
			end: workorder.Attempt{Status: workorder.StatusFailed, EndedBy: workorder.EndedByValidation}, exists: workorder.IfExistsReport, told: true,
		},
		"cut off, no word": {end: workorder.Attempt{Status: workorder.StatusTimeout, EndedBy: workorder.EndedByTimeout}},
		"cut off, tell": {
			end: workorder.Attempt{Status: workorder.StatusTimeout, EndedBy: workorder.EndedByTimeout}, exists: workorder.IfExistsReport, runs: true,
		},
		"parked until later": {
			end: workorder.Attempt{Status: workorder.StatusParked, EndedBy: workorder.EndedByLimit, ResumeAt: &later}, exists: workorder.IfExistsReport,
			told: true,
		},
		"parked until now": {
			end: workorder.Attempt{Status: workorder.StatusParked, EndedBy: workorder.EndedByLimit, ResumeAt: &before}, exists: workorder.IfExistsReport,
			runs: true,
		},
		"the order was refused": {
			end: workorder.Attempt{Status: workorder.StatusError, EndedBy: workorder.EndedByOrder}, exists: workorder.IfExistsReport, runs: true,
		},
	} {
		if nightlyOnly(t, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := newFixture(t, nil)
			first.ends(t, c.end)
			second := first.twin(t, func(o *workorder.Order) {
				o.IfExists = c.exists
				if c.mode != "" {
					o.Mode = c.mode
				}
			})
			got, err := second.claim(t)
			told, isTold := errors.AsType[*claim.DoneError](err)
			if runs := err == nil; runs != c.runs || isTold != c.told || errors.Is(err, claim.ErrTaskExists) != (!c.runs && !c.told) {
				t.Fatalf("got %+v, %v", got, err)
			}
			if isTold && (told.Attempt.Status != c.end.Status || told.Attempt.EndedBy != c.end.EndedBy || told.Result != nil) {
				t.Errorf("told %+v", told)
			}
			if c.runs &&
				(!got.Continues || got.Attempt != 2 || second.Repos.Order.Mode != workorder.ModeContinue ||
					second.state(t).Last().Mode != workorder.ModeContinue) {
				t.Errorf("claimed %+v in mode %s", got, second.Repos.Order.Mode)
			}
			if !c.runs && first.state(t).Lease != nil {
				t.Error("the lease was taken")
			}
		})
	}
}
