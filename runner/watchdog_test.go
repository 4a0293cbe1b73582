package runner

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestSignsOfLife plays what can be seen of an agent, ten windows long, to the
// watchdog. Each look comes a twentieth of the window after the one before.
func TestSignsOfLife(t *testing.T) {
	t.Parallel()
	const window = 15 * time.Minute
	type seen struct {
		agent, beside []process
		heard         int64
		changed       time.Time
	}
	one := func(pid int, ticks int64) process {
		return process{pid: pid, Stat: proc.Stat{Began: "7", Ticks: ticks}}
	}
	idle := seen{agent: []process{one(10, 5)}}
	tick := func(share float64, i int) int64 { // CPU time at a share of a core
		return int64(share * (window / looksPerWindow).Seconds() * clockTicks * float64(i))
	}
	for name, c := range map[string]struct {
		look func(i int) seen
		hung bool
	}{
		"nothing":             {func(int) seen { return idle }, true},
		"a line in each half": {func(i int) seen { s := idle; s.heard = int64(i / 9); return s }, false},
		"a change":            {func(i int) seen { s := idle; s.changed = time.Unix(int64(i/19), 0); return s }, false},
		"a change, once, with a time far in the future": {func(i int) seen {
			s := idle
			if i > 3 {
				s.changed = time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC)
			}
			return s
		}, true},
		"busy":                  {func(i int) seen { return seen{agent: []process{one(10, tick(1, i))}} }, false},
		"hardly busy":           {func(i int) seen { return seen{agent: []process{one(10, tick(2*idleShare, i))}} }, false},
		"idle, but not stopped": {func(i int) seen { return seen{agent: []process{one(10, tick(idleShare/2, i))}} }, true},
		"two that are half idle": {func(i int) seen {
			return seen{agent: []process{one(10, tick(0.6*idleShare, i)), one(11, tick(0.6*idleShare, i))}}
		}, false},
		"children come and go": {func(i int) seen { return seen{agent: []process{one(10, 5), one(20+i/15, 0)}} }, false},
		"a pid is used again": {func(i int) seen {
			s := one(20, 0)
			s.Began = strconv.Itoa(i / 15)
			return seen{agent: []process{one(10, 5), s}}
		}, false},
		"services idle":                     {func(i int) seen { return seen{agent: idle.agent, beside: []process{one(90, tick(0.2, i))}} }, true},
		"healthchecks of services":          {func(i int) seen { return seen{agent: idle.agent, beside: []process{one(90+i, 1)}} }, true},
		"a service works":                   {func(i int) seen { return seen{agent: idle.agent, beside: []process{one(90, tick(0.9, i))}} }, false},
		"CPU time before the first look":    {func(int) seen { return seen{agent: []process{one(10, 1e9)}, beside: []process{one(90, 1e9)}} }, true},
		"all end at once, and nothing more": {func(i int) seen { return seen{agent: idle.agent[min(i, 1):]} }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now, i := time.Now(), 0
			began := now
			w := watchdog{
				window: window,
				look:   func() (agent, beside []process) { return c.look(i).agent, c.look(i).beside },
				heard:  func() int64 { return c.look(i).heard }, changed: func() time.Time { return c.look(i).changed },
			}
			if c.look(0).changed.IsZero() && c.look(30).changed.IsZero() {
				w.changed = nil
			}
			for ; i < 10*looksPerWindow; i++ {
				if w.hung(now) {
					break
				}
				now = now.Add(w.interval())
			}
			if hung := i < 10*looksPerWindow; hung != c.hung {
				t.Errorf("hung %v after %s", hung, now.Sub(began))
			}
			if c.hung && now.Sub(began) < window {
				t.Errorf("found to hang after %s already", now.Sub(began))
			}
		})
	}
}

// TestPauseIsNoHang: a box that was paused finds the clock far ahead.
func TestPauseIsNoHang(t *testing.T) {
	t.Parallel()
	w := watchdog{window: time.Minute, look: func() (agent, beside []process) { return nil, nil }, heard: func() int64 { return 0 }}
	now := time.Now()
	for range 5 {
		if w.hung(now) {
			t.Fatal("a pause was taken for a hang")
		}
		now = now.Add(time.Hour)
	}
	for i := 0; !w.hung(now); i++ {
		if i > 2*looksPerWindow {
			t.Fatal("the hang after the pause is not seen")
		}
		now = now.Add(w.interval())
	}
}

