package sandbox

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/sandboxstore"
)

// What somebody else has removed is made anew by its next use, once, and what we have removed is not.
func TestGone(t *testing.T) {
	t.Parallel()
	f, state := newFake(t), t.TempDir()
	m := f.newManager(state)
	create(t, m, Spec{Name: "a", Env: []string{"A=b"}, Network: NetworkNone, Limits: Limits{PIDs: 100}})
	create(t, m, Spec{Name: "b"})
	f.lose(t, "a")
	if got := states(t, m); got != "a gone, b running" {
		t.Errorf("%s", got)
	}
	// Several at once make one.
	var wg sync.WaitGroup
	sbs := []*Sandbox{find(t, m, "a"), find(t, f.newManager(state), "a"), find(t, m, "a")}
	for _, sb := range sbs {
		wg.Go(func() {
			if r, err := sb.Run(t.Context(), Command{Argv: []string{"true"}}); err != nil || r.ExitCode != 0 || !sb.Recreated() {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
	wg.Wait()
	if f.stands != 3 || len(f.boxes) != 2 || len(f.volumes) != 0 {
		t.Errorf("%d were made, %d are there", f.stands, len(f.boxes))
	}
	if s := find(t, m, "a").Spec(); s.Network != NetworkNone || s.Limits.PIDs != 100 || len(s.Env) != 1 {
		t.Errorf("it is another one: %+v", s)
	}
	if sb := find(t, m, "b"); run(t, sb, "echo x") != "x" || sb.Recreated() {
		t.Error("one that was there")
	}
	// One that was seen before.
	sb := find(t, m, "b")
	if run(t, sb, "echo x") != "x" {
		t.Error("no command runs")
	}
	f.lose(t, "b")
	for {
		r, err := sb.Run(t.Context(), Command{Argv: []string{"true"}})
		if errors.Is(err, ErrConnectionLost) { // the connection's end was not seen yet
			continue
		}
		if err != nil || r.ExitCode != 0 || !sb.Recreated() {
			t.Errorf("%+v, %v", r, err)
		}
		break
	}
	stale := find(t, m, "b")
	if err := find(t, m, "b").Remove(t.Context(), RemoveOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := stale.Run(t.Context(), Command{Argv: []string{"true"}}); !errors.Is(err, ErrNotFound) {
		t.Errorf("one that was removed: %v", err)
	}
	if _, err := m.Get(t.Context(), "b"); !errors.Is(err, ErrNotFound) {
		t.Errorf("one that was removed: %v", err)
	}
	if _, err := os.Stat(m.creator.kept.Dir("b")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something is kept: %v", err)
	}
	// Gone, and then removed by us.
	f.lose(t, "a")
	if err := find(t, m, "a").Remove(t.Context(), RemoveOptions{}); err != nil || states(t, m) != "" {
		t.Errorf("%v, %s", err, states(t, m))
	}
	// Endpoints do not make it anew, and do not start it.
	create(t, m, Spec{Name: "c"})
	c := find(t, m, "c")
	if err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if conn, err := c.Endpoints().DialPort(t.Context(), 1); err == nil {
		_ = conn.Close()
		t.Error("something listens in a stopped sandbox")
	}
	if got := states(t, m); got != "c stopped" {
		t.Errorf("%s", got)
	}
	f.lose(t, "c")
	if _, err := c.Endpoints().DialPort(t.Context(), 1); !errors.Is(err, ErrNotFound) || states(t, m) != "c gone" {
		t.Errorf("%v, %s", err, states(t, m))
	}
}

// A container that its engine has paused is listed as such, and asking for its status does not wait for an answer.
func TestPaused(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	m := f.newManager(t.TempDir())
	create(t, m, Spec{Name: "a"})
	f.mu.Lock()
	for _, b := range f.boxes {
		b.State = "paused"
	}
	f.mu.Unlock()
	if got := states(t, m); got != "a paused" || !StatePaused.Live() {
		t.Error(got)
	}
	if s, err := find(t, m, "a").Status(t.Context()); err != nil || s.State != StatePaused || s.Since != nil {
		t.Errorf("%+v, %v", s, err)
	}
}

// One that is on another engine is neither found here nor made anew nor forgotten.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	f, g, state := newFake(t), newFake(t), t.TempDir()
	g.identity = "there"
	create(t, f.newManager(state), Spec{Name: "a"})
	other := g.newManager(state)
	if _, err := other.Get(t.Context(), "a"); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v", err)
	}
	if got := states(t, other); got != "a elsewhere" {
		t.Errorf("%s", got)
	}
	if done, err := other.GC(t.Context(), GCOptions{Force: true}); err != nil || len(done) != 0 {
		t.Errorf("%+v, %v", done, err)
	}
	if got := states(t, f.newManager(state)); got != "a running" {
		t.Errorf("%s", got)
	}
	if err := other.RemoveRecord(t.Context(), "a"); err != nil || states(t, other) != "" {
		t.Errorf("%v, %s", err, states(t, other))
	}
	if err := other.RemoveRecord(t.Context(), "a"); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v", err)
	}
}

// A sandbox of another state directory is neither found, listed nor changed; a name clash says whose it is, and it
// can be discarded on request.
func TestOfOthers(t *testing.T) {
	t.Parallel()
	f, dir := newFake(t), t.TempDir()
	mine, others := f.newManager(dir), f.newManager(t.TempDir())
	create(t, mine, Spec{Name: "a"})
	create(t, mine, Spec{Name: "c"})
	create(t, others, Spec{Name: "b"})
	if _, err := find(t, mine, "a").Snapshot(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	if got := states(t, others); got != "b running" {
		t.Errorf("%s", got)
	}
	whose := func(err, kind error) {
		t.Helper()
		if !errors.Is(err, ErrOtherOwner) || kind != nil && !errors.Is(err, kind) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%v", err)
		}
	}
	for _, get := range []func() (*Sandbox, error){
		func() (*Sandbox, error) { return others.Get(t.Context(), "a") },
		func() (*Sandbox, error) { return others.GetRunning(t.Context(), "a") },
	} {
		_, err := get()
		whose(err, ErrNotFound)
	}
	_, err := others.Create(t.Context(), Spec{Name: "a", Image: "i"})
	whose(err, ErrExists)
	_, err = find(t, others, "b").Fork(t.Context(), "a")
	whose(err, ErrExists)
	_, err = others.Snapshots().Restore(t.Context(), "a", "s")
	whose(err, nil)
	whose(others.Snapshots().Remove(t.Context(), "a", "s"), nil)
	if all, err := others.Snapshots().List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
	if err := others.RemoveRecord(t.Context(), "a"); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v", err)
	}
	if done, err := others.GC(t.Context(), GCOptions{Force: true}); err != nil || len(done) != 0 {
		t.Errorf("%+v, %v", done, err)
	}
	// With AllUsers it can be looked at and discarded.
	all := f.newManager(others.creator.state)
	all.creator.allUsers = true
	if got := states(t, all); got != "a running, b running, c running" {
		t.Errorf("%s", got)
	}
	sb := find(t, all, "a")
	if sb.Info().Own || sb.Info().Owner == "" {
		t.Errorf("%+v", sb.Info())
	}
	_, rerr := sb.Run(t.Context(), Command{Argv: []string{"true"}})
	_, reset := sb.Reset(t.Context())
	_, snapshot := sb.Snapshot(t.Context(), "x")
	_, fork := sb.Fork(t.Context(), "x")
	for _, err := range []error{
		rerr, reset, snapshot, fork, sb.Stop(t.Context()), sb.SetNetwork(t.Context(), NetworkNone),
		sb.Resume(t.Context()),
	} {
		whose(err, nil)
	}
	if run(t, find(t, mine, "a"), "echo x") != "x" {
		t.Error("it was changed")
	}
	if err := find(t, all, "c").in.discard(t.Context()); err != nil {
		t.Error(err)
	}
	if got := states(t, mine); got != "a running, c gone" {
		t.Errorf("%s", got)
	}
}

// A sandbox that could not be finished nor removed is no sandbox: the next command makes it.
func TestUnfinished(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	m := f.newManager(t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	f.stood, f.stuck = cancel, errors.New("the engine does not answer")
	if _, err := m.Create(ctx, Spec{Name: "a", Image: "i"}); !errors.Is(err, context.Canceled) || !errors.Is(err, f.stuck) {
		t.Fatal(err)
	}
	if m.creator.incomplete("a") == nil {
		t.Error("it counts as finished")
	}
	f.stood, f.stuck = nil, nil
	create(t, m, Spec{Name: "a"})
	if got := states(t, m); got != "a running" {
		t.Error(got)
	}
}

// No method takes an invalid name for another one, or for all.
func TestInvalidNames(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	m := f.newManager(t.TempDir())
	create(t, m, Spec{Name: "a"})
	m.creator.allUsers = true
	for _, name := range []string{"", " ", "-", ".", "..", "a/b", "../a", "A", "a\n", "a b", "ä", "a=b", strings.Repeat("a", 64)} {
		_, get := m.Get(t.Context(), name)
		_, peek := m.GetRunning(t.Context(), name)
		_, created := m.Create(t.Context(), Spec{Name: name, Image: "i"})
		_, fork := find(t, m, "a").Fork(t.Context(), name)
		_, list := m.Snapshots().ListOf(t.Context(), name)
		_, restore := m.Snapshots().Restore(t.Context(), name, "s")
		_, again := m.Snapshots().Restore(t.Context(), "a", name)
		_, snapshot := find(t, m, "a").Snapshot(t.Context(), name)
		for i, err := range []error{
			get, peek, created, fork, list, restore, again, snapshot, m.RemoveRecord(t.Context(), name),
			m.Snapshots().Remove(t.Context(), name, "s"), m.Snapshots().Remove(t.Context(), "a", name),
		} {
			if !errors.Is(err, ErrName) || !errors.Is(err, ErrInvalidSpec) {
				t.Errorf("%q: %d: %v", name, i, err)
			}
		}
	}
	if got := states(t, m); got != "a running" || len(f.images) != 0 {
		t.Errorf("%s, %d images", got, len(f.images))
	}
}

// A sandbox whose maker was killed is made anew by the next command, by no other look at it, and its name is free.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	f, state := newFake(t), t.TempDir()
	m := f.newManager(state)
	half := func(name string, c sandboxstore.Creation) {
		t.Helper()
		sb := create(t, m, Spec{Name: name, Title: "first"})
		run(t, sb, "echo half >f")
		if err := m.creator.begin(sb.Spec(), c); err != nil { // as before the end of Create
			t.Fatal(err)
		}
	}
	half("a", sandboxstore.Creation{New: true, Event: sandboxstore.EventCreated})
	sb := find(t, m, "a")
	if s, err := sb.Status(t.Context()); err != nil || s.Since != nil {
		t.Errorf("%+v, %v", s, err)
	}
	if peek, err := m.GetRunning(t.Context(), "a"); err != nil {
		t.Error(err)
	} else if _, err := peek.Run(t.Context(), Command{Argv: []string{"true"}}); !errors.Is(err, errIncomplete) {
		t.Errorf("%v", err)
	}
	stands, late := f.stands, find(t, m, "a")
	var wg sync.WaitGroup
	for _, one := range []*Sandbox{sb, find(t, f.newManager(state), "a")} {
		wg.Go(func() {
			if r, err := one.Run(t.Context(), Command{Argv: []string{"ls"}}); err != nil || len(r.Stdout) > 0 || one.Recreated() {
				t.Errorf("%s, %v", r.Stdout, err)
			}
		})
	}
	wg.Wait()
	if run(t, late, "ls"); late.Recreated() {
		t.Error("a sandbox that another command completed counts as recreated")
	}
	if f.stands != stands+1 || m.creator.incomplete("a") != nil {
		t.Errorf("it was made %d times", f.stands-stands)
	}
	// One that is being made anew is its owner's; a new one that is not complete is nobody's.
	half("b", sandboxstore.Creation{Restore: true, Event: sandboxstore.EventRecreated})
	if _, err := m.Create(t.Context(), Spec{Name: "b", Image: "i"}); !errors.Is(err, ErrExists) {
		t.Errorf("%v", err)
	}
	if again := find(t, m, "b"); run(t, again, "ls") != "" || !again.Recreated() {
		t.Error("it was not made anew")
	}
	half("c", sandboxstore.Creation{New: true, Event: sandboxstore.EventCreated})
	if again := create(t, m, Spec{Name: "c"}); run(t, again, "ls") != "" || again.Spec().Title != "" {
		t.Error("it was not made anew")
	}
	half("d", sandboxstore.Creation{New: true, Event: sandboxstore.EventCreated})
	f.lose(t, "d")
	if err := m.RemoveRecord(t.Context(), "d"); err != nil || m.creator.incomplete("d") != nil {
		t.Errorf("%v", err)
	}
	// What was begun is known by what is there where its file is damaged.
	half("e", sandboxstore.Creation{})
	if err := os.WriteFile(filepath.Join(m.creator.kept.Dir("e"), "creation.json"), make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	if again := find(t, m, "e"); run(t, again, "ls") != "" || again.Spec().Title != "first" {
		t.Error("it was not made anew")
	}
	half("f", sandboxstore.Creation{New: true, Event: sandboxstore.EventCreated})
	if err := find(t, m, "f").Remove(t.Context(), RemoveOptions{}); err != nil {
		t.Error(err)
	}
	if got := states(t, m); got != "a running, b running, c running, e running" {
		t.Errorf("%s", got)
	}
}

// The history has what was done and outlives the sandbox, and nothing that may be secret. A session has none.
func TestHistoryOfSandbox(t *testing.T) {
	t.Parallel()
	f, state := newFake(t), t.TempDir()
	m := f.newManager(state)
	create(t, m, Spec{Name: "a", Env: []string{"KEY=canary"}})
	sb := find(t, m, "a")
	for _, c := range []Command{
		{Argv: []string{"sh", "-c", "exit 3", "canary"}, Env: []string{"B=canary"}},
		{Argv: []string{"sleep", "0"}, Background: true},
	} {
		if _, err := sb.Run(t.Context(), c); err != nil {
			t.Error(err)
		}
	}
	for _, background := range []bool{false, true} {
		if _, err := sb.Run(t.Context(), Command{Argv: []string{"true"}, Background: background, Unrecorded: true}); err != nil {
			t.Error(err)
		}
	}
	if err := sb.in.exec(t.Context(), []string{"true"}, nil, nil); err != nil { // what a save and a clone run
		t.Error(err)
	}
	if err := sb.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if err := find(t, m, "a").Resume(t.Context()); err != nil {
		t.Error(err)
	}
	if err := sb.SetNetwork(t.Context(), NetworkNone); err != nil {
		t.Error(err)
	}
	if _, err := sb.Snapshot(t.Context(), "s"); err != nil {
		t.Error(err)
	}
	f.lose(t, "a")
	again := find(t, m, "a")
	if err := again.Resume(t.Context()); err != nil {
		t.Error(err)
	}
	if err := again.Remove(t.Context(), RemoveOptions{}); err != nil {
		t.Error(err)
	}
	if got := events(t, m, "a"); got != "created executed executed stopped started network_changed snapshot ended recreated removed" {
		t.Errorf("%s", got)
	}
	all, err := m.creator.kept.History("a")
	if err != nil || all[1].Program != "sh" || all[1].Code == nil || *all[1].Code != 3 || !all[2].Background || all[2].Code != nil {
		t.Errorf("%+v, %v", all, err)
	}
	audit, err := os.ReadFile(filepath.Join(state, sandboxstore.Dir, "audit.jsonl"))
	if err != nil || len(audit) == 0 || strings.Contains(string(audit), "canary") || strings.Contains(string(audit), "exit 3") {
		t.Errorf("%s, %v", audit, err)
	}
	session := create(t, m, Spec{Name: "s", Lifetime: LifetimeEphemeral})
	if run(t, session, "echo x") != "x" || session.Remove(t.Context(), RemoveOptions{}) != nil || events(t, m, "s") != "" {
		t.Errorf("a session has a history: %s", events(t, m, "s"))
	}
}

// The history has each end that no command asked for, once, however many look, and each creation that failed.
func TestHistoryOfEnds(t *testing.T) {
	t.Parallel()
	f, state := newFake(t), t.TempDir()
	m := f.newManager(state)
	create(t, m, Spec{Name: "a"})
	id := find(t, m, "a").in.id
	kill := func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		b, err := f.get(id)
		if err != nil {
			t.Fatal(err)
		}
		b.stop()
		b.Status = "Exited (137) 2 seconds ago"
	}
	kill()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, err := f.newManager(state).List(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	find(t, m, "a")
	if got := events(t, m, "a"); got != "created ended" {
		t.Errorf("%s", got)
	}
	if all, err := m.creator.kept.History("a"); err != nil || !strings.Contains(all[1].Detail, "exited (137)") {
		t.Errorf("%+v, %v", all, err)
	}
	// A sandbox that was seen running.
	sb := find(t, m, "a")
	if err := sb.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	sb = find(t, m, "a")
	kill()
	if err := sb.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := events(t, m, "a"); got != "created ended started ended started" {
		t.Errorf("%s", got)
	}
	if err := sb.Stop(t.Context()); err != nil || states(t, m) != "a stopped" || !strings.HasSuffix(events(t, m, "a"), " started stopped") {
		t.Errorf("%s, %v", events(t, m, "a"), err)
	}
	for _, s := range []Spec{
		{Name: "bad"},
		{Name: "bad", Runtime: RuntimeContainer, Image: "x", OCIRuntime: "runsc"},
		{Name: "a", Runtime: RuntimeContainer, Image: "x"},
		{Name: "bad", Lifetime: LifetimeEphemeral},
	} {
		if _, err := m.Create(t.Context(), s); err == nil {
			t.Errorf("%+v was created", s)
		}
	}
	if got := events(t, m, "bad"); got != "failed failed" || strings.Contains(events(t, m, "a"), "failed") {
		t.Errorf("%s; %s", got, events(t, m, "a"))
	}
}

// The network that a sandbox has is in what is told of it, over a reset and when it is made anew.
func TestSetNetwork(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	m := f.newManager(t.TempDir())
	create(t, m, Spec{Name: "a"})
	for _, c := range []struct {
		to    NetworkMode
		allow []string
		want  error
	}{
		{NetworkRestricted, nil, ErrUnsupported},
		{"x", nil, ErrInvalidSpec},
		{NetworkNone, []string{"a"}, ErrInvalidSpec},
		{NetworkNone, nil, nil},
		{NetworkNone, nil, nil},
	} {
		if err := find(t, m, "a").SetNetwork(t.Context(), c.to, c.allow...); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.to, err)
		}
	}
	if got := find(t, m, "a").Spec().Network; got != NetworkNone {
		t.Errorf("%s", got)
	}
	again, err := find(t, m, "a").Reset(t.Context())
	if err != nil || again.Spec().Network != NetworkNone {
		t.Errorf("%v", err)
	}
	f.lose(t, "a")
	sb := find(t, m, "a")
	if err := sb.SetNetwork(t.Context(), NetworkFull); err != nil || find(t, m, "a").Spec().Network != NetworkFull {
		t.Errorf("of one that is gone: %v", err)
	}
	f.lose(t, "a")
	if got := find(t, m, "a").Spec().Network; got != NetworkFull {
		t.Errorf("%s", got)
	}
}

