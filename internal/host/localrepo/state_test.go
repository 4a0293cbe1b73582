package localrepo_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/localrepo"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func TestTaskState(t *testing.T) {
	t.Parallel()
	const id = "T-A1B2C3D4"
	dir := t.TempDir()
	gittest.Git(t, dir, "init", "-q", "-b", "main")
	gittest.Git(t, dir, "commit", "-q", "--allow-empty", "-m", "one")
	r, err := localrepo.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if refs, err := r.TaskRefs(t.Context(), id); err != nil || len(refs) > 0 {
		t.Errorf("%v %v", refs, err)
	}
	for _, b := range []string{"agent/" + id + "-x", "agent/" + id + "5"} {
		gittest.Git(t, dir, "branch", b)
	}
	want := workorder.State{TaskID: id, Task: "do it", TargetBranch: "agent/" + id + "-x"}
	b, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	gittest.Git(t, dir, "checkout", "-q", "--orphan", "state")
	if err := os.WriteFile(filepath.Join(dir, workorder.StateFile), b, 0o600); err != nil {
		t.Fatal(err)
	}
	gittest.Git(t, dir, "add", "-A")
	gittest.Git(t, dir, "commit", "-q", "-m", "state")
	gittest.Git(t, dir, "update-ref", workorder.StateRef(id), "HEAD")
	if refs, err := r.TaskRefs(t.Context(), id); err != nil || !slices.Equal(slices.Sorted(maps.Keys(refs)), []string{"refs/heads/agent/" + id + "-x", workorder.StateRef(id)}) {
		t.Errorf("%v %v", refs, err)
	}
	if got, err := r.State(t.Context(), id); err != nil || got.Task != want.Task {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := r.State(t.Context(), "T-00000000"); err == nil {
		t.Error("a state that is not there was read")
	}
}
