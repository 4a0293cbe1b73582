package credentials_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/credentials"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func TestTaskState(t *testing.T) {
	t.Parallel()
	const id = "T-A1B2C3D4"
	srv := gittest.New(t, "tok")
	url := srv.Create(t, "r.git", nil)
	bare := filepath.Join(srv.Root, "r.git")
	gittest.Git(t, bare, "config", "core.compression", "0") // what is large is so on its way, too
	cred := &workorder.GitCredential{Username: "u", Token: "tok"}
	f := credentials.New(func(string) string { return "" })
	if refs, err := f.TaskRefs(t.Context(), url, id, cred); err != nil || len(refs) > 0 {
		t.Errorf("a task that the remote does not know: %v %v", refs, err)
	}
	for _, b := range []string{"agent/" + id, "agent/" + id + "-x", "agent/" + id + "5", "agent/T-A1B2C3D5-x"} {
		gittest.Git(t, bare, "branch", b, "main")
	}
	put := func(content string, beside int) {
		t.Helper()
		work := t.TempDir()
		gittest.Git(t, work, "init", "-q")
		gittest.Git(t, work, "config", "core.compression", "0")
		if err := os.WriteFile(filepath.Join(work, workorder.StateFile), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(work, "more"), make([]byte, beside), 0o600); err != nil {
			t.Fatal(err)
		}
		gittest.Git(t, work, "add", "-A")
		gittest.Git(t, work, "commit", "-q", "-m", "state")
		gittest.Git(t, work, "push", "-q", "-f", bare, "HEAD:"+workorder.StateRef(id))
	}
	want := workorder.State{TaskID: id, Task: "do it", TargetBranch: "agent/" + id + "-x", Attempts: []workorder.Attempt{{ID: "00000000000000a1", Number: 1}}}
	b, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	put(string(b), 0)
	refs, err := f.TaskRefs(t.Context(), url, id, cred)
	if want := []string{"refs/heads/agent/" + id, "refs/heads/agent/" + id + "-x", workorder.StateRef(id)}; err != nil || !slices.Equal(slices.Sorted(maps.Keys(refs)), want) {
		t.Errorf("%v %v", refs, err)
	}
	got, err := f.State(t.Context(), url, id, cred)
	if err != nil || got.Task != want.Task || got.Last().ID != want.Last().ID {
		t.Errorf("%+v, %v", got, err)
	}
	put(string(b), 1<<20)
	if _, err := f.State(t.Context(), url, id, cred); err != nil {
		t.Errorf("with a file beside it: %v", err)
	}
	put(string(b), 2*workorder.MaxState)
	if _, err := f.State(t.Context(), url, id, cred); err == nil {
		t.Error("a state with more beside it than any has was read")
	}
	put("{}", 0)
	if _, err := f.State(t.Context(), url, id, cred); err == nil {
		t.Error("a state of nothing was read")
	}
	if _, err := f.TaskRefs(t.Context(), url, id, nil); exiterr.Code(err) != workorder.ExitGit || exiterr.Hint(err) == "" {
		t.Errorf("without a credential: %v", err)
	}
	if _, err := f.State(t.Context(), url, "T-00000000", cred); err == nil {
		t.Error("a state that is not there was read")
	}
}

// TestAnswers: who goes on with a task needs no branch of the remote.
func TestAnswers(t *testing.T) {
	t.Parallel()
	const id = "T-A1B2C3D4"
	srv := gittest.New(t, "tok")
	url := srv.Create(t, "r.git", nil)
	bare := filepath.Join(srv.Root, "r.git")
	cred := &workorder.GitCredential{Username: "u", Token: "tok"}
	f := credentials.New(func(string) string { return "" })
	gittest.Git(t, bare, "update-ref", workorder.CheckpointRef(id), "main")
	gittest.Git(t, bare, "update-ref", "-d", "refs/heads/main")
	if _, err := f.Check(t.Context(), url, "", "", cred); exiterr.Code(err) != workorder.ExitGit {
		t.Errorf("a remote without a branch has one: %v", err)
	}
	if err := f.Answers(t.Context(), url, cred); err != nil {
		t.Error(err)
	}
	if err := f.Answers(t.Context(), url, &workorder.GitCredential{Token: "other"}); exiterr.Code(err) != workorder.ExitGit {
		t.Errorf("with a wrong credential: %v", err)
	}
	if refs, err := f.TaskRefs(t.Context(), url, id, cred); err != nil || len(refs) != 1 || refs[workorder.CheckpointRef(id)] == "" {
		t.Errorf("%v, %v", refs, err)
	}
}
