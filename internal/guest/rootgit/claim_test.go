package rootgit

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/claim"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/remote"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/save"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// quick makes a box renew its lease and save so often that a test can wait for it.
func (f *fixture) quick(seconds float64) *fixture {
	f.Heartbeat.Stop()
	f.Repos.Order.CheckpointIntervalSeconds, f.Repos.Order.PushIntervalSeconds = seconds, seconds
	if f.Ledger.Claimed() {
		f.Heartbeat.Start(context.Background())
	}
	return f
}

func (f *fixture) claim(t *testing.T) (*claim.Result, error) {
	t.Helper()
	base, sha, err := f.Claimer.Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return f.Claimer.Claim(t.Context(), base, sha)
}

// state is the task as the remote has it.
func (f *fixture) state(t *testing.T) *workorder.State {
	t.Helper()
	out := gittest.Git(t, f.srv.Root+"/r.git", "show", workorder.StateRef("T-A1B2C3D4")+":"+workorder.StateFile)
	s, err := workorder.DecodeState([]byte(out), "T-A1B2C3D4")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (f *fixture) saw(typ workorder.EventType, status string) (n int) {
	for _, e := range f.seen() {
		if e.Type == typ && e.Status == status {
			n++
		}
	}
	return n
}

// eventually waits for what has to come; how long it takes says nothing.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(90 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}

func ended(status workorder.Status) func([]workorder.Commit, string) workorder.Attempt {
	return func(_ []workorder.Commit, head string) workorder.Attempt {
		return workorder.Attempt{
			Status:  status,
			HeadSHA: head,
			Reasons: workorder.Because(workorder.ReasonValidation, "why t0p-secret").And(workorder.ReasonPush, "and t0p-secret"),
			EndedAt: time.Unix(1700000000, 0).UTC(),
		}
	}
}

func TestClaimOfANewTask(t *testing.T) {
	t.Parallel()
	srv := gittest.New(t, token)
	srv.Create(t, "r.git", nil)
	f := newBox(t, srv, workorder.ModeCreate)
	f.Repos.Order.Task = "say t0p-secret\n-é"
	f.Repos.Clean = func(s string) string { return strings.ReplaceAll(s, "t0p-secret", "***") }
	c, _ := f.start(t)
	s := f.state(t)
	if c.Continues || c.Attempt != 1 || c.Head != f.base || c.Checkpoint != "" {
		t.Errorf("claimed %+v", c)
	}
	if s.Task != "say ***\n-é" || s.BaseSHA != f.base || s.TargetBranch != target || s.Lease == nil ||
		s.Lease.AttemptID != f.Repos.Order.AttemptID ||
		len(s.Attempts) != 1 {
		t.Errorf("the remote's state is %+v", s)
	}
	again := newBox(t, srv, workorder.ModeCreate)
	if _, err := again.claim(t); !errors.Is(err, claim.ErrTaskExists) {
		t.Errorf("created twice: %v", err)
	}
	f.write(t, "a", "1")
	if err := f.Committer.Commit(t.Context(), says("x")); err != nil {
		t.Fatal(err)
	}
	if l := f.Lander.Land(t.Context(), f.base, f.bundle, ended(workorder.StatusSuccess)); l.Err != nil || !l.Pushed {
		t.Fatalf("landed %+v", l)
	}
	s = f.state(t)
	if a := s.Attempts[0]; s.Lease != nil || a.Status != workorder.StatusSuccess || a.HeadSHA != f.remote(t, workorder.BranchRef(target)) ||
		a.Reasons.String() != "why ***; and ***" ||
		!a.Reasons.Has(workorder.ReasonPush) ||
		a.Number != 1 {
		t.Errorf("after landing: %+v", s)
	}
	n := srv.Receives.Load()
	if err := f.Lander.Release(
		t.Context(),
		ended(workorder.StatusSuccess)(nil, s.Attempts[0].HeadSHA),
	); err != nil ||
		srv.Receives.Load() != n {
		t.Errorf("releasing the same again: %v, %d pushes", err, srv.Receives.Load()-n)
	}
	if err := f.Lander.Release(
		t.Context(),
		ended(workorder.StatusFailed)(nil, ""),
	); err != nil ||
		f.state(t).Attempts[0].Status != workorder.StatusFailed {
		t.Errorf("releasing what turned out different: %v, %+v", err, f.state(t).Attempts)
	}
}

func TestContinueNeedsATask(t *testing.T) {
	t.Parallel()
	srv := gittest.New(t, token)
	srv.Create(t, "r.git", nil)
	f := newBox(t, srv, workorder.ModeContinue)
	f.Repos.Order.Task = ""
	if _, err := f.claim(t); !errors.Is(err, claim.ErrTaskUnknown) || git.KindOf(err) != git.KindNotFound {
		t.Fatalf("got %v", err)
	}
	// A branch alone, of another slug than the order's, is enough.
	bare := srv.Root + "/r.git"
	base := gittest.Git(t, bare, "rev-parse", "main")
	work := gittest.Git(t, bare, "commit-tree", "-p", base, "-m", "w", "HEAD^{tree}")
	gittest.Git(t, bare, "update-ref", "refs/heads/agent/T-A1B2C3D4-old-name", work)
	gittest.Git(t, bare, "update-ref", "refs/heads/main", gittest.Git(t, bare, "commit-tree", "-p", base, "-m", "m", "HEAD^{tree}"))
	c, r := f.start(t)
	if c.State.TargetBranch != "agent/T-A1B2C3D4-old-name" || c.BaseSHA != base || c.Head != work || r.Head != work || !r.Verified {
		t.Errorf("claimed %+v, restored %+v", c, r)
	}
	if h, err := f.Checkpoints.History(t.Context()); err != nil || len(h) != 1 || h[0].SHA != work {
		t.Errorf("history %v, %v", h, err)
	}
}

// Of all who want one lease exactly one gets it.
func TestRaceForTheLease(t *testing.T) {
	t.Parallel()
	srv := gittest.New(t, token)
	srv.Create(t, "r.git", nil)
	bare := srv.Root + "/r.git"
	for round := range 6 {
		mode := workorder.ModeCreate
		if round%2 == 1 {
			mode = workorder.ModeContinue
			gittest.Git(t, bare, "update-ref", "refs/heads/"+target, "main")
		}
		var wg sync.WaitGroup
		var errs [2]error
		var boxes [2]*fixture
		base, sha := "", ""
		for i := range boxes {
			boxes[i] = newBox(t, srv, mode)
			var err error
			if base, sha, err = boxes[i].Claimer.Fetch(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for i, f := range boxes {
			wg.Go(func() { _, errs[i] = f.Claimer.Claim(t.Context(), base, sha) })
		}
		wg.Wait()
		lost := errs[0]
		if lost == nil {
			lost = errs[1]
		}
		if _, held := errors.AsType[*remote.LeaseHeldError](
			lost,
		); (errs[0] == nil) == (errs[1] == nil) ||
			!held && !errors.Is(lost, claim.ErrTaskExists) {
			t.Errorf("%s: %v and %v", mode, errs[0], errs[1])
		}
		boxes[0].Heartbeat.Stop()
		boxes[1].Heartbeat.Stop()
		gittest.Git(t, bare, "update-ref", "-d", workorder.StateRef("T-A1B2C3D4"))
		if mode == workorder.ModeContinue {
			gittest.Git(t, bare, "update-ref", "-d", "refs/heads/"+target)
		}
	}
}

// A stop at the very moment of the claim: whether the push succeeded or not, no box has to wait for one that
// is gone.
func TestClaimThatIsCutOff(t *testing.T) {
	t.Parallel()
	for name, through := range map[string]bool{"it came through": true, "it did not": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := gittest.New(t, token)
			srv.Create(t, "r.git", nil)
			f := newBox(t, srv, workorder.ModeCreate)
			base, sha, err := f.Claimer.Fetch(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			over := func() {
				if err := os.WriteFile(filepath.Join(srv.Root, "r.git/over"), nil, 0o644); err != nil {
					t.Error(err)
				}
			}
			if through {
				hook := filepath.Join(srv.Root, "r.git/hooks/post-receive")
				if err := os.MkdirAll(filepath.Dir(hook), 0o755); err != nil {
					t.Fatal(err)
				}
				// The push is not over before it is cut off.
				if err := os.WriteFile(hook, []byte("#!/bin/sh\nwhile ! [ -e over ]; do sleep 0.05; done\n"), 0o755); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(over) // else the server waits for it
			} else {
				srv.Hold.Store(true)
			}
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				defer cancel()
				for ctx.Err() == nil && srv.Held.Load() == 0 {
					if at, err := srv.Repo("r.git").Resolve(ctx, workorder.StateRef("T-A1B2C3D4")); err != nil || at != "" {
						return
					}
					time.Sleep(10 * time.Millisecond)
				}
			}()
			if c, err := f.Claimer.Claim(ctx, base, sha); err == nil || ctx.Err() == nil {
				t.Fatalf("claimed %+v, %v", c, err)
			}
			srv.Hold.Store(false)
			over()
			if err := f.rescue(
				t,
			).Lander.Release(
				t.Context(),
				workorder.Attempt{Status: workorder.StatusInterrupted, EndedBy: workorder.EndedBySignal},
			); err != nil {
				t.Fatal(err)
			}
			s := f.state(t)
			if s.Lease != nil || len(s.Attempts) != 1 || s.Last().Status != workorder.StatusInterrupted || s.Last().Number != 1 {
				t.Errorf("the remote says %+v, lease %+v", s.Attempts, s.Lease)
			}
		})
	}
}

// Who has taken no lease gives none back.
func TestReleaseWithoutAClaim(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	n := newBox(t, f.srv, workorder.ModeCreate)
	if _, err := n.claim(t); !errors.Is(err, claim.ErrTaskExists) {
		t.Fatal(err)
	}
	if err := n.Lander.Release(t.Context(), workorder.Attempt{Status: workorder.StatusError}); err != nil {
		t.Error(err)
	}
	if s := f.state(t); s.Lease == nil || s.Lease.AttemptID != f.Repos.Order.AttemptID || len(s.Attempts) != 1 {
		t.Errorf("the remote says %+v, lease %+v", s.Attempts, s.Lease)
	}
}

func TestTakeover(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T) (first, second *fixture) {
		t.Helper()
		srv := gittest.New(t, token)
		srv.Create(t, "r.git", nil)
		first = newBox(t, srv, workorder.ModeCreate).quick(2)
		first.start(t)
		return first, newBox(t, srv, workorder.ModeContinue)
	}
	t.Run("of a dead box, after its time", func(t *testing.T) {
		t.Parallel()
		first, second := begin(t)
		first.Heartbeat.Stop()
		c, err := second.claim(t)
		if err != nil || c.Attempt != 2 || second.saw(workorder.EventLease, "waiting") != 1 ||
			second.saw(workorder.EventLease, "acquired") != 1 {
			t.Fatalf("claimed %+v, %v, events %+v", c, err, second.seen())
		}
		if a := c.State.Find(first.Repos.Order.AttemptID); a.Status != workorder.StatusLost {
			t.Errorf("the dead attempt is %+v", a)
		}
		// The dead one was not dead: it finds out, and moves nothing.
		first.write(t, "a", "1")
		k := first.Saver.StartAuto(t.Context(), save.Options{})
		k.Begin()
		lost(t, k)
		k.Stop(t.Context())
		if err := first.Committer.Commit(t.Context(), says("x")); err != nil {
			t.Fatal(err)
		}
		l := first.Lander.Land(t.Context(), first.base, first.bundle, ended(workorder.StatusSuccess))
		if _, held := errors.AsType[*remote.LeaseHeldError](
			l.Err,
		); !held || l.Pushed || l.Bundle == "" ||
			first.remote(t, workorder.BranchRef(target)) != "" {
			t.Errorf("landed %+v without the lease", l)
		}
		if err := first.Lander.Release(
			t.Context(),
			workorder.Attempt{},
		); err != nil ||
			first.state(t).Lease.AttemptID != second.Repos.Order.AttemptID {
			t.Errorf("released another's lease: %v", err)
		}
		// Rescue knows, too.
		if l := first.rescue(t).Lander.Land(t.Context(), first.base, first.bundle, nil); l.Err == nil || l.Pushed {
			t.Errorf("rescue landed %+v without the lease", l)
		}
	})
	t.Run("of a box that the host knows to be gone, at once", func(t *testing.T) {
		t.Parallel()
		first, second := begin(t)
		second.Repos.Order.Ended = []string{first.Repos.Order.AttemptID}
		if _, err := second.claim(t); err != nil || second.saw(workorder.EventLease, "waiting") != 0 {
			t.Errorf("%v, events %+v", err, second.seen())
		}
	})
	t.Run("of a living box, never, whatever it is at", func(t *testing.T) {
		t.Parallel()
		srv := gittest.New(t, token)
		srv.Create(t, "r.git", nil)
		// Its lease says that it may be silent for long, and it is not: only a sign of life can end the watch.
		first, second := newBox(t, srv, workorder.ModeCreate).quick(10), newBox(t, srv, workorder.ModeContinue)
		first.start(t)
		first.quick(0.3)
		before := first.remote(t, workorder.StateRef("T-A1B2C3D4"))
		_, err := second.claim(t)
		if first.remote(t, workorder.StateRef("T-A1B2C3D4")) != before {
			t.Error("the state was pushed though nothing changed")
		}
		if held, ok := errors.AsType[*remote.LeaseHeldError](
			err,
		); !ok || held.AttemptID != first.Repos.Order.AttemptID ||
			held.Holder == "" {
			t.Errorf("got %v", err)
		}
	})
}

