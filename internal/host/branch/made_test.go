package branch

import (
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
)

// ours lists the commits of a branch since its base, oldest first.
func ours(t *testing.T, repo, format string) string {
	t.Helper()
	return gittest.Git(t, repo, "log", "--reverse", "--topo-order", "--format="+format, "main..sandbox/dev")
}

const asIn = `git config user.name In; git config user.email in@example.invalid; `

// Commits made in a sandbox arrive with message, author and order, whatever was done with the history; their trees are those of the clone, and the branch only moves forward.
func TestMade(t *testing.T) {
	t.Parallel()
	const create, two = "Create sandbox dev: title\n", `echo a >a; git add a; git commit -qm "Add a"; echo b >b; git add b; git commit -qm "Add b"; `
	for name, c := range map[string]struct {
		scripts []string
		want    string
	}{
		"clean":                   {[]string{two}, create + "Add a\nAdd b"},
		"and more":                {[]string{two + "echo 2 >f"}, create + "Add a\nAdd b\ncmd: 0"},
		"of saved changes":        {[]string{"echo a >a", "git add a; git commit -qm 'Add a'"}, create + "cmd: 0\nAdd a\ncmd: 1"},
		"in turns":                {[]string{"echo 2 >f", two, "echo 3 >f; git commit -qam 'Change f'", "echo 4 >f"}, create + "cmd: 0\nAdd a\nAdd b\ncmd: 1\nChange f\ncmd: 2\ncmd: 3"},
		"amended":                 {[]string{two, "git commit -q --amend -m 'Add b well'"}, create + "Add a\nAdd b\nAdd b well\ncmd: 1"},
		"rebased":                 {[]string{two, "GIT_SEQUENCE_EDITOR='sed -i s/^pick/reword/' GIT_EDITOR='sed -i s/Add/Have/' git rebase -q -i HEAD~2"}, create + "Add a\nAdd b\nHave a\nHave b\ncmd: 1"},
		"reset":                   {[]string{two, "git reset -q --hard HEAD~1", "echo c >c; git add c; git commit -qm 'Add c'"}, create + "Add a\nAdd b\ncmd: 1\nAdd c"},
		"merged":                  {[]string{"git checkout -qb side; " + two + "git checkout -q main; echo 2 >f; git commit -qam 'Change f'; git merge -q --no-ff -m 'Merge side' side"}, create + "Change f\nAdd a\nAdd b\nMerge side"},
		"merged later":            {[]string{"git checkout -qb side; " + two, "git checkout -q main; echo 2 >f; git commit -qam 'Change f'", "git merge -q --no-ff -m 'Merge side' side"}, create + "Add a\nAdd b\nChange f\ncmd: 1\nMerge side"},
		"empty":                   {[]string{"git commit -q --allow-empty -m Nothing"}, create + "Nothing"},
		"detached":                {[]string{"git checkout -q --detach; " + two}, create + "Add a\nAdd b"},
		"of another history":      {[]string{"git checkout -q --orphan other; git commit -qm Other; echo 2 >f; git commit -qam 'Change f'"}, create + "Other\nChange f"},
		"with the user's commits": {[]string{"git merge -q --no-ff -m 'Merge theirs' origin/theirs"}, create + "Merge theirs"},
		"the user's":              {[]string{"git reset -q --hard origin/theirs", "echo a >a; git add a; git commit -qm 'Add a'"}, create + "cmd: 0\nAdd a"},
		"checked out by a tool":   {[]string{"git stash -q; git checkout -qb x; " + two, "git checkout -q main", "git checkout -q x; echo 2 >f; git commit -qam 'Change f'"}, create + "Add a\nAdd b\ncmd: 1\nChange f\ncmd: 2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			repo := newRepo(t)
			gittest.Git(t, repo, "branch", "theirs", gittest.Git(t, repo, "commit-tree", gittest.Git(t, repo, "hash-object", "-w", "-t", "tree", "/dev/null"), "-p", "main", "-m", "theirs"))
			p, b := newPlace(t, repo), newBranch(t, New(t.TempDir()), "dev", repo)
			save(t, b, p, "", 0)
			for i, script := range c.scripts {
				p.do(asIn + "export GIT_AUTHOR_DATE=2020-02-03T04:05:06+0100; " + script)
				save(t, b, p, string('0'+rune(i)), 0)
				if got := gittest.Git(t, repo, "diff", "--stat", "sandbox/dev", fresh(t, p, repo)); got != "" {
					t.Error(got)
				}
			}
			if got := ours(t, repo, "%s"); got != c.want {
				t.Errorf("%q, not %q", got, c.want)
			}
			for l := range strings.Lines(ours(t, repo, "%s|%an|%ae|%ad|%cn")) {
				if want := "|In|in@example.invalid|Mon Feb 3 04:05:06 2020 +0100|Ada"; !strings.HasPrefix(l, "c") && !strings.HasPrefix(l, "Create") && !strings.HasSuffix(strings.TrimSpace(l), want) {
					t.Error(l)
				}
			}
			for _, l := range strings.Split(gittest.Git(t, repo, "rev-list", "--max-parents=0", "sandbox/dev"), "\n")[1:] {
				t.Errorf("%s is of another history", l)
			}
			if got := gittest.Git(t, b.dir, "fsck", "--strict", "--no-dangling"); got != "" {
				t.Error(got)
			}
			count := gittest.Git(t, repo, "rev-list", "--count", "sandbox/dev")
			if s := save(t, b, p, "true", 0); s.Commit != "" || gittest.Git(t, repo, "rev-list", "--count", "sandbox/dev") != count {
				t.Errorf("%+v", s)
			}
		})
	}
}

