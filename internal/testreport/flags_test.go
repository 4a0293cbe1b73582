package testreport

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func kindsOf(flags []workorder.TestFinding) (out []string) {
	for _, f := range flags {
		out = append(out, f.Kind+": "+f.Text)
	}
	return out
}

// Flags from the reports alone.
func TestReported(t *testing.T) {
	t.Parallel()
	flags := Reported([]workorder.TestChange{
		{Suite: "a", Name: "TestBad", Transition: workorder.TransitionBroken, Text: "got 1\nand more"},
		{Suite: "a", Name: "TestElsewhere", Transition: workorder.TransitionDeleted},
		{Suite: "a", Name: "TestT/old_name", Transition: workorder.TransitionDeleted},
		{Suite: "a", Name: "TestT/new_name", Transition: workorder.TransitionNewPasses},
		{Suite: "a", Name: "TestQuiet", Transition: workorder.TransitionSkipped},
		{Suite: "tap", Name: "printed", Transition: workorder.TransitionDeleted}, // another of the same program is no new name of it
		{Suite: "tap", Name: "instead", Transition: workorder.TransitionNewPasses},
	})
	want := []string{
		"broken: a > TestBad: got 1", "test-deleted: 2 tests: a > TestElsewhere, tap > printed (ran on base, not on head)",
		"test-skipped: 1 test: a > TestQuiet (skipped on head)",
	}
	if diff := cmp.Diff(want, kindsOf(flags)); diff != "" {
		t.Error(diff)
	}
}

// Commits are objects: no reference, option or abbreviation is taken for one.
func TestOnlyFullIDs(t *testing.T) {
	t.Parallel()
	r, ids := commits(t, map[string]string{"a": "b"})
	for _, bad := range []string{"", "HEAD", "--help", ids[0][:12], strings.Repeat("0", 40)} {
		if _, err := FindEdited(t.Context(), r, bad, ids[0], Commands{}); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// Links, submodules, pictures, large and odd files in the tree of an agent.
func TestOddTrees(t *testing.T) {
	t.Parallel()
	r := git.Repo{Dir: t.TempDir(), Bare: true}
	if err := r.Run(t.Context(), "init", "-q", "--bare"); err != nil {
		t.Fatal(err)
	}
	test := "package a\n\nfunc TestA(t *testing.T) { t.Error(1) }\n"
	big := test + strings.Repeat("// x\n", (1<<18))
	var in strings.Builder
	commit := func(n int, files string) {
		fmt.Fprintf(&in, "commit refs/heads/c%d\ncommitter A <a@example.org> 1 +0000\ndata 0\ndeleteall\n%s\n", n, files)
	}
	file := func(mode, p, content string) string {
		return fmt.Sprintf("M %s inline %q\ndata %d\n%s\n", mode, p, len(content), content)
	}
	commit(0, file("100644", "a\n_test.go", test)+file("100644", "b_test.go", test)+file("100644", "c_test.go", test)+file("100644", "big_test.go", big)+file("100644", "n_test.go", test+"\x00"))
	commit(1, file("120000", "b_test.go", "/etc/passwd")+"M 160000 "+strings.Repeat("1", 40)+" c_test.go\n"+file("100755", "a\n_test.go", test)+file("100644", "big_test.go", "package a\n"))
	imp := r
	imp.Stdin = in.String()
	if err := imp.Run(t.Context(), "fast-import", "--quiet"); err != nil {
		t.Fatal(err)
	}
	base, _ := r.Resolve(t.Context(), "refs/heads/c0")
	head, _ := r.Resolve(t.Context(), "refs/heads/c1")
	files, err := FindEdited(t.Context(), r, base, head, Commands{Checks: map[string]string{"test": "go test ./..."}})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"b_test.go", "c_test.go", "big_test.go"} {
		if !slices.ContainsFunc(files.Flags, func(f workorder.TestFinding) bool { return f.Kind == workorder.FindingTestEdited && f.Path == p }) {
			t.Errorf("%s: %+v", p, files.Flags)
		}
	}
	for _, f := range files.Flags {
		if strings.ContainsAny(f.Path+f.Text, "\n\x00") {
			t.Errorf("%+v", f)
		}
	}
}

// Files that a runner's configuration leads to have another name.
func TestLinkedConfiguration(t *testing.T) {
	t.Parallel()
	r, ids := commits(t, map[string]string{"package.json": `{"scripts": {"test": "node test.js"}}`, "settings": "script-shell=/bin/true\n"})
	imp := r
	imp.Stdin = "commit refs/heads/linked\ncommitter A <a@example.org> 1 +0000\ndata 0\nfrom " + ids[0] + "\nM 120000 inline .npmrc\ndata 8\nsettings\n"
	if err := imp.Run(t.Context(), "fast-import", "--quiet"); err != nil {
		t.Fatal(err)
	}
	head, err := r.Resolve(t.Context(), "refs/heads/linked")
	if err != nil {
		t.Fatal(err)
	}
	edited, err := FindEdited(t.Context(), r, ids[0], head, Commands{Checks: map[string]string{"test": "npm test"}})
	if err != nil || !slices.ContainsFunc(edited.Flags, func(f workorder.TestFinding) bool {
		return f.Kind == workorder.FindingCheckEdited && f.Path == ".npmrc"
	}) {
		t.Errorf("%+v, %v", edited.Flags, err)
	}
}

func TestEditedTests(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a line that stays\n", 20)
	r, ids := commits(t,
		map[string]string{
			"a_test.go": "1\n2\n3\n", "gone_test.go": "of the gone\nfile\n", "moved_test.go": long, "away_test.go": "x\n" + long, "same_test.go": "y\n" + long,
			"web/a.spec.ts": "1\n", "pkg/testdata/in.txt": "1\n", "conftest.py": "1\n", "snapshots/a.snap": "1\n",
			"snapshots/code.go": "1\n", "main.go": "1\n", "kept_test.go": "1\n", "docs/test.md": "1\n",
		},
		map[string]string{
			"a_test.go": "1\n4\n", "sub/moved_test.go": long + "one more\n", "testdata/away.go": "x\n" + long, "sub/same_test.go": "y\n" + long,
			"web/a.spec.ts": "2\n", "pkg/testdata/in.txt": "2\n", "conftest.py": "2\n", "snapshots/a.snap": "2\n",
			"snapshots/code.go": "2\n", "main.go": "2\n", "kept_test.go": "1\n", "new_test.go": "other\nlines\n", "docs/test.md": "2\n",
		})
	files, err := FindEdited(t.Context(), r, ids[0], ids[1], Commands{})
	if err != nil {
		t.Fatal(err)
	}
	type fact struct {
		Kind           string
		Added, Deleted int
	}
	got := map[string]fact{}
	for _, f := range files.Flags {
		got[f.Path] = fact{f.Kind, f.Added, f.Deleted}
	}
	one := fact{workorder.FindingTestEdited, 1, 1}
	want := map[string]fact{
		"a_test.go": {workorder.FindingTestEdited, 1, 2}, "gone_test.go": {workorder.FindingTestDeleted, 0, 2},
		"sub/moved_test.go": {workorder.FindingTestEdited, 1, 0}, "away_test.go": {workorder.FindingTestDeleted, 0, 0},
		"web/a.spec.ts": one, "pkg/testdata/in.txt": one, "conftest.py": one, "snapshots/a.snap": one,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	slices.Sort(files.BaseTests)
	slices.Sort(files.HeadTests)
	if diff := cmp.Diff([]string{
		"a_test.go", "away_test.go", "conftest.py", "gone_test.go", "moved_test.go", "pkg/testdata/in.txt", "same_test.go", "snapshots/a.snap", "web/a.spec.ts",
	}, files.BaseTests); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"new_test.go", "sub/moved_test.go", "sub/same_test.go", "testdata/away.go"}, files.HeadTests); diff != "" {
		t.Error(diff)
	}
}