// lost waits until a keeper says that its lease is lost.
func lost(t *testing.T, k *save.AutoSaver) {
	t.Helper()
	select {
	case <-k.Lost():
	case <-time.After(90 * time.Second):
		t.Fatal("never: the lease is lost")
	}
}

// A box that has nothing to push finds out, too; and ends its attempt without a word about it.
func TestLeaseIsLostWithoutAPush(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.Heartbeat.Stop()
	f.Repos.Emit = func(e workorder.Event) {
		if e.Status == "lost" {
			select {
			case <-f.Ledger.Fence.Lost():
				t.Error("the run is ended before the reason is reported")
			default:
			}
		}
		f.emit(e)
	}
	f.quick(0.3)
	k := f.Saver.StartAuto(t.Context(), save.Options{})
	n, _, _ := f.next(t)
	lost(t, k)
	k.Stop(t.Context())
	if f.saw(workorder.EventLease, "lost") != 1 {
		t.Errorf("events %+v", f.seen())
	}
	if err := f.Lander.Release(
		t.Context(),
		workorder.Attempt{Status: workorder.StatusInterrupted},
	); err != nil ||
		f.state(t).Lease.AttemptID != n.Repos.Order.AttemptID {
		t.Errorf("released another's lease: %v", err)
	}
}