// hangBox has a window that is short, and longer than anything that a live agent
// of these tests is silent for on a loaded machine.
func hangBox(t *testing.T, run string) *box {
	t.Helper()
	b := newBox(t, run)
	b.Hang = time.Second
	return b
}

// waitingInTheKernel is a process's number and a system call with its arguments.
var waitingInTheKernel = lazyregexp.New(`(?m)^[0-9]+:\n .*[0-9]+ 0x[0-9a-f]+`)

func TestHang(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ run, what string }{
		"a child that sleeps":     {"echo begin; echo complaint >&2; sleep 3600; echo never", "sleep 3600"},
		"the agent itself":        {"echo begin; echo complaint >&2; exec sleep 3600", ""},
		"stopped":                 {"echo begin; echo complaint >&2; kill -STOP $$; echo never", ""},
		"a pipe without a writer": {"echo begin; echo complaint >&2; mkfifo p; cat <p", ""},
		"deaf to SIGTERM":         {"trap '' TERM; echo begin; echo complaint >&2; sleep 3600; sleep 3600", "sleep 3600"},
		"exits well if stopped":   {"trap 'exit 0' TERM; echo begin; echo complaint >&2; sleep 3600 & wait", "sleep 3600"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := hangBox(t, c.run)
			got := Agent(t.Context(), b.Config)
			check(t, got, workorder.StatusFailed, workorder.EndedByHang, workorder.ReasonHang, c.what)
			ev := b.of(workorder.EventHang)
			if len(ev) != 1 || ev[0].Status != "ended" || ev[0].Path != "evidence/hang-1.txt" || !strings.Contains(got.Reasons.String(), ev[0].Text) {
				t.Fatalf("events %+v", ev)
			}
			if len(got.Evidence) != 1 || got.Evidence[0].Path != ev[0].Path {
				t.Errorf("evidence %+v", got.Evidence)
			}
			text := b.read(t, filepath.Join(b.OutDir, ev[0].Path))
			for _, want := range []string{"begin", "complaint", c.what} {
				if !strings.Contains(text, want) {
					t.Errorf("the evidence lacks %q:\n%s", want, text)
				}
			}
			if !waitingInTheKernel.MatchString(text) {
				t.Errorf("the evidence does not tell in which system call a process waits:\n%s", text)
			}
			if strings.Contains(b.read(t, filepath.Join(b.OutDir, AgentStdout)), "never") {
				t.Error("it went on")
			}
		})
	}
}

// TestLongerThanAHang: agents that are silent and work on.
func TestLongerThanAHang(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]string{
		"a busy child": "timeout 4 sh -c 'while :; do :; done'; exit 0",
		"children":     "for i in 1 2 3 4 5 6 7 8; do sleep 0.5; done",
		"lines":        "mkfifo p; exec 3<>p; for i in 1 2 3 4 5 6 7 8; do echo $i; read -t 0.5 -u 3; done; exit 0",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := hangBox(t, run)
			b.Hang = 2 * time.Second
			b.Order.Harness.Command = []string{"bash", "-c", run}
			check(t, Agent(t.Context(), b.Config), workorder.StatusSuccess, workorder.EndedByAgent, "")
		})
	}
	t.Run("files", func(t *testing.T) {
		t.Parallel()
		b := hangBox(t, `exec perl -e 'for (1..40) { open(F, ">", "f"); print F $_; close F; select(undef, undef, undef, 0.1) }'`)
		b.Hang = 2 * time.Second
		b.Changed = func() time.Time {
			st, err := os.Stat(filepath.Join(b.Workspace, "f"))
			if err != nil {
				return time.Time{}
			}
			return st.ModTime()
		}
		check(t, Agent(t.Context(), b.Config), workorder.StatusSuccess, workorder.EndedByAgent, "")
	})
}