// fresh is the tree of the clone's files, by an index that knows nothing, in the user's repository.
func fresh(t *testing.T, p *place, repo string) string {
	t.Helper()
	p.do(`rm -f "$HOME/index"; GIT_INDEX_FILE=$HOME/index git add -A; GIT_INDEX_FILE=$HOME/index git write-tree >"$HOME/tree"`)
	p.do(`git push -q -f "` + repo + `" "$(git commit-tree -m x $(cat "$HOME/tree"))":refs/heads/fresh`)
	return "fresh^{tree}"
}

// What a hostile or careless commit says is made harmless, and one that cannot come keeps no file from being saved.
func TestMadeHostile(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	p, b := newPlace(t, repo), newBranch(t, New(t.TempDir()), "dev", repo)
	save(t, b, p, "", 0)
	raw := func(head, message string) {
		t.Helper()
		p.do(`printf '%b' "tree $(git rev-parse HEAD^{tree})\nparent $(git rev-parse HEAD)\n` + head + `\n\n` + message + `" >"$HOME/raw"; git reset -q --soft "$(git hash-object -t commit -w --literally "$HOME/raw")"`)
	}
	for name, c := range map[string]struct{ author, message, want string }{
		"escapes":         {`author \\033[31mA <a@b> 1 +0000`, `\\033]0;x\\007Red\\n\\nbody\\r\\n`, "A <a@b> 1 Red"},
		"no author":       {`author`, `Mine`, "Ada <ada@example.com> . Mine"},
		"a broken author": {`author <> 1 +9999`, `Mine`, "unknown <> . Mine"},
		"brackets":        {`author A > <b <c@d> x`, `Mine`, "Ada <ada@example.com> . Mine"},
		"a far date":      {`author A <a@b> 9999999999 +0000`, `Far`, "A <a@b> . Far"},
		"no message":      {`author A <a@b> 1 +0000`, ``, "A <a@b> 1 Commit without a message"},
		"latin 1":         {`author J\\0351 <a@b> 1 +0000\nencoding ISO-8859-1`, `Caf\\0351`, "Jé <a@b> 1 Café"},
		"no encoding":     {`author A <a@b> 1 +0000`, `Caf\\0351`, "A <a@b> 1 Caf\uFFFD"},
	} {
		raw(strings.ReplaceAll(c.author, `\\`, `\`)+`\ncommitter A <a@b> 1 +0000`, strings.ReplaceAll(c.message, `\\`, `\`))
		save(t, b, p, "x", 0)
		format := "%an <%ae> %at %s"
		if strings.Contains(c.want, " . ") {
			format = "%an <%ae> . %s"
		}
		if got := gittest.Git(t, repo, "log", "-1", "--format="+format, "sandbox/dev"); got != c.want {
			t.Errorf("%s: %q, not %q", name, got, c.want)
		}
	}
	p.do(asIn + `yes x | head -c 300000 >"$HOME/m"; git commit -q --allow-empty -F "$HOME/m"`)
	save(t, b, p, "x", 0)
	if got := gittest.Git(t, repo, "log", "-1", "--format=%B", "sandbox/dev"); len(got) > 2*maxMessage || !strings.HasPrefix(got, "x\n") {
		t.Errorf("a message of %d bytes", len(got))
	}
	// More than a save takes one by one.
	p.do(`{ printf 'reset refs/heads/main\nfrom refs/heads/main^0\n'; for i in $(seq 120); do printf 'commit refs/heads/main\ncommitter A <a@b> %d +0000\ndata 3\n%03d\nM 100644 inline n\ndata 3\n%03d\n' $i $i $i; done; } | git fast-import --quiet --force; git reset -q --hard`)
	head := b.Head(t.Context())
	s := save(t, b, p, "many", 0)
	if got := gittest.Git(t, b.dir, "rev-list", "--count", head+".."+s.Commit); got != "101" || s.Notice == "" {
		t.Errorf("%s commits, %q", got, s.Notice)
	}
	if got := gittest.Git(t, repo, "log", "-1", "--format=%s", "sandbox/dev"); got != "120" {
		t.Error(got)
	}
	// A tree that the user's git must never see.
	p.do(`t=$(printf '100644 blob %s\t.git\n' "$(git hash-object -w f)" | git mktree); c=$(git commit-tree -p HEAD -m Evil "$t"); git reset -q --soft "$(git commit-tree -p "$c" -m Good 'HEAD^{tree}')"; echo new >new`)
	s = save(t, b, p, "evil", 0)
	if got := gittest.Git(t, repo, "log", "-1", "--format=%s", "sandbox/dev"); got != "cmd: evil" || s.Notice == "" {
		t.Errorf("%s: %+v", got, s)
	}
	p.do("git add new; git commit -qm Later")
	if s = save(t, b, p, "later", 0); s.Notice != "" || gittest.Git(t, repo, "log", "-1", "--format=%s", "sandbox/dev") != "Later" {
		t.Errorf("%+v", s)
	}
	gittest.Git(t, repo, "fsck", "--strict")
}

// A branch begins where this machine made the clone, whatever the sandbox says: else a merge would bring what no diff has shown.
func TestBase(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"first": "echo AAAA $(git rev-parse origin/theirs) >.git/sandbox-agent",
		"head":  "git reset -q --hard origin/theirs",
		"anew":  "echo 2 >f; rm .git/sandbox-agent; git reset -q --hard origin/theirs",
	} {
		repo := newRepo(t)
		base := gittest.Git(t, repo, "rev-parse", "main")
		theirs := gittest.Git(t, repo, "commit-tree", "main^{tree}", "-p", "main", "-m", "theirs")
		gittest.Git(t, repo, "branch", "theirs", theirs)
		p, b := newPlace(t, repo), newBranch(t, New(t.TempDir()), "dev", repo)
		if name == "anew" {
			save(t, b, p, "", 0)
		}
		p.do(script)
		save(t, b, p, "x", 0)
		p.do(asIn + "echo 3 >f; git commit -qam 'Change f'")
		save(t, b, p, "x", 0)
		if b.Base(t.Context()) != base || b.DescendsFrom(t.Context(), theirs) {
			t.Errorf("%s: the branch has another's commit", name)
		}
	}
	repo := newRepo(t)
	b, p := New(t.TempDir()).Of("dev", repo), newPlace(t, repo)
	if _, err := b.In(p.in, p.dir).Save(t.Context(), "", CommandRecord{}); err == nil {
		t.Error("a clone that this machine has not made was saved")
	}
}

// Unresolved conflicts are told, by the commit as well.
func TestUnmerged(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	p, b := newPlace(t, repo), newBranch(t, New(t.TempDir()), "dev", repo)
	save(t, b, p, "", 0)
	p.do(asIn + "git checkout -qb side; echo side >f; git commit -qam side; git checkout -q main; echo main >f; git commit -qam main; git merge -q side || :")
	for range 2 {
		if s := save(t, b, p, "git merge side", 1); len(s.Unmerged) != 1 || s.Unmerged[0] != "f" {
			t.Errorf("%+v", s)
		}
	}
	if got := gittest.Git(t, repo, "log", "-1", "--format=%B", "sandbox/dev"); !strings.HasPrefix(got, "cmd: git merge side\n") || !strings.HasSuffix(got, "\n    f") {
		t.Errorf("%q", got)
	}
	p.do("echo both >f; git add f; git commit -qm 'Merge side'")
	if s := save(t, b, p, "x", 0); len(s.Unmerged) != 0 {
		t.Errorf("%+v", s)
	}
}

// What a save takes is what git finds without a cache, also where commands commit a part of it.
func TestFresh(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	p, b := newPlace(t, repo), newBranch(t, New(t.TempDir()), "dev", repo)
	save(t, b, p, "", 0)
	for _, script := range []string{
		"mkdir 1; echo 1 >1/a; git add -A; git commit -qm own; sleep 0.3; echo 1 >1/b", "mkdir 2; echo 1 >2/a; git add -A; git commit -qm own; sleep 0.05; echo 1 >2/b",
		"mkdir 3; echo 1 >3/a; git add -A; git commit -qm own; sleep 0.1; echo 1 >3/b", "mkdir 4; echo 1 >4/a; git add -A; sleep 0.1; echo 1 >4/b; git status >/dev/null; echo 1 >4/c",
		"mkdir -p 5/5; echo 1 >5/5/a; git add 5; git commit -qm own; git status >/dev/null; echo 1 >5/5/b", "mkdir -p 6/6; echo 1 >6/6/a; git add -f 6; echo 2 >6/b; echo 2 >6/6/b",
		"mkdir 7; echo 1 >7/a; git add -A; git commit -qm own; sleep 0.3; echo 1 >7/b", "rm -r 1 2; echo 3 >3/a; git commit -qam own; touch 3/n", "git mv 4 8; git commit -qm own; echo 1 >8/n",
		"cp -p .git/index ../index; echo 1 >9; git add 9; git commit -qm own; echo '9x' >.gitignore; echo 1 >9x; git add -f 9x; cp -p ../index .git/index; rm 9x; git reset -q",
		"git config core.untrackedCache true; git update-index --untracked-cache; mkdir 10; echo 1 >10/a; git add -A; git commit -qm own; git status >/dev/null; echo 1 >10/b",
		"git config index.version 4; git update-index --split-index; mkdir 11; echo 1 >11/a; git add -A; git commit -qm own; echo 1 >11/b",
	} {
		p.do(asIn + script)
		save(t, b, p, script, 0)
		if got := gittest.Git(t, repo, "diff", "--name-status", fresh(t, p, repo), "sandbox/dev"); got != "" {
			t.Errorf("%s: %s", script, got)
		}
		p.do(`! grep -q UNTR "$HOME/.sandbox-agent/git/index"`) // git's cache of untracked files
	}
}