func TestFlagsAreBounded(t *testing.T) {
	t.Parallel()
	const n = 2 * maxCheckEdits
	sides := []map[string]string{{}, {}, {}}
	for i := range n {
		p := fmt.Sprintf("p%d/a_test.go", i)
		sides[0][p], sides[1][p] = "1\n", "2\n"
	}
	for i := range n {
		p := fmt.Sprintf("p%d/Makefile", i)
		sides[0][p], sides[1][p], sides[2][p] = "1\n", "1\n", "2\n"
	}
	r, ids := commits(t, sides...)
	files, err := FindEdited(t.Context(), r, ids[0], ids[1], Commands{})
	if err != nil || len(files.Flags) != maxEdited+1 || len(files.BaseTests) != n {
		t.Fatalf("%d flags, %d paths, %v", len(files.Flags), len(files.BaseTests), err)
	}
	if last := files.Flags[maxEdited]; last.Path != "" || last.Added != n-maxEdited || last.Deleted != n-maxEdited {
		t.Errorf("%+v", last)
	}
	files, err = FindEdited(t.Context(), r, ids[0], ids[2], Commands{})
	edits := slices.DeleteFunc(files.Flags, func(f workorder.TestFinding) bool { return f.Kind != workorder.FindingCheckEdited })
	if err != nil || len(edits) != maxCheckEdits {
		t.Errorf("%d %v", len(edits), err)
	}
}

func TestNamedBy(t *testing.T) {
	t.Parallel()
	c := Commands{
		Checks: map[string]string{"test": "cd web && sh ./check.sh 'data.txt'; bash -c \"scripts/verify.py --fast >main.py\"", "unit": "go test main.go"},
		Setup:  map[string]string{"setup": "cp .env.example .env && ./install.sh"},
	}
	for p, want := range map[string]string{
		"web/check.sh": "test", "check.sh": "", "web/data.txt": "test", "web/scripts/verify.py": "test", "web/main.py": "", "main.go": "",
		".env.example": "", "install.sh": "setup", "": "", "web/tests/data.txt": "",
	} {
		if got := c.namedBy(p); got != want {
			t.Errorf("%s: %q, want %q", p, got, want)
		}
	}
}

func FuzzSources(f *testing.F) {
	for _, dir := range []string{"cheats", "honest"} {
		for i, s := range samples(f, dir) {
			if testing.Short() && i%10 > 0 {
				continue // with the race detector, which has nothing to find here and makes it slow
			}
			for p, text := range s.base {
				f.Add(p, text, s.head[p])
			}
		}
	}
	f.Add("justfile", ":\ntest:\n  pytest\n", ":\n:test\n")
	f.Fuzz(func(t *testing.T, p, was, is string) {
		fc := &fileChange{oldPath: p, newPath: p, oldID: "a", newID: "b"}
		_ = changedKeys(was, is)
		_ = checkSettings(was)
		text := Commands{Checks: map[string]string{"test": was}}.namedBy(p) + is
		for _, fl := range []workorder.TestFinding{fc.testFlag(), fc.flag(workorder.FindingCheckEdited, text)} {
			if printable(fl.Text) != fl.Text || len(fl.Text) > maxFlagText || strings.Contains(fl.Text, "\n") {
				t.Fatalf("%+v", fl)
			}
		}
	})
}
