package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// syncBuffer is a bytes.Buffer that the recorder's stream may share with the test.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) events(t *testing.T) []workorder.Event {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var es []workorder.Event
	for line := range strings.Lines(s.b.String()) {
		e, err := workorder.DecodeEvent([]byte(line))
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		es = append(es, e)
	}
	return es
}

type mask struct{ secret string }

func (m mask) String(s string) string { return strings.ReplaceAll(s, m.secret, "***") }

func open(t *testing.T, stream *syncBuffer, out, state string) *Recorder {
	t.Helper()
	r, err := New(Options{OutDir: out, StateDir: state, Stream: stream})
	if err != nil {
		t.Fatal(err)
	}
	r.SetMask(mask{"s3cret"})
	return r
}

func TestRecordOfARun(t *testing.T) {
	t.Parallel()
	var stream syncBuffer
	out := t.TempDir()
	r := open(t, &stream, out, t.TempDir())
	r.Declare("one", "two", "three")
	r.StepStarted("two")
	code := 7
	r.StepFinished("two", errors.New("s3cret failed"), &code)
	r.StepFinished("one", &Skip{Reason: "nothing to do"}, nil)
	r.StepStarted("three")
	r.Emit(workorder.Event{Type: workorder.EventAgentText, Text: strings.Repeat("é", workorder.MaxEventText)})
	if err := r.Finish(func(res *workorder.Result) {
		res.Status, res.Reasons = workorder.StatusFailed, workorder.Because(workorder.ReasonAgent, "because s3cret")
	}); err != nil {
		t.Fatal(err)
	}
	if err := r.Finish(func(*workorder.Result) { t.Error("finished twice") }); err != nil {
		t.Fatal(err)
	}

	b, err := os.ReadFile(filepath.Join(out, workorder.ResultFile))
	if err != nil {
		t.Fatal(err)
	}
	res, err := workorder.DecodeResult(b)
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Steps) != 3 || res.Steps[0].Status != workorder.StepSkipped || res.Steps[1].Status != workorder.StepFailed ||
		*res.Steps[1].ExitCode != 7 || res.Steps[2].Status != workorder.StepFailed || res.Reasons.String() != "because ***" {
		t.Errorf("got %s", b)
	}
	events := stream.events(t)
	for i, e := range events {
		if e.Seq != int64(i+1) {
			t.Errorf("event %d has seq %d", i, e.Seq)
		}
		if strings.Contains(e.Text, "s3cret") || len(e.Text) > workorder.MaxEventText || strings.ContainsRune(e.Text, '\uFFFD') {
			t.Errorf("text of event %d: %.40q, %d bytes", i, e.Text, len(e.Text))
		}
	}
	last := events[len(events)-1]
	if last.Type != workorder.EventResult || last.Result == nil || last.Result.Status != workorder.StatusFailed {
		t.Errorf("last event %+v", last)
	}
	file, err := os.ReadFile(filepath.Join(out, workorder.EventsFile))
	if err != nil {
		t.Fatal(err)
	}
	if string(file) != stream.b.String() {
		t.Error("the copy in the box differs from the stream")
	}
}

// Rescue goes on where boot stopped: numbers and steps.
func TestRecordIsContinued(t *testing.T) {
	t.Parallel()
	var stream syncBuffer
	out, state := t.TempDir(), t.TempDir()
	first := open(t, &stream, out, state)
	first.Declare("one")
	first.StepStarted("one")
	first.Emit(workorder.Event{Type: workorder.EventWarning, Text: "after the last save"})

	var second syncBuffer
	r := open(t, &second, out, state)
	if err := r.Finish(func(res *workorder.Result) { res.Status = workorder.StatusError }); err != nil {
		t.Fatal(err)
	}
	last := second.events(t)[0]
	if len(last.Result.Steps) != 1 || last.Result.Steps[0].Status != workorder.StepFailed {
		t.Errorf("steps %+v", last.Result.Steps)
	}
	if want := int64(3); last.Seq != want {
		t.Errorf("the record goes on with %d, want %d", last.Seq, want)
	}
}

// stuck is a reader that never reads, like the pipe of an engine that is gone.
type stuck struct{ release chan struct{} }

func (s stuck) Write(p []byte) (int, error) {
	<-s.release
	return len(p), nil
}

func TestStuckReaderDoesNotStopTheRun(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	s := stuck{make(chan struct{})}
	defer close(s.release)
	r, err := New(Options{OutDir: out, StateDir: t.TempDir(), Stream: s})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		for range queueLength + 100 {
			r.Emit(workorder.Event{Type: workorder.EventOutput, Text: "x"})
		}
		done <- r.Finish(func(*workorder.Result) {})
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("blocked on the reader")
	}
	b, err := os.ReadFile(filepath.Join(out, workorder.ResultFile))
	if err != nil {
		t.Fatal(err)
	}
	var res workorder.Result
	if err := json.Unmarshal(b, &res); err != nil || len(res.Warnings) != 1 {
		t.Errorf("warnings %q, %v", res.Warnings, err)
	}
	file, err := os.ReadFile(filepath.Join(out, workorder.EventsFile))
	if err != nil || bytes.Count(file, []byte("\n")) != queueLength+101 {
		t.Errorf("%d lines in the box's copy, want %d (%v)", bytes.Count(file, []byte("\n")), queueLength+101, err)
	}
}