// An ended attempt leaves no sign of life, and loses nothing to the next one.
func TestSignOfLifeEndsWithTheAttempt(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil).quick(0.3)
	ref := workorder.AliveRef("T-A1B2C3D4")
	eventually(t, "a sign of life", func() bool { return f.remote(t, ref) != "" })
	was := f.remote(t, ref)
	eventually(t, "another one", func() bool { return f.remote(t, ref) != was })
	f.write(t, "a", "1")
	if err := f.Committer.Commit(t.Context(), says("x")); err != nil {
		t.Fatal(err)
	}
	if l := f.Lander.Land(t.Context(), f.base, f.bundle, ended(workorder.StatusSuccess)); l.Err != nil || f.remote(t, ref) != "" {
		t.Errorf("landed %+v, alive %q", l, f.remote(t, ref))
	}
	n, _, _ := f.next(t)
	if over, err := f.Heartbeat.Beat(t.Context(), new([2]string)); !over || err != nil || f.saw(workorder.EventLease, "lost") != 0 {
		t.Errorf("over %v, %v, events %+v", over, err, f.seen())
	}
	if err := n.Lander.Release(t.Context(), workorder.Attempt{Status: workorder.StatusError}); err != nil || n.remote(t, ref) != "" {
		t.Errorf("released %v, alive %q", err, n.remote(t, ref))
	}
}

