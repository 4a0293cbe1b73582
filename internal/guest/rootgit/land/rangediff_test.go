package land

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const ten = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n"

const resolver = "Resolver"

type repo struct {
	t   *testing.T
	dir string
}

func newRepo(t *testing.T) *repo {
	t.Helper()
	r := &repo{t, t.TempDir()}
	r.git("init", "-q", "-b", "main")
	r.commit("base", map[string]string{"f": ten, "*": ten, "x": "x\n"})
	return r
}

func (r *repo) git(args ...string) string { r.t.Helper(); return gittest.Git(r.t, r.dir, args...) }

func (r *repo) commit(message string, files map[string]string) string {
	r.t.Helper()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte(content), 0o644); err != nil {
			r.t.Fatal(err)
		}
	}
	r.git("add", "-A")
	r.git("commit", "-q", "--allow-empty", "-m", message)
	return r.git("rev-parse", "HEAD")
}

func (r *repo) compare(upstream, oldHead, newBase, newHead string) *Comparison {
	r.t.Helper()
	c, err := CompareCommits(r.t.Context(), git.Repo{Dir: filepath.Join(r.dir, ".git"), Bare: true, Env: []string{
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b",
	}}, Range{Upstream: upstream, OldHead: oldHead, NewBase: newBase, NewHead: newHead, Resolver: resolver})
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

func with(line, by string) string { return strings.Replace(ten, line+"\n", by+"\n", 1) }

// Each way in which a commit comes through.
func TestCompare(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	base := r.git("rev-parse", "HEAD")
	r.git("checkout", "-q", "-b", "old")
	r.commit("same \x1b[31m= 1: 2", map[string]string{"x": "y\n"})
	r.commit("conflicts", map[string]string{"f": with("2", "two")})
	r.commit("in base already", map[string]string{"in": "base\n"})
	r.commit("nothing in it", nil)
	r.commit("a pattern for a name", map[string]string{"*": with("2", "two")})
	r.commit("around it", map[string]string{"f": strings.Replace(with("2", "two"), "8\n", "eight\n", 1)})
	r.commit("more than moving", map[string]string{"z": "z\n"})
	old := r.commit("left out", map[string]string{"gone": "gone\n"})
	r.git("checkout", "-q", "main")
	onto := r.commit(
		"main",
		map[string]string{"f": strings.Replace(with("2", "zwei"), "6\n", "six\n", 1), "*": with("2", "zwei"), "in": "base\n"},
	)
	r.git("checkout", "-q", "-b", "new")
	r.commit("same \x1b[31m= 1: 2", map[string]string{"x": "y\n"})
	r.commit("conflicts", map[string]string{"f": strings.Replace(with("2", "zwei two"), "6\n", "six\n", 1)})
	r.commit("nothing in it", nil)
	r.commit("a pattern for a name", map[string]string{"*": with("2", "<<<<<<< HEAD\nzwei\n=======\ntwo\n>>>>>>> x")})
	r.commit("around it", map[string]string{"f": strings.NewReplacer("2\n", "zwei two\n", "6\n", "six\n", "8\n", "eight\n").Replace(ten)})
	r.commit("more than moving", map[string]string{"z": "z\nand more\n"})
	head := r.commit("its own", map[string]string{"own": "x"})
	c := r.compare(base, old, onto, head)
	want := []struct{ how, why, conflict string }{
		{how: workorder.RangeSame},
		{how: workorder.RangeChanged, conflict: "f"},
		{how: workorder.RangeDropped, why: inBase},
		{how: workorder.RangeSame},
		{how: workorder.RangeChanged, conflict: "*"},
		{how: workorder.RangeChanged, why: around},
		{how: workorder.RangeChanged, why: altered},
		{how: workorder.RangeDropped, why: leftOut},
		{how: workorder.RangeAdded, why: byRebase},
	}
	if len(c.Moved) != len(want) {
		t.Fatalf("%+v", c.Moved)
	}
	for i, m := range c.Moved {
		w := want[i]
		if m.How != w.how || w.conflict == "" && m.Reason != w.why || strings.Contains(m.Subject, "\x1b") {
			t.Errorf("%d: %+v, want %+v", i, m, w)
		}
		if w.conflict != "" && (!strings.Contains(m.Reason, " "+w.conflict+",") || !strings.HasSuffix(m.Reason, resolver)) {
			t.Errorf("%d: %+v, want the conflict in %s and who resolved it", i, m, w.conflict)
		}
	}
	problems := strings.Join(c.Problems, "\n")
	if len(c.Problems) != 2 || !strings.Contains(problems, " * ") || !strings.Contains(problems, `"left out"`) {
		t.Errorf("problems: %s", problems)
	}
	if strings.Join(c.Conflicts, " ") != "* f" || strings.Contains(c.Text, "\x1b") || !strings.Contains(c.Text, "in base already") {
		t.Errorf("conflicts %q, text:\n%s", c.Conflicts, c.Text)
	}
}

// Marks that a side has are content, such as of a test of this program.
func TestMarksThatBelongThere(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	base := r.git("rev-parse", "HEAD")
	r.git("checkout", "-q", "-b", "old")
	old := r.commit("two", map[string]string{"f": with("2", "<<<<<<< this is\n=======\na test\n>>>>>>> of marks")})
	r.git("checkout", "-q", "main")
	onto := r.commit("main", map[string]string{"f": with("2", "zwei")})
	r.git("checkout", "-q", "-b", "new")
	head := r.commit("two", map[string]string{"f": with("2", "zwei\n<<<<<<< this is\n=======\na test\n>>>>>>> of marks")})
	if c := r.compare(base, old, onto, head); len(c.Problems) > 0 || c.Moved[0].How != workorder.RangeChanged {
		t.Errorf("%+v", c)
	}
}

func TestTooMany(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	base := r.git("rev-parse", "HEAD")
	tip := base
	for range maxRangeCommits + 1 {
		tip = r.git("commit-tree", "-p", tip, "-m", "x", "HEAD^{tree}")
	}
	_, err := CompareCommits(
		t.Context(),
		git.Repo{Dir: filepath.Join(r.dir, ".git"), Bare: true},
		Range{Upstream: base, OldHead: tip, NewBase: base, NewHead: tip},
	)
	if err == nil || !strings.Contains(err.Error(), strconv.Itoa(maxRangeCommits)) {
		t.Error(err)
	}
}
