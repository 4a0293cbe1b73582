//go:build e2e

package e2e

import (
	"cmp"
	"crypto/sha1"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// chaosInterval is the checkpoint interval of every round: what a sudden end may cost.
	chaosInterval = 2 * time.Second
	// chaosSave is added to it for the save itself, from looking at the tree to the
	// remote's answer, on a machine that other tests flood.
	chaosSave = 8 * time.Second
	// chaosFiles is how many files the agent has to write, some five in a second, and chaosWork the time of that: it
	// works for longer than what may be lost, or a run that saves nothing would pass.
	chaosFiles = 80
	chaosWork  = 15 * time.Second
	// chaosTries bounds the calls until a task is done, chaosTasks the tasks until a blow strikes.
	chaosTries = 8
	chaosTasks = 4
	chaosToken = "chaos-token"
)

// TestChaos destroys runs at random moments, and finishes them as a scheduler
// would that knows nothing: by the same command again. Work that the agent
// entered in an outside journal is looked for after every blow.
//
// SANDBOX_AGENT_CHAOS_ROUNDS and SANDBOX_AGENT_CHAOS_SEED choose how many rounds and which; `make chaos` sets them.
// Otherwise each change meets one round of some kinds, and each night one of every kind.
func TestChaos(t *testing.T) {
	t.Parallel()
	kinds := blows
	if !nightly && os.Getenv("SANDBOX_AGENT_CHAOS_ROUNDS") == "" {
		kinds = slices.DeleteFunc(slices.Clone(blows), func(b blow) bool { return !b.everyChange })
	}
	seed, rounds := chaosNumber(t, "SANDBOX_AGENT_CHAOS_SEED", 20261121), chaosNumber(t, "SANDBOX_AGENT_CHAOS_ROUNDS", len(kinds))
	c := &chaos{seed: seed, rows: map[string]*chaosRow{}}
	t.Cleanup(func() { c.print(rounds) })
	t.Run("rounds", func(t *testing.T) {
		for n := range rounds {
			if b := kinds[n%len(kinds)]; !b.ownEngine {
				t.Run(fmt.Sprintf("%d %s", n, b.name), func(t *testing.T) {
					t.Parallel()
					c.round(t, n, b, newChaosUser(t, b, "", hostAddress(t)))
				})
			}
		}
	})
	t.Run("own engine", func(t *testing.T) {
		var e *ownEngine
		for n := range rounds {
			if b := kinds[n%len(kinds)]; b.ownEngine {
				if e == nil {
					e = newOwnEngine(t, 900<<20)
				}
				t.Run(fmt.Sprintf("%d %s", n, b.name), func(t *testing.T) {
					u := newChaosUser(t, b, e.host(), e.address)
					u.engine = e
					c.round(t, n, b, u)
				})
			}
		}
	})
}

func chaosNumber(t *testing.T, name string, otherwise int) int {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		return otherwise
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q is not a positive number", name, v)
	}
	return n
}

// chaos is what all rounds share.
type chaos struct {
	seed int
	mu   sync.Mutex
	rows map[string]*chaosRow
}

// chaosRow is a line of the table.
type chaosRow struct {
	rounds, struck, boxes, most, finished int
	lost                                  int           // files that were written and not saved
	loss                                  time.Duration // the longest time that was lost
}

// chaosUser is a user with a remote and a journal of their own.
type chaosUser struct {
	*user
	remote  *gittest.Server
	journal *journal
	project string
	repo    string // URL
	bare    string // the same on disk
	engine  *ownEngine
	id      string
}

func newChaosUser(t *testing.T, b blow, engine, address string) *chaosUser {
	t.Helper()
	env := []string{"SANDBOX_AGENT_GIT_TOKEN=" + chaosToken}
	image, services := "", "services:\n  redis: {image: "+redisImage+"}\n"
	if engine != "" {
		env = append(env, "DOCKER_HOST="+engine)
		image, services = "image: "+ownBox+"\n", ""
	}
	u := &chaosUser{user: newUser(t, env...), remote: gittest.NewAt(t, chaosToken, address), journal: newJournal(t, address), id: workorder.NewTaskID()}
	u.by = b.by
	u.repo = u.remote.Create(t, "r.git", map[string]string{"agent.sh": chaosAgent, "README": "x\n", ".gitignore": "*.ignored\n"})
	u.bare = filepath.Join(u.remote.Root, "r.git")
	u.project = u.user.project("name: chaos\nrepo: " + u.repo + "\n" + image + services +
		cmp.Or(b.limits, "timeout_minutes: 3\n") + "checkpoint_interval: " + chaosInterval.String() + "\npush_interval: " + chaosInterval.String() + "\n" +
		fmt.Sprintf("env: {FILES: %d, JOURNAL_HOST: %s, JOURNAL_PORT: %d}\n", chaosFiles, u.journal.host, u.journal.port) +
		// A proof saves nothing and takes longer than all that is struck at.
		"proof: false\nlifecycle:\n  setup: [sleep 0.3]\n  validate: {tree: git fsck --no-dangling && sleep 0.3}\n" +
		"harness: {name: command, command: bash ./agent.sh}\n")
	return u
}

