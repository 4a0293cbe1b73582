//go:build e2e && bench

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// TestBenchBranch prints what a commit after each command costs beside `git status` in the same tree and the command alone, in the same minutes. It asserts nothing about time.
func TestBenchBranch(t *testing.T) {
	ctx := t.Context()
	const files, perFolder = 20000, 100
	repo := filepath.Join(t.TempDir(), "repo")
	gittest.Git(t, "", "init", "-q", "-b", "main", repo)
	for i := range files {
		dir := filepath.Join(repo, fmt.Sprintf("d%d", i/perFolder))
		if i%perFolder == 0 {
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%d", i)), fmt.Appendln(nil, i), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	gittest.Git(t, repo, "add", ".")
	gittest.Git(t, repo, "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-qm", "base")
	m, err := sandbox.NewManager(sandbox.Options{StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	sb, err := m.Create(ctx, sandbox.Spec{Name: fmt.Sprintf("bench-branch-%d", os.Getpid()), Runtime: sandbox.RuntimeJail, Repo: repo})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := sb.Remove(context.WithoutCancel(ctx), sandbox.RemoveOptions{}); err != nil {
			t.Error(err)
		}
	}()
	took := samples{}
	timed := func(name string, f func() error) {
		t.Helper()
		took.timed(t, name, f)
	}
	run := func(argv ...string) func() error {
		return func() error {
			r, err := sb.Run(ctx, sandbox.Command{Argv: argv})
			if err == nil && r.ExitCode != 0 {
				err = fmt.Errorf("exit code %d: %s", r.ExitCode, r.Stderr)
			}
			return err
		}
	}
	save := func(commits bool) func() error {
		return func() error {
			s, err := sb.Branch().Save(ctx, sandbox.CommandRecord{Command: "x", Started: time.Now()})
			if err == nil && (s.Commit != "") != commits {
				err = fmt.Errorf("%+v", s)
			}
			return err
		}
	}
	if _, err := sb.Branch().Save(ctx, sandbox.CommandRecord{}); err != nil {
		t.Fatal(err)
	}
	for i := range rounds * 2 {
		timed("status", run("git", "status", "--porcelain"))
		timed("unchanged", save(false))
		if err := run("sh", "-c", fmt.Sprintf("echo %d >d1/f101; echo %d >new%d", i, i, i))(); err != nil {
			t.Fatal(err)
		}
		timed("changed", save(true))
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	defer w.Flush()
	fmt.Fprintf(w, "20,000 files, ms\tmedian\tx git status\taim\n")
	floor := median(took["status"])
	for _, row := range [][3]string{{"status", "git status in the sandbox", ""}, {"unchanged", "after a command that changed nothing", "1.5"}, {"changed", "after one that changed two files", "4"}} {
		got := median(took[row[0]])
		fmt.Fprintf(w, "%s\t%.1f\t%.2f\t%s\n", row[1], got.Seconds()*1e3, got.Seconds()/floor.Seconds(), row[2])
	}
}