// TestEndingIsNoHang: what an agent leaves in the background, with its output
// open, does not make its end a hang.
func TestEndingIsNoHang(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]string{
		"output held open": "sleep 600 & echo done",
		"in a session":     "setsid sleep 5 >/dev/null 2>&1 & echo done",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := hangBox(t, run)
			got := Agent(t.Context(), b.Config)
			check(t, got, workorder.StatusSuccess, workorder.EndedByAgent, "")
			if len(b.of(workorder.EventHang)) > 0 || len(got.Evidence) > 0 {
				t.Errorf("taken for a hang: %+v", b.events)
			}
		})
	}
}

func TestHangIsNotToldBeforeTheUsersStop(t *testing.T) {
	t.Parallel()
	b := hangBox(t, "sleep 3600")
	b.Hang = time.Hour
	ctx, cancel := contextWithCause(t)
	go func() {
		waitFor(t, "the agent's start", func() bool { return len(b.of(workorder.EventAgentStarted)) > 0 })
		cancel(ErrInterrupted)
	}()
	check(t, Agent(ctx, b.Config), workorder.StatusInterrupted, workorder.EndedBySignal, workorder.ReasonSignal)
}

// TestWhoseProcess needs root, to run things as somebody else.
func TestWhoseProcess(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can start processes as another user")
	}
	const uid = 64322 // not the agent's
	user := &proc.Credential{UID: uid, GID: uid}
	t.Cleanup(func() { proc.Sweep(uid, nil) })
	start := func(script string) *proc.Process {
		t.Helper()
		p, err := proc.Start(t.Context(), proc.Spec{Argv: []string{"sh", "-c", script}, Dir: "/", User: user})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	find := func(name string) (pid int) {
		t.Helper()
		waitFor(t, name, func() bool {
			for _, p := range procTable.all() {
				if p.uid == uid && procTable.command(p.pid, 100) == name {
					pid = p.pid
				}
			}
			return pid != 0
		})
		return pid
	}
	// A server of setup, whose parent is gone.
	_ = start("setsid sleep 1001 &").Wait()
	server := find("sleep 1001")
	agent := start("setsid sleep 1002 & sleep 1003 & exec sleep 1004")
	others := proc.SnapshotProcesses(uid, func(pid int) bool { return pid == server })
	s := newProcessScope(user, others)
	s.agent = agent.PID()
	ours := start("sleep 1005 & exec sleep 1006") // as git for a checkpoint
	tree := map[int]bool{find("sleep 1002"): true, find("sleep 1003"): true, find("sleep 1004"): true}
	find("sleep 1005")
	find("sleep 1006")

	agents, beside := s.look()
	if len(beside) != 1 || beside[0].pid != server {
		t.Errorf("beside the agent: %+v, want %d", beside, server)
	}
	if len(agents) != len(tree) {
		t.Errorf("of the agent: %+v, want %v", agents, tree)
	}
	for _, p := range agents {
		if !tree[p.pid] {
			t.Errorf("%d is taken for the agent's", p.pid)
		}
	}
	ours.Signal(syscall.SIGKILL)
	agent.Signal(syscall.SIGKILL)
}

// TestOurOwnWorkIsNoSignOfLife: snapshots of the work tree run as the agent's
// user all the time. A hang is one still, and they are not killed with what hangs. It
// needs root.
func TestOurOwnWorkIsNoSignOfLife(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can start processes as another user")
	}
	const uid = 64323 // not the agent's
	user := &proc.Credential{UID: uid, GID: uid}
	t.Cleanup(func() { proc.Sweep(uid, nil) })
	b := hangBox(t, "setsid sleep 3600 & sleep 3601")
	b.User, b.Workspace = user, "/"
	ctx, cancel := contextWithCause(t)
	var ours sync.WaitGroup
	ours.Go(func() {
		for ctx.Err() == nil {
			if err := proc.Run(t.Context(), proc.Spec{Argv: []string{"sh", "-c", "sleep 0.05; sleep 0.05"}, Dir: "/", User: user}); err != nil {
				t.Errorf("the sweep after the agent's end took our own: %v", err)
			}
		}
	})
	defer ours.Wait()
	defer cancel(nil)
	got := Agent(t.Context(), b.Config)
	check(t, got, workorder.StatusFailed, workorder.EndedByHang, workorder.ReasonHang, "sleep 360")
	for _, p := range procTable.all() {
		if p.uid == uid && strings.HasPrefix(procTable.command(p.pid, 100), "sleep 36") {
			t.Errorf("%d of the agent was left", p.pid)
		}
	}
}
