package sandbox

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/branch"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
)

// TestBranch tests the methods of Branch that need no running sandbox.
func TestBranch(t *testing.T) {
	t.Parallel()
	ctx, repo, clone := t.Context(), filepath.Join(t.TempDir(), "repo"), filepath.Join(t.TempDir(), "clone")
	gittest.Git(t, "", "init", "-q", "-b", "main", repo)
	gittest.Git(t, repo, "config", "user.name", "Ada")
	gittest.Git(t, repo, "config", "user.email", "ada@example.com")
	write := func(dir, name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	commit := func() {
		t.Helper()
		gittest.Git(t, repo, "add", "-A")
		gittest.Git(t, repo, "commit", "-qm", "user")
	}
	write(repo, "file", "old\n")
	commit()
	gittest.Git(t, "", "clone", "-q", repo, clone)

	cr := &creator{lookup: lookup{records: records{state: t.TempDir()}}}
	b := &Branch{in: &instance{c: cr, spec: Spec{Name: "dev", Repo: repo}}}
	stored := cr.branch("dev", repo)
	if err := stored.Cloned(ctx, gittest.Git(t, repo, "rev-parse", "HEAD")); err != nil {
		t.Fatal(err)
	}
	save := func(text string) {
		t.Helper()
		write(clone, "file", text)
		inside := func(ctx context.Context, argv []string, in io.Reader, out io.Writer) error {
			cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
			cmd.Stdin, cmd.Stdout = in, out
			return cmd.Run()
		}
		if _, err := stored.In(inside, clone).Save(ctx, "", branch.CommandRecord{Command: "edit", ExitCode: 3}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Tag(ctx, "first"); err == nil {
		t.Error("a branch without a commit has a tag")
	}
	save("new\n")

	var patch bytes.Buffer
	if err := b.Diff(ctx, &patch); err != nil || !strings.Contains(patch.String(), "\n+new\n") {
		t.Errorf("diff: %s, %v", patch.String(), err)
	}
	log, err := b.Log(ctx)
	if err != nil || len(log) != 2 || len(log[0].Commands) != 1 || log[0].Commands[0].ExitCode != 3 || log[0].Commands[0].Command != "edit" {
		t.Fatalf("log: %+v, %v", log, err)
	}
	tag, err := b.Tag(ctx, "first")
	if err != nil || tag == "" {
		t.Errorf("tag: %q, %v", tag, err)
	}
	if _, err := b.Tag(ctx, "first"); !errors.Is(err, ErrExists) {
		t.Errorf("tag again: %v", err)
	}

	if files, err := b.Apply(ctx); err != nil || len(files) != 1 || files[0] != "file" {
		t.Errorf("apply: %q, %v", files, err)
	}
	gittest.Git(t, repo, "reset", "-q", "--hard")
	for _, want := range []bool{true, false} {
		if merged, err := b.Merge(ctx, "merge dev"); err != nil || merged != want {
			t.Errorf("merge: %v, %v", merged, err)
		}
	}
	if got := gittest.Git(t, repo, "show", "-s", "--format=%s"); got != "merge dev" {
		t.Errorf("the merge commit is %q", got)
	}

	write(repo, "file", "other\n")
	commit()
	save("newer\n")
	if _, err := b.Apply(ctx); !errors.Is(err, ErrMergeConflict) {
		t.Errorf("apply a conflict: %v", err)
	}
	if merged, err := b.Merge(ctx, "merge dev"); merged || !errors.Is(err, ErrMergeConflict) {
		t.Errorf("merge a conflict: %v, %v", merged, err)
	}

	none := &Branch{in: &instance{c: cr, spec: Spec{Name: "other"}}}
	if _, err := none.Log(ctx); !errors.Is(err, ErrNoClone) {
		t.Errorf("no clone: %v", err)
	}
}
