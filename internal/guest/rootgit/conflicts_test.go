package rootgit

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/rootgit/tree"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// says is the message of a commit, whatever is in it.
func says(message string) func(*tree.Conflicts) string {
	return func(*tree.Conflicts) string { return message }
}

// What an agent leaves unresolved is committed as it is, and known until it resolves it.
func TestConflictsAreKnown(t *testing.T) {
	t.Parallel()
	const both = "git checkout -qb side; echo s >a; git commit -qam s; git checkout -q -; echo m >a; git commit -qam m; "
	for name, c := range map[string]struct {
		agent, during string
		paths         []string
	}{
		"merge": {both + "git merge side", "merge", []string{"a"}},
		"merge, deleted": {"git checkout -qb side; git rm -q a; git commit -qm s; git checkout -q -; echo m >a; git commit -qam m; " +
			"git merge side; echo more >>a", "merge", []string{"a"}},
		"cherry-pick": {both + "git cherry-pick side", "cherry-pick", []string{"a"}},
		"revert": {
			both + "git revert --no-edit HEAD~1; echo x >a; git commit -qam x; git revert --no-edit HEAD~1", "revert",
			[]string{"a"},
		},
		"rebase":         {both + "git rebase side", "rebase", []string{"a"}},
		"rebase, edited": {both + "GIT_SEQUENCE_EDITOR='sed -i s/pick/edit/' git rebase -q -i HEAD~1", "rebase", nil},
		"am":             {both + "git format-patch -q -1 side -o ..; git am ../0001-s.patch", "git am", nil},
		"am -3":          {both + "git format-patch -q -1 side -o ..; git am -3 ../0001-s.patch", "git am", []string{"a"}},
		"stash pop":      {"echo s >a; git stash -q; echo m >a; git commit -qam m; git stash pop", "", []string{"a"}},
		"popped, staged": {"echo s >a; git stash -q; echo m >a; git commit -qam m; git stash pop; git add -A", "", []string{"a"}},
		"popped, reset":  {"echo s >a; git stash -q; echo m >a; git commit -qam m; git stash pop; git reset -q", "", []string{"a"}},
		"a test's text":  {"echo s >a; git stash -q; printf '<<<<<<< HEAD\\n=======\\n>>>>>>> x\\n' >a", "", nil},
		"several files": {both + "git checkout -q side; echo s >'b ü'; git add .; git commit -qm s; git checkout -q -; echo m >'b ü'; " +
			"git add .; git commit -qm m; git merge side", "merge", []string{"a", "b ü"}},
		"staged": {both + "git merge side; git add -A", "merge", []string{"a"}},
		"cherry-picks": {"git checkout -qb side; echo s >a; git commit -qam s; echo 1 >n; git add n; git commit -qm n; git checkout -q -; " +
			"echo m >a; git commit -qam m; git cherry-pick side~1 side; echo ok >a; git add a; git commit -qm ok", "cherry-pick", nil},
		"resolved": {both + "git merge side; echo both >a; git add a", "", nil},
		"none":     {"echo x >new", "", nil},
	} {
		if nightlyOnly(t, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, map[string]string{"a": "base\n"})
			env := append(f.Repos.Identity(), "PATH="+os.Getenv("PATH"), "HOME="+f.Repos.Home, "GIT_EDITOR=true")
			// The last command may end with the conflict.
			_ = proc.Run(t.Context(), proc.Spec{Argv: []string{"sh", "-c", c.agent}, Dir: f.Repos.Workspace, Env: env})
			var told *tree.Conflicts
			if err := f.Committer.Commit(t.Context(), func(c *tree.Conflicts) string { told = c; return "left" }); err != nil {
				t.Fatal(err)
			}
			got := f.Committer.Unresolved(t.Context())
			if want := c.during != "" || len(c.paths) > 0; (got != nil) != want {
				t.Fatalf("%+v", got)
			} else if !want {
				return
			}
			if got.During != c.during || !slices.Equal(got.Paths, c.paths) ||
				len(c.paths) > 0 && (told == nil || !slices.Equal(told.Paths, c.paths)) {
				t.Errorf("%+v; the message is of %+v", got, told)
			}
			if l := f.land(t); !l.Pushed || len(c.paths) > 0 && strings.TrimSpace(l.Commits[0].Subject) == "" {
				t.Errorf("%+v", l)
			}
			// A repair resolves it.
			_ = proc.Run(
				t.Context(),
				proc.Spec{
					Argv: []string{
						"sh",
						"-c",
						"for p in a 'b ü'; do echo resolved >\"$p\"; done; git add -A; git commit -qm resolved; rm -rf .git/rebase-* .git/sequencer",
					},
					Dir: f.Repos.Workspace,
					Env: env,
				},
			)
			if got := f.Committer.Unresolved(t.Context()); got != nil {
				t.Errorf("after a repair: %+v", got)
			}
		})
	}
}
