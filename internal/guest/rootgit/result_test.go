package rootgit

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/claim"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/evidence"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// output is what a box with this result leaves.
func (f *fixture) output(t *testing.T, status workorder.Status) fstest.MapFS {
	t.Helper()
	r := &workorder.Result{
		TaskID:    f.Repos.Order.TaskID,
		AttemptID: f.Repos.Order.AttemptID,
		Status:    status,
		EndedBy:   workorder.EndedByAgent,
		Reasons:   workorder.Because(workorder.ReasonAgent, "because"),
	}
	b, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return fstest.MapFS{
		workorder.ResultFile: {Data: b},
		workorder.EventsFile: {Data: []byte(strings.Repeat(`{"seq":1}`+"\n", 1000))},
		"logs/test.log":      {Data: []byte("ok\n")},
		"logs/raw/agent.log": {Data: []byte("hello\n")},
		"evidence/x.png":     {Data: []byte("x")},
	}
}

func (f *fixture) resultFiles(t *testing.T) []string {
	t.Helper()
	return strings.Split(gittest.Git(t, f.srv.Root+"/r.git", "ls-tree", "-r", "--name-only", workorder.ResultRef("T-A1B2C3D4")), "\n")
}

// The result is on the remote, and a box that gets the same order again reports it.
func TestResult(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.ends(t, workorder.Attempt{Status: workorder.StatusFailed, EndedBy: workorder.EndedByValidation})
	left, err := f.Uploader.Result(t.Context(), f.output(t, workorder.StatusFailed))
	if err != nil || len(left) != 0 {
		t.Fatalf("left %q, %v", left, err)
	}
	if diff := cmp.Diff([]string{"events.jsonl.gz", "logs/raw/agent.log", "logs/test.log", "result.json"}, f.resultFiles(t)); diff != "" {
		t.Errorf("it holds (-want +got):\n%s", diff)
	}
	n := f.twin(t, func(o *workorder.Order) { o.IfExists = workorder.IfExistsReport })
	_, err = n.claim(t)
	told, ok := errors.AsType[*claim.DoneError](err)
	if !ok || told.Result == nil || told.Result.Reasons.Code() != workorder.ReasonAgent {
		t.Fatalf("told %+v, %v", told, err)
	}
	// A result of another attempt is not this one's.
	c := f.twin(t, func(o *workorder.Order) { o.Mode, o.AttemptID = workorder.ModeContinue, workorder.NewAttemptID() })
	c.start(t)
	if err := c.Lander.Release(
		t.Context(),
		workorder.Attempt{Status: workorder.StatusFailed, EndedBy: workorder.EndedByValidation},
	); err != nil {
		t.Fatal(err)
	}
	_, err = f.twin(t, func(o *workorder.Order) { o.IfExists = workorder.IfExistsReport }).claim(t)
	if told, ok := errors.AsType[*claim.DoneError](err); !ok || told.Result != nil || told.Attempt.Number != 2 {
		t.Errorf("told %+v, %v", told, err)
	}
	// The next result is the task's; one that comes late changes nothing.
	if _, err := c.Uploader.Result(t.Context(), c.output(t, workorder.StatusFailed)); err != nil {
		t.Fatal(err)
	}
	ref := workorder.ResultRef("T-A1B2C3D4")
	at := f.remote(t, ref)
	if _, err := f.Uploader.Result(t.Context(), f.output(t, workorder.StatusSuccess)); err != nil || f.remote(t, ref) != at {
		t.Errorf("a late result: %v, %s in place of %s", err, f.remote(t, ref), at)
	}
}

// An attempt before that was late does not keep the result of the last one away.
func TestResultAfterALateOne(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.ends(t, workorder.Attempt{Status: workorder.StatusTimeout})
	n, _, _ := f.next(t)
	if _, err := f.rescue(t).Uploader.Result(t.Context(), f.output(t, workorder.StatusTimeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Uploader.Result(t.Context(), n.output(t, workorder.StatusSuccess)); err != nil {
		t.Fatal(err)
	}
	if got := gittest.Git(
		t,
		f.srv.Root+"/r.git",
		"show",
		workorder.ResultRef("T-A1B2C3D4")+":"+workorder.ResultFile,
	); !strings.Contains(
		got,
		n.Repos.Order.AttemptID,
	) {
		t.Errorf("the result is %s", got)
	}
}

// Logs that do not fit are left out, the result never is.
func TestResultIsBounded(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	noise := make([]byte, evidence.MaxFile+1)
	r := rand.NewChaCha8([32]byte{})
	if _, err := r.Read(noise); err != nil {
		t.Fatal(err)
	}
	out := f.output(t, workorder.StatusSuccess)
	out[workorder.EventsFile] = &fstest.MapFile{Data: noise}
	out["logs/huge.log"] = &fstest.MapFile{Data: noise}
	for _, name := range []string{"logs/a.log", "logs/b.log", "logs/c.log"} {
		out[name] = &fstest.MapFile{Data: noise[:evidence.MaxFile]}
	}
	left, err := f.Uploader.Result(t.Context(), out)
	if diff := cmp.Diff([]string{"events.jsonl", "logs/c.log", "logs/huge.log"}, left); err != nil || diff != "" {
		t.Errorf("%v; left (-want +got):\n%s", err, diff)
	}
	if diff := cmp.Diff(
		[]string{"logs/a.log", "logs/b.log", "logs/raw/agent.log", "logs/test.log", "result.json"},
		f.resultFiles(t),
	); diff != "" {
		t.Errorf("it holds (-want +got):\n%s", diff)
	}
}

// Who has no lease has no result of the task either.
func TestResultWithoutALease(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	n := newBox(t, f.srv, workorder.ModeCreate)
	if _, err := n.claim(t); !errors.Is(err, claim.ErrTaskExists) {
		t.Fatal(err)
	}
	if _, err := n.Uploader.Result(
		t.Context(),
		n.output(t, workorder.StatusError),
	); err != nil ||
		f.remote(t, workorder.ResultRef("T-A1B2C3D4")) != "" {
		t.Errorf("%v, it is on the remote", err)
	}
}