// command is what a scheduler runs, and runs again.
func (u *chaosUser) command() []string {
	return []string{"create", "--json", "--project", u.project, "--task", "write the files", "--task-id", u.id, "--if-exists", "continue"}
}

// round strikes once for sure and now and then again, until the task is done.
func (c *chaos) round(t *testing.T, n int, b blow, u *chaosUser) {
	t.Helper()
	rng := rand.New(rand.NewPCG(uint64(c.seed), uint64(n))) // the seed makes a run repeatable
	row := chaosRow{rounds: 1}
	defer func() { c.add(b.name, row) }()
	// A blow that comes too late, or for what is not there yet, proves nothing: another task, then.
	for range chaosTasks {
		if c.task(t, b, u, rng, &row); row.struck > 0 || t.Failed() {
			return
		}
		u.id = workorder.NewTaskID()
		u.journal.forget()
	}
	t.Errorf("the blow never struck in %d tasks", chaosTasks)
}

func (c *chaos) task(t *testing.T, b blow, u *chaosUser, rng *rand.Rand, row *chaosRow) {
	t.Helper()
	done := false
	for try := 0; try < chaosTries && !done; try++ {
		s := u.start("", u.command()...)
		if try == 0 || rng.IntN(4) == 0 {
			at := b.strike(t, u, s, rng)
			s.wait()
			if !at.IsZero() {
				row.struck++
				u.afterBlow(b, at, row)
			}
		} else {
			s.wait()
		}
		call := call{code: proc.ExitCode(s.Wait()), stdout: s.out.String()}
		done = call.code == workorder.ExitOK
	}
	if !done {
		t.Errorf("the task is not done after %d calls of the same command", chaosTries)
		return
	}
	row.finished = 1
	row.boxes = u.attempts()
	row.most = row.boxes
	u.whole()
}

// afterBlow compares what is on the remote with the journal.
func (u *chaosUser) afterBlow(b blow, at time.Time, row *chaosRow) {
	u.t.Helper()
	if b.boxLives {
		return // it goes on, and saves what there is
	}
	lost, since := u.journal.missing(u.saved(), at)
	row.lost += len(lost)
	if since > row.loss {
		row.loss = since
	}
	if most := chaosInterval + chaosSave; since > most {
		u.t.Errorf("%s of work were lost, the interval is %s (and %s for the save): %v", since, chaosInterval, chaosSave, lost)
	}
}

// branch is the task's branch on the remote.
func (u *chaosUser) branch() string { return "refs/heads/agent/" + u.id + "-write-the-files" }

// saved are the contents (blob ids) that the remote has in any ref of the task.
func (u *chaosUser) saved() map[string]bool {
	u.t.Helper()
	refs := gittest.Git(u.t, u.bare, "for-each-ref", "--format=%(refname)", u.branch(), workorder.TaskRefs(u.id))
	got := map[string]bool{}
	for ref := range strings.FieldsSeq(refs) {
		// A stash has what was not tracked in a parent of its own.
		parents := gittest.Git(u.t, u.bare, "rev-parse", ref, ref+"^@")
		for commit := range strings.FieldsSeq(parents) {
			for _, blob := range u.tree(commit) {
				got[blob] = true
			}
			for _, blob := range u.counts(commit) {
				got[blob] = true
			}
		}
	}
	return got
}

// tree is the content of every file of a commit.
func (u *chaosUser) tree(commit string) map[string]string {
	u.t.Helper()
	got := map[string]string{}
	for entry := range strings.SplitSeq(gittest.Git(u.t, u.bare, "ls-tree", "-r", "-z", commit), "\x00") {
		if meta, path, ok := strings.Cut(entry, "\t"); ok {
			got[path] = strings.Fields(meta)[2]
		}
	}
	return got
}