// The reserve is there while the agent works, smaller for landing, gone for the result.
func TestReserve(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	r := open(t, &syncBuffer{}, t.TempDir(), state)
	size := func() int64 {
		t.Helper()
		st, err := os.Stat(filepath.Join(state, reserveFile))
		if errors.Is(err, os.ErrNotExist) {
			return 0
		}
		if err != nil {
			t.Fatal(err)
		}
		return st.Size()
	}
	for _, want := range []int64{landReserve + resultReserve, resultReserve, 0} {
		if got := size(); got != want {
			t.Errorf("%d bytes are reserved, want %d", got, want)
		}
		var err error
		if want > resultReserve {
			err = r.ReleaseForLanding()
		} else {
			err = r.Finish(func(*workorder.Result) {})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := r.ReleaseForLanding(); err != nil {
		t.Error(err)
	}
}

// A result is written whatever the agent made of its usage.
func TestResultWithoutAFormForItsCost(t *testing.T) {
	t.Parallel()
	var stream syncBuffer
	out := t.TempDir()
	r := open(t, &stream, out, t.TempDir())
	err := r.Finish(func(res *workorder.Result) {
		res.Status, res.Usage = workorder.StatusSuccess, workorder.Usage{CostUSD: new(math.Inf(1)), InputTokens: 7}
	})
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(out, workorder.ResultFile))
	if err != nil {
		t.Fatal(err)
	}
	res, err := workorder.DecodeResult(b)
	if err != nil || res.Usage.CostUSD != nil || res.Usage.InputTokens != 7 || len(res.Warnings) != 1 {
		t.Errorf("got %s, %v", b, err)
	}
	if events := stream.events(t); len(events) != 1 || events[0].Type != workorder.EventResult {
		t.Errorf("events %+v", events)
	}
}

// An exit code of 0 explains no failure.
func TestFailedStepWithExitCodeZero(t *testing.T) {
	t.Parallel()
	var stream syncBuffer
	r := open(t, &stream, t.TempDir(), t.TempDir())
	r.StepStarted("agent")
	r.StepFinished("agent", errors.New("was stopped"), new(int))
	if got := r.Result().Steps[0]; got.ExitCode != nil || got.Status != workorder.StepFailed {
		t.Errorf("got %+v", got)
	}
	if err := r.Finish(func(*workorder.Result) {}); err != nil {
		t.Fatal(err)
	}
}

// Nothing in the result shows a secret, whatever its source; values that programs read stay.
func TestResultIsMasked(t *testing.T) {
	t.Parallel()
	var stream syncBuffer
	out := t.TempDir()
	r := open(t, &stream, out, t.TempDir())
	r.Emit(workorder.Event{Type: workorder.EventAgentTool, ID: "s3cret", Name: strings.Repeat("n", 1<<20)})
	err := r.Finish(func(res *workorder.Result) {
		res.Status, res.EndedBy, res.TaskID = "s3cret", "s3cret", "T-s3cret"
		res.Reasons, res.NextCommand, res.HeadSHA = workorder.Because(workorder.ReasonAgent, "a s3cret"), "git s3cret", "s3cret"
		res.Commits = []workorder.Commit{{SHA: "s3cret", Subject: "add s3cret \"x\" & <y>", Author: "s3cret"}}
		res.Services = []workorder.ServiceEnd{{Name: "db", Log: "logs/s3cret", Tail: "password s3cret\n"}}
		res.Warnings = []string{"landing: s3cret"}
		res.Changes = map[string][]workorder.FileChange{"s3cret": {{Path: "a/s3cret"}}}
		res.Surface = []workorder.SurfaceFinding{{Path: "s3cret"}}
		res.PR = &workorder.PR{URL: "https://s3cret@x"}
		res.Agent.Final = "s3cret"
	})
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(out, workorder.ResultFile))
	if err != nil {
		t.Fatal(err)
	}
	res, err := workorder.DecodeResult(b)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(
		string(b),
		"s3cret",
	); n != 7 || res.Status != "s3cret" || res.TaskID != "T-s3cret" ||
		res.Services[0].Log != "logs/s3cret" {
		t.Errorf("the secret is there %d times:\n%s", n, b)
	}
	if res.Changes["s3cret"][0].Path != "a/***" || res.Surface[0].Path != "***" {
		t.Errorf("got %+v, %+v", res.Changes, res.Surface)
	}
	if res.Commits[0].Subject != `add *** "x" & <y>` || res.PR.URL != "https://***@x" {
		t.Errorf("got %+v, %+v", res.Commits, res.PR)
	}
	if e := stream.events(t); e[0].ID != "***" || len(e[0].Name) > maxName || e[1].Result.Commits[0].Subject != res.Commits[0].Subject {
		t.Errorf("events %+v", e)
	}
}

// A box that waits for its order has no record yet: its events have no number, and only the stream has them.
func TestRecordBeginsWithTheOrder(t *testing.T) {
	t.Parallel()
	var stream syncBuffer
	out := t.TempDir()
	r, err := New(Options{OutDir: out, StateDir: t.TempDir(), Stream: &stream, Waiting: true})
	if err != nil {
		t.Fatal(err)
	}
	r.Declare(workorder.StepDocker)
	r.StepStarted(workorder.StepDocker)
	r.Warn("w")
	r.Begin()
	r.Emit(workorder.Event{Type: workorder.EventReady})
	if err := r.Finish(func(res *workorder.Result) { res.End(workorder.Succeeded()) }); err != nil {
		t.Fatal(err)
	}
	var seqs []int64
	for _, e := range stream.events(t) {
		seqs = append(seqs, e.Seq)
	}
	if want := []int64{0, 0, 1, 2, 3}; !slices.Equal(seqs, want) {
		t.Errorf("%v, want %v", seqs, want)
	}
	b, err := os.ReadFile(filepath.Join(out, workorder.EventsFile))
	if err != nil || bytes.Count(b, []byte("\n")) != 3 {
		t.Errorf("%s, %v", b, err)
	}
	if res := r.Result(); !res.Standby || len(res.Steps) != 0 || len(res.Warnings) != 1 {
		t.Errorf("%+v", res)
	}
}