// A sign of life that is under way when the attempt ends is not on the remote afterwards, however slow the remote is with it.
func TestSignOfLifeThatArrivesLate(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.Heartbeat.Stop()
	ref := workorder.AliveRef("T-A1B2C3D4")
	if f.remote(t, ref) != "" {
		gittest.Git(t, f.srv.Root+"/r.git", "update-ref", "-d", ref)
	}
	// A deleted branch has no new commit.
	f.hook(t, `[ "$1" = `+ref+` ] && [ -n "${3##0000*}" ] && { touch began; sleep 1; touch through; }; :`)
	f.Heartbeat.Start(t.Context())
	did := func(mark string) func() bool {
		return func() bool { _, err := os.Stat(f.srv.Root + "/r.git/" + mark); return err == nil }
	}
	eventually(t, "the remote has the sign of life", did("began"))
	f.Heartbeat.StopAndDelete(t.Context())
	eventually(t, "the remote is done with it", did("through"))
	if at := f.remote(t, ref); at != "" {
		t.Errorf("the box lives on as %s", at)
	}
}

// The next box begins at commits that arrived on the remote while a lease was watched.
func TestTakeoverSeesWhatCameMeanwhile(t *testing.T) {
	t.Parallel()
	srv := gittest.New(t, token)
	srv.Create(t, "r.git", nil)
	first := newBox(t, srv, workorder.ModeCreate).quick(2)
	first.start(t)
	first.Heartbeat.Stop()
	second := newBox(t, srv, workorder.ModeContinue)
	second.Repos.Order.TargetBranch = "agent/T-A1B2C3D4-other-name"
	base, sha, err := second.Claimer.Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var c *claim.Result
	done := make(chan error, 1)
	go func() { c, err = second.Claimer.Claim(t.Context(), base, sha); done <- err }()
	eventually(t, "the lease is watched", func() bool { return second.saw(workorder.EventLease, "waiting") > 0 })
	bare := first.srv.Root + "/r.git"
	late := gittest.Git(t, bare, "commit-tree", "-p", "main", "-m", "late", "main^{tree}")
	gittest.Git(t, bare, "update-ref", workorder.BranchRef(target), late)
	if err := <-done; err != nil || c.Head != late {
		t.Errorf("claimed %+v, %v; want %s", c, err, late)
	}
}