func TestSnapshots(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	m := f.newManager(t.TempDir())
	create(t, m, Spec{Name: "a", Env: []string{"A=b"}})
	write := func(text string) {
		t.Helper()
		run(t, find(t, m, "a"), "echo "+text+" >f")
	}
	read := func(name string) string { t.Helper(); return run(t, find(t, m, name), "cat f") }
	write("one")
	if _, err := find(t, m, "a").Snapshot(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]error{"s": ErrSnapshotExists, "../evil": ErrInvalidSpec, "": ErrInvalidSpec, "A": ErrInvalidSpec} {
		if _, err := find(t, m, "a").Snapshot(t.Context(), name); !errors.Is(err, want) {
			t.Errorf("%q: %v", name, err)
		}
	}
	write("two")
	restore := func(name, want string) {
		t.Helper()
		sb, err := m.Snapshots().Restore(t.Context(), "a", name)
		if err != nil {
			t.Fatal(err)
		}
		if got := read("a"); got != want || len(sb.Spec().Env) != 1 || sb.Spec().Image != "i" {
			t.Errorf("%s: %q, %+v", name, got, sb.Spec())
		}
		_ = sb.Close()
	}
	restore("s", "one")
	restore(beforeRestore, "two") // nothing is lost by a restore, and one of that is taken back as well
	restore(beforeThat, "one")
	restore("s", "one")
	if all, err := m.Snapshots().ListOf(t.Context(), "a"); err != nil || len(all) != 3 || len(f.images) != 3 {
		t.Errorf("%+v, %d images, %v", all, len(f.images), err)
	}
	if err := m.Snapshots().Remove(t.Context(), "a", "s"); !errors.Is(err, ErrInUse) {
		t.Errorf("%v", err)
	}
	if _, err := m.Snapshots().Restore(t.Context(), "a", "nope"); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v", err)
	}
	// A fork has the files, and goes with its image.
	fork, err := find(t, m, "a").Fork(t.Context(), "b")
	if err != nil || read("b") != "one" || fork.Spec().Name != "b" || len(fork.Spec().Env) != 1 {
		t.Fatalf("%v", err)
	}
	for name, want := range map[string]error{"a": ErrExists, "b": ErrExists, "B": ErrInvalidSpec} {
		if _, err := find(t, m, "a").Fork(t.Context(), name); !errors.Is(err, want) {
			t.Errorf("%q: %v", name, err)
		}
	}
	run(t, find(t, m, "b"), "echo three >f")
	if read("a") != "one" || read("b") != "three" {
		t.Error("both have the same files")
	}
	if again, err := find(t, m, "b").Reset(t.Context()); err != nil || len(f.images) != 3 || run(t, again, "ls") != "" {
		t.Errorf("a fork that is reset: %d images, %v", len(f.images), err)
	}
	// A fork of that name that was killed after its image was made leaves none.
	if _, err := find(t, m, "b").in.image(t.Context(), forkRef+"c", map[string]string{
		runtime.LabelSnapshot: "",
		labelSnapshotOf:       "c",
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := find(t, m, "b").Fork(t.Context(), "c"); err != nil || len(f.images) != 4 {
		t.Fatalf("%d images, %v", len(f.images), err)
	}
	// and an engine may be late with it
	if _, err := find(t, m, "b").in.image(t.Context(), forkRef+"c.late", map[string]string{
		runtime.LabelSnapshot: "",
		labelSnapshotOf:       "c",
	}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c"} {
		if err := find(t, m, name).Remove(t.Context(), RemoveOptions{}); err != nil {
			t.Error(err)
		}
	}
	if len(f.images) != 3 {
		t.Errorf("%d images are left", len(f.images))
	}
	// What outlives its sandbox brings it back.
	restore("s", "one")
	if err := find(t, m, "a").Remove(t.Context(), RemoveOptions{}); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"s", beforeRestore, beforeThat} {
		if err := m.Snapshots().Remove(t.Context(), "a", name); err != nil {
			t.Error(err)
		}
	}
	if len(f.images) != 0 || len(f.boxes) != 0 {
		t.Errorf("%d images and %d sandboxes are left", len(f.images), len(f.boxes))
	}
}