// counts are the contents that the counter has had up to a commit. The agent may
// have counted on without having said so: every lower count is in it.
func (u *chaosUser) counts(commit string) (blobs []string) {
	u.t.Helper()
	out, err := proc.Output(u.t.Context(), proc.Spec{Argv: []string{"git", "-C", u.bare, "cat-file", "blob", commit + ":counter"}})
	if err != nil {
		return nil // it has none yet
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		n = 0 // cut off while it was written
	}
	for ; n > 0; n-- {
		text := strconv.Itoa(n) + "\n"
		blobs = append(blobs, fmt.Sprintf("%x", sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(text), text))))
	}
	return blobs
}

// attempts is how many boxes the task has had, by the remote's own account.
func (u *chaosUser) attempts() int {
	u.t.Helper()
	state, err := workorder.DecodeState([]byte(gittest.Git(u.t, u.bare, "cat-file", "blob", workorder.StateRef(u.id)+":"+workorder.StateFile)), u.id)
	if err != nil {
		u.t.Error(err)
		return 0
	}
	if state.Lease != nil {
		u.t.Errorf("the task is done, and its lease is held by %+v", state.Lease)
	}
	return len(state.Attempts)
}

// whole checks the end: every file with the content that was last recorded, a
// sound repository, and nothing left on this machine.
func (u *chaosUser) whole() {
	u.t.Helper()
	got := u.tree(u.branch())
	there, files := map[string]bool{}, 0
	for path, blob := range got {
		there[blob] = true
		if strings.HasPrefix(path, "work/") {
			files++
		}
		if strings.Contains(path, ".ignored") {
			u.t.Errorf("an ignored file was pushed: %s", path)
		}
	}
	if missing := u.journal.latestMissing(there); len(missing) > 0 {
		u.t.Errorf("not in the branch as last written: %v", missing)
	}
	if files != chaosFiles {
		u.t.Errorf("%d files, want %d", files, chaosFiles)
	}
	gittest.Git(u.t, u.bare, "fsck", "--strict", "--no-dangling")
	if refs := gittest.Git(u.t, u.bare, "for-each-ref", "--format=%(refname)", workorder.CheckpointRef(u.id)); refs != "" {
		u.t.Errorf("all is in the branch, and %s is still there", refs)
	}
	if c := u.run("", "gc"); c.code != 0 {
		u.t.Errorf("gc: exit code %d", c.code)
	}
	engine := eng
	if u.engine != nil {
		engine = u.engine.Client
	}
	u.noneLeft(engine)
}

func (c *chaos) add(name string, r chaosRow) {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := c.rows[name]
	if sum == nil {
		sum = &chaosRow{}
		c.rows[name] = sum
	}
	sum.rounds += r.rounds
	sum.struck += r.struck
	sum.boxes += r.boxes
	sum.finished += r.finished
	sum.lost += r.lost
	sum.most = max(sum.most, r.most)
	sum.loss = max(sum.loss, r.loss)
}

// print writes the table that docs/durability.md shows.
func (c *chaos) print(rounds int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Printf("chaos: %d rounds, seed %d, checkpoint interval %s\n", rounds, c.seed, chaosInterval)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "| what was done\t| rounds\t| blows that struck\t| boxes per task (most)\t| files lost\t| longest loss\t| finished\t|")
	fmt.Fprintln(w, "| ---\t| ---\t| ---\t| ---\t| ---\t| ---\t| ---\t|")
	var all chaosRow
	line := func(name string, r *chaosRow) {
		fmt.Fprintf(w, "| %s\t| %d\t| %d\t| %.1f (%d)\t| %d\t| %.1f s\t| %d\t|\n", name, r.rounds, r.struck,
			float64(r.boxes)/float64(max(1, r.finished)), r.most, r.lost, r.loss.Seconds(), r.finished)
	}
	for _, name := range slices.Sorted(maps.Keys(c.rows)) {
		r := c.rows[name]
		line(name, r)
		all.rounds += r.rounds
		all.struck += r.struck
		all.boxes += r.boxes
		all.finished += r.finished
		all.lost += r.lost
		all.most, all.loss = max(all.most, r.most), max(all.loss, r.loss)
	}
	line("all", &all)
	_ = w.Flush()
}

// A blow is a way to destroy a run.
type blow struct {
	name string
	// boxLives: the box goes on, so that nothing can be said of a loss yet.
	boxLives bool
	// ownEngine: it needs an engine that may be hurt.
	ownEngine bool
	// agent: it is the agent that does it, so that it has to be there.
	agent bool
	// everyChange: not only a nightly run has a round of it.
	everyChange bool
	// by is what the command is called through.
	by []string
	// limits are those of the project.
	limits string
	do     func(t *testing.T, u *chaosUser, s *started, rng *rand.Rand) bool
}