// The push that ended this attempt took its time: no other box has the lease.
func TestEndThatArrivesLate(t *testing.T) {
	t.Parallel()
	for name, known := range map[string]bool{"we know the state": true, "another process sent it": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, nil)
			f.Heartbeat.Stop()
			late := remote.CopyState(f.Ledger.State)
			late.Lease, late.Last().Status = nil, workorder.StatusError
			commit, err := f.Ledger.Record(late)
			if err != nil {
				t.Fatal(err)
			}
			if known {
				f.Ledger.Sending(commit)
			}
			gittest.Git(t, f.Repos.Outbox().Dir, "push", "-q", "-f", f.srv.Root+"/r.git", commit+":"+workorder.StateRef("T-A1B2C3D4"))
			f.write(t, "a", "1")
			if err := f.Committer.Commit(t.Context(), says("x")); err != nil {
				t.Fatal(err)
			}
			l := f.Lander.Land(t.Context(), f.base, f.bundle, ended(workorder.StatusSuccess))
			if l.Err != nil || !l.Pushed || f.state(t).Last().Status != workorder.StatusSuccess ||
				f.saw(workorder.EventLease, "lost") != 0 {
				t.Errorf("landed %+v, events %+v", l, f.seen())
			}
		})
	}
}

// A branch that was removed or reset is reported, not silently restarted.
func TestBranchThatWasSetBack(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(t *testing.T, bare, base string){
		"removed": func(t *testing.T, bare, _ string) {
			t.Helper()
			gittest.Git(t, bare, "update-ref", "-d", "refs/heads/"+target)
		},
		"set back": func(t *testing.T, bare, base string) {
			t.Helper()
			gittest.Git(t, bare, "update-ref", "refs/heads/"+target, base)
		},
		"left": func(*testing.T, string, string) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := gittest.New(t, token)
			srv.Create(t, "r.git", nil)
			f := newBox(t, srv, workorder.ModeCreate)
			f.start(t)
			f.write(t, "a", "1")
			if err := f.Committer.Commit(t.Context(), says("x")); err != nil {
				t.Fatal(err)
			}
			if l := f.Lander.Land(t.Context(), f.base, f.bundle, ended(workorder.StatusTimeout)); l.Err != nil {
				t.Fatal(l.Err)
			}
			change(t, srv.Root+"/r.git", f.base)
			next := newBox(t, srv, workorder.ModeContinue)
			next.start(t)
			if got := next.saw(workorder.EventWarning, ""); (got > 0) != (name != "left") {
				t.Errorf("%d warnings: %+v", got, next.seen())
			}
		})
	}
}