// What a dead program left is removed, and nothing of the living and of others.
func TestCollect(t *testing.T) {
	t.Parallel()
	f, state := newFake(t), t.TempDir()
	m, others := f.newManager(state), f.newManager(t.TempDir())
	create(t, m, Spec{Name: "lives"})
	session := create(t, m, Spec{Name: "session", Lifetime: LifetimeEphemeral})
	create(t, others, Spec{Name: "other"})
	create(t, m, Spec{Name: "gone"})
	create(t, m, Spec{Name: "unknown"})
	create(t, m, Spec{Name: "damaged"})
	create(t, m, Spec{Name: "unstarted"})
	create(t, others, Spec{Name: "other-unstarted"})
	if _, err := find(t, m, "lives").Fork(t.Context(), "forked"); err != nil {
		t.Fatal(err)
	}
	f.lose(t, "gone")
	f.lose(t, "forked")
	if err := m.creator.kept.Remove("unknown"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(m.creator.kept.Dir("damaged"), "record.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	for _, b := range f.boxes {
		if name := b.Labels[labelName]; name == "unstarted" || name == "other-unstarted" {
			b.stop()
			b.State, b.Created = "created", time.Now().Add(-time.Hour)
		}
	}
	f.mu.Unlock()
	want := map[GCAction]bool{
		{Action: GCRemoveSandbox, Target: "unstarted"}: true, {Action: GCWriteRecord, Target: "unknown"}: true, {Action: GCWriteRecord, Target: "damaged"}: true,
		{Action: GCForgetSandbox, Target: "gone", NeedsForce: true}: true, {Action: GCForgetSandbox, Target: "forked", NeedsForce: true}: true, {Action: GCRemoveVolume, Target: "of-gone"}: true,
		{Action: GCRemoveVolume, Target: "of-forked"}: true,
	}
	for _, o := range []GCOptions{{DryRun: true}, {DryRun: true}, {}} {
		done, err := m.GC(t.Context(), o)
		got := map[GCAction]bool{}
		for _, c := range done {
			got[c] = true
		}
		if err != nil || len(got) != len(want) {
			t.Errorf("%+v: %+v, %v", o, done, err)
		}
		for c := range want {
			if !got[c] {
				t.Errorf("%+v: %+v is not done", o, c)
			}
		}
	}
	if done, err := m.GC(t.Context(), GCOptions{Force: true}); err != nil || len(done) != 3 || len(f.images) != 0 {
		t.Errorf("%+v, %v", done, err)
	}
	if done, err := m.GC(t.Context(), GCOptions{Force: true}); err != nil || len(done) != 0 {
		t.Errorf("again: %+v, %v", done, err)
	}
	if run(t, session, "echo x") != "x" {
		t.Error("a session of the living was removed")
	}
	if got := states(t, m); got != "damaged running, lives running, session running, unknown running" {
		t.Errorf("%s", got)
	}
}

// The list shows of a damaged sandbox what the registry has of it.
func TestDamagedSandboxKeepsWhatIsKept(t *testing.T) {
	t.Parallel()
	f, state := newFake(t), t.TempDir()
	m := f.newManager(state)
	create(t, m, Spec{Name: "s", Env: []string{"A=b"}})
	f.mu.Lock()
	for _, b := range f.boxes {
		b.Damaged, b.Created, b.Labels = errors.New("damaged"), time.Time{}, map[string]string{labelName: "s", labelOwner: b.Labels[labelOwner]}
	}
	f.mu.Unlock()
	look := func() Info {
		t.Helper()
		all, err := m.List(t.Context())
		if err != nil || len(all) != 1 || all[0].State != StateDamaged || all[0].Error == "" || all[0].Runtime == "" {
			t.Fatalf("%+v, %v", all, err)
		}
		return all[0]
	}
	if i := look(); i.Created.IsZero() || len(i.Spec.Env) != 1 {
		t.Errorf("%+v", i)
	}
	if err := m.creator.kept.Remove("s"); err != nil {
		t.Fatal(err)
	}
	if i := look(); !i.Created.IsZero() || i.Spec.Name != "s" {
		t.Errorf("%+v", i)
	}
}

// An engine lists a container until its removal is done: a command that comes meanwhile waits for that, and recreates the sandbox.
func TestBeingRemoved(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	m := f.newManager(t.TempDir())
	create(t, m, Spec{Name: "a"})
	sb := find(t, m, "a")
	for _, b := range f.boxes {
		b.removing = 4
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if r, err := sb.Run(ctx, Command{Argv: []string{"true"}}); err != nil || r.ExitCode != 0 || !sb.Recreated() {
		t.Errorf("%+v, %v, recreated: %v", r, err, sb.Recreated())
	}
}