var blows = []blow{
	{name: "box: kill -9", everyChange: true, do: killBox},
	{name: "boot: kill -9", do: killInBox("entrypoint\x00boot\x00")},
	{name: "agent: kill -9", do: killInBox("bash\x00./agent.sh\x00")},
	{name: "inner dockerd: kill -9", do: killInBox("dockerd\x00"), boxLives: true},
	{name: "command: kill -9", boxLives: true, do: func(_ *testing.T, _ *chaosUser, s *started, _ *rand.Rand) bool {
		s.Signal(syscall.SIGKILL)
		return true
	}},
	{name: "command: SIGINT", do: func(_ *testing.T, _ *chaosUser, s *started, _ *rand.Rand) bool {
		s.Signal(syscall.SIGINT)
		return true
	}},
	{name: "command: SIGTERM to its group", do: func(_ *testing.T, _ *chaosUser, s *started, _ *rand.Rand) bool {
		s.Signal(syscall.SIGTERM)
		return true
	}},
	{name: "command: GNU timeout", by: []string{"timeout", "-k", "60", "600"}, do: endByTimeout},
	{name: "docker stop -t 10", do: stopBox},
	{name: "boot: kill -9, remote hangs, docker stop -t 10", do: stopInRescue},
	{name: "fork bomb of the agent", agent: true, limits: "timeout_minutes: 0.7\nlimits: {memory: 2g, pids: 300}\n", do: told(forkBomb, nil)},
	{name: "memory bomb of the agent", agent: true, limits: "timeout_minutes: 3\nlimits: {memory: 1g}\n", do: told(memoryBomb, nil)},
	{name: "commit of 80 MB, docker stop -t 10", agent: true, do: told(largeCommit, stopBox)},
	{name: "remote away for seconds", everyChange: true, boxLives: true, do: cutRemote},
	{name: "remote refuses for seconds", boxLives: true, do: refuse},
	{name: "remote hangs for seconds", boxLives: true, do: hold},
	{name: "remote away, box: kill -9", do: func(t *testing.T, u *chaosUser, s *started, rng *rand.Rand) bool {
		t.Helper()
		// The interval counts from the last time that anything could be saved.
		u.remote.Down.Store(true)
		defer u.remote.Down.Store(false)
		return killBox(t, u, s, rng)
	}},
	{name: "PID 1 and all: kill -9 twice", everyChange: true, do: func(t *testing.T, u *chaosUser, s *started, rng *rand.Rand) bool {
		t.Helper()
		boot := killInBox("entrypoint\x00boot\x00")(t, u, s, rng)
		time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond) // in the middle of rescue
		return killBox(t, u, s, rng) || boot
	}},
	{name: "full disk", ownEngine: true, do: fillDisk},
	{name: "engine: kill -9", ownEngine: true, do: func(_ *testing.T, u *chaosUser, _ *started, rng *rand.Rand) bool {
		u.engine.kill()
		time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
		u.engine.start()
		return true
	}},
}

// strike waits for a random moment of the run and carries out the blow. The time
// is zero when the run was over before.
func (b blow) strike(t *testing.T, u *chaosUser, s *started, rng *rand.Rand) time.Time {
	t.Helper()
	// One of three blows falls at a step of the run, the others while the agent works.
	steps := []string{"preflight", "image", "start", "box", "docker", "clone", "services", "setup", "agent", "validate", "push"}
	event, jitter := `"type":"agent.started"`, chaosWork
	// Without a container there is no disk to fill, nor anything on the engine to kill.
	if !b.ownEngine && !b.agent && rng.IntN(3) == 0 {
		event, jitter = `"type":"step.started","name":"`+steps[rng.IntN(len(steps))]+`"`, 400*time.Millisecond
	}
	after := time.Duration(rng.Int64N(int64(jitter)))
	for !strings.Contains(s.out.String(), event) {
		select {
		case <-s.Done():
			return time.Time{}
		case <-time.After(5 * time.Millisecond):
		}
	}
	select {
	case <-s.Done():
		return time.Time{}
	case <-time.After(after):
	}
	t.Logf("blow: %s, %s after %s", b.name, after, event)
	at := time.Now()
	if !b.do(t, u, s, rng) {
		return time.Time{} // there was nothing to strike yet, or any more
	}
	return at
}
