package launch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/companion"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/job"
	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/outcome"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/internal/test/runtimetest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const image = "box"

type images struct {
	err      error
	prepared string // the image with what was asked for; empty: it cannot be made
}

func (i images) Ensure(_ context.Context, name string, _ []string, _ func(workorder.Event)) (workorder.Image, error) {
	return workorder.Image{ID: "sha256:1", Name: name}, i.err
}

func (i images) Prepare(_ context.Context, img workorder.Image, packages []string, tools map[string]string, _ func(workorder.Event)) (workorder.Image, error) {
	if i.prepared == "" {
		return workorder.Image{}, errors.New("the archive does not answer")
	}
	return workorder.Image{ID: fmt.Sprint(img.ID, packages, tools), Name: i.prepared}, nil
}

type remote struct{ err error }

func (r remote) Check(context.Context, string, string, string, *workorder.GitCredential) (string, error) {
	return "refs/heads/main", r.err
}

func (r remote) Answers(context.Context, string, *workorder.GitCredential) error { return r.err }

// guest is a scripted box: what a real one says, without doing it.
type guest struct {
	b   *runtimetest.Box
	env *workorder.Envelope
	seq int64
	// late is how far its clock is ahead.
	late time.Duration
}

func newGuest(b *runtimetest.Box) *guest {
	g := &guest{b: b}
	env, err := workorder.DecodeEnvelope(b.Stdin)
	if err != nil {
		fmt.Fprintln(b.Stderr, err)
		return g
	}
	g.env = env
	g.say(workorder.Event{Type: workorder.EventReady})
	return g
}

func (g *guest) say(e workorder.Event) {
	g.seq++
	e.Seq, e.Time = g.seq, time.Now().Add(g.late)
	line, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	// In two pieces: no reader may take a write for a line.
	_, _ = g.b.Stdout.Write(line[:len(line)/2])
	_, _ = g.b.Stdout.Write(append(line[len(line)/2:], '\n'))
}

func (g *guest) end(s workorder.Status, by workorder.EndedBy) int {
	return g.endAs(workorder.Result{Status: s, EndedBy: by})
}

func (g *guest) endAs(res workorder.Result) int {
	r := &res
	r.TaskID, r.StartedAt = g.env.Order.TaskID, time.Now()
	b, err := r.Encode()
	if err != nil {
		panic(err)
	}
	g.b.WriteFile(workorder.OutDir+"/"+workorder.ResultFile, b)
	g.b.WriteFile(workorder.OutDir+"/logs/agent.log", []byte("the agent's log"))
	g.b.WriteFile(workorder.OutDir+"/task.json", []byte("forged"))
	g.say(workorder.Event{Type: workorder.EventResult, Result: r})
	return workorder.ExitCode(r.Status, r.EndedBy)
}

func happy(b *runtimetest.Box) int {
	g := newGuest(b)
	g.say(workorder.Event{Type: workorder.EventStepStarted, Name: "clone"})
	g.say(workorder.Event{Type: workorder.EventStepFinished, Name: "clone", Status: "done"})
	fmt.Fprintln(b.Stderr, "the guest's own log")
	return g.end(workorder.StatusSuccess, workorder.EndedByAgent)
}

// fixture is a launcher on a fake engine.
type fixture struct {
	*launch.Launcher
	fake *runtimetest.Fake
	mu   sync.Mutex
	seen []workorder.Event
	// ready gets a value for every event that is shown.
	ready chan workorder.Event
}

func setup(t *testing.T, p runtimetest.Program) *fixture {
	t.Helper()
	f := &fixture{fake: runtimetest.NewFake(map[string]runtimetest.Program{image: p}), ready: make(chan workorder.Event, 1000)}
	f.Launcher = f.launcher(t, taskstore.New(t.TempDir()))
	return f
}

func (f *fixture) launcher(t *testing.T, st *taskstore.Store) *launch.Launcher {
	t.Helper()
	return &launch.Launcher{
		Host: launch.Host{
			Engine: f.fake, Store: st, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
			Show: func(e workorder.Event) {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.seen = append(f.seen, e)
				f.ready <- e
			},
		},
		Images: images{}, Remote: remote{}, EngineGone: 2 * time.Second,
		StartCompanion: func(context.Context, companion.Config) (companion.Ready, error) {
			return companion.Ready{}, errors.New("no companion in this test")
		},
	}
}

// waitFor blocks until an event of the type is shown.
func (f *fixture) waitFor(t *testing.T, typ workorder.EventType) {
	t.Helper()
	for {
		select {
		case e := <-f.ready:
			if e.Type == typ {
				return
			}
		case <-t.Context().Done():
			t.Fatal("the test ended first")
		}
	}
}

func (f *fixture) seqs() (s []int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.seen {
		if e.Seq > 0 {
			s = append(s, e.Seq)
		}
	}
	return s
}

// values are secrets that need no finding.
func values(m map[string]string) func(context.Context) (map[string]string, error) {
	return func(context.Context) (map[string]string, error) { return m, nil }
}

func newJob() *job.Job {
	id := workorder.NewTaskID()
	return &job.Job{
		Owner: "test", Secrets: values(map[string]string{"KEY": "cnry123"}),
		Git: &workorder.GitCredential{Token: "cnry456"},
		Order: workorder.Order{
			Version: workorder.Version, TaskID: id, Mode: workorder.ModeCreate, AttemptID: "0123456789abcdef", Project: "p", Task: "do it", BoxSpec: workorder.BoxSpec{Image: image, Isolation: workorder.IsolationConfined, SecretNames: []string{"KEY"}, Network: workorder.NetworkPolicy{Mode: workorder.NetworkFull}},
			Repo: "https://git.example/r.git", CloneURL: "https://git.example/r.git", TargetBranch: workorder.Branch(id, "do it"),
			Harness: workorder.Harness{Name: "command"}, TimeoutMinutes: 1,
		},
	}
}

// onDisk reads what the run left, and fails when it is not whole.
func onDisk(t *testing.T, st *taskstore.Store, id string) (*taskstore.Record, *workorder.Result) {
	t.Helper()
	rec, err := st.Load(id)
	if err != nil {
		t.Fatal(err)
	}
	res, err := outcome.ReadResult(rec)
	if err != nil {
		t.Fatal(err)
	}
	return rec, res
}
