package rootgit

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// However an agent damages its repository, what it wrote is somewhere
// afterwards: on the remote, in the bundle or in the archive.
func TestSabotagedRepositories(t *testing.T) {
	t.Parallel()
	const work = "echo work1 >w1; git add w1; git commit -qm W1; echo u >u; "
	for name, tc := range map[string]struct {
		script string
		// branch are the files that have to be on the remote's branch; kept those
		// that may be anywhere, the archive included.
		branch, kept []string
	}{
		"core.worktree":    {work + "git config core.worktree /var/tmp", []string{"README", "w1", "u"}, nil},
		"core.bare":        {work + "git config core.bare true", []string{"w1", "u"}, nil},
		"a pipe as index":  {work + "rm .git/index; mkfifo .git/index", []string{"w1", "u"}, nil},
		"a pipe as HEAD":   {work + "rm .git/HEAD; mkfifo .git/HEAD", nil, []string{"w1", "u"}},
		"a pipe as config": {work + "rm .git/config; mkfifo .git/config", []string{"w1", "u"}, nil},
		"a pipe in packed": {work + "rm -f .git/packed-refs; mkfifo .git/packed-refs", []string{"w1", "u"}, nil},
		"a hanging filter": {work + `git config filter.h.clean "sleep 1000"; echo "*.h filter=h" >.gitattributes; echo x >x.h`, []string{
			"w1",
			"u", "x.h",
		}, nil},
		"a separate git dir": {work + `mv .git "$HOME/g"; echo "gitdir: $HOME/g" >.git`, []string{"w1", "u"}, nil},
		"a lost object":      {work + `rm -f .git/objects/$(git rev-parse HEAD:w1 | sed 's#^..#&/#')`, nil, []string{"w1", "u"}},
		"garbage as HEAD":    {work + "echo garbage >.git/HEAD", nil, []string{"w1", "u"}},
		"garbage as config":  {work + "echo '[[[' >.git/config", nil, []string{"w1", "u"}},
		"garbage as packed":  {work + `git pack-refs --all; printf 'garbage\n\0\0 refs/heads/x\n' >>.git/packed-refs`, nil, []string{"w1", "u"}},
		"a stale lock":       {work + "touch .git/index.lock .git/HEAD.lock", []string{"w1", "u"}, nil},
	} {
		if nightlyOnly(t, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, nil)
			if _, err := proc.Output(t.Context(), proc.Spec{
				Argv: []string{"/bin/sh", "-ec", tc.script}, Dir: f.Repos.Workspace,
				Env: append(f.Repos.Identity(), "PATH="+os.Getenv("PATH")),
			}); err != nil {
				t.Fatal(err)
			}
			// The filter that hangs has its part of it, and what follows needs some of the rest.
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			left := f.Committer.Commit(ctx, says("leftovers"))
			l := f.Lander.Land(t.Context(), f.base, f.bundle, nil)
			t.Logf("left: %v; landed: %+v", left, l)
			archive := filepath.Join(t.TempDir(), "a.tar.gz")
			if whole := l.Err != nil && l.Bundle == ""; left != nil || whole {
				if err := f.Committer.Archive(t.Context(), archive, whole); err != nil {
					t.Error(err)
				}
			}
			if l.Err == nil {
				has := "\n" + gittest.Git(t, f.srv.Root+"/r.git", "ls-tree", "-r", "--name-only", l.Head) + "\n"
				for _, file := range tc.branch {
					if !strings.Contains(has, "\n"+file+"\n") {
						t.Errorf("%s is not on the branch: %q", file, has)
					}
				}
			} else if len(tc.branch) > 0 {
				t.Errorf("not landed: %v", l.Err)
			}
			for _, file := range tc.kept {
				onBranch := l.Err == nil &&
					strings.Contains("\n"+gittest.Git(t, f.srv.Root+"/r.git", "ls-tree", "-r", "--name-only", l.Head)+"\n", "\n"+file+"\n")
				if !onBranch && untar(t, archive, "./"+file) == "" {
					t.Errorf("%s is nowhere", file)
				}
			}
		})
	}
}

// Work that is on no branch is work, too.
func TestTagsAndTheStashAreKept(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	_, err := proc.Output(t.Context(), proc.Spec{
		Argv: []string{
			"/bin/sh",
			"-ec",
			"echo w >w; git add w; git commit -qm W; git checkout -q --detach; echo t >t; git add t; git commit -qm T; git tag -m x v1; " +
				"git checkout -q -; echo s >README; git stash -q",
		},
		Dir: f.Repos.Workspace,
		Env: append(f.Repos.Identity(), "PATH="+os.Getenv("PATH")),
	})
	if err != nil {
		t.Fatal(err)
	}
	tag, stash := gittest.Git(
		t,
		f.Repos.Workspace,
		"rev-parse",
		"v1^{commit}",
	), gittest.Git(
		t,
		f.Repos.Workspace,
		"rev-parse",
		"refs/stash",
	)
	l := f.land(t)
	if l.Err != nil || len(l.Warnings) != 2 {
		t.Fatalf("landed %+v", l)
	}
	for ref, want := range map[string]string{"tags/v1": tag, "stash": stash} {
		if got := f.remote(t, workorder.KeptRef("T-A1B2C3D4", ref)); got != want {
			t.Errorf("%s is kept as %q, want %s", ref, got, want)
		}
	}
}
