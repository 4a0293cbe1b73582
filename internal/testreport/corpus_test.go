package testreport

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// sample is a change of the corpus: files of base and of head.
type sample struct {
	name, lang, kind string
	checks, setup    map[string]string
	base, head       map[string]string
}

func samples(tb testing.TB, dir string) (out []sample) {
	tb.Helper()
	files, err := filepath.Glob("testdata/" + dir + "/*.txtar")
	if err != nil {
		tb.Fatal(err)
	}
	for _, f := range files {
		a, err := txtar.ParseFile(f)
		if err != nil {
			tb.Fatal(err)
		}
		s := sample{name: strings.TrimSuffix(filepath.Base(f), ".txtar"), checks: map[string]string{}, setup: map[string]string{}, base: map[string]string{}, head: map[string]string{}}
		for line := range strings.Lines(string(a.Comment)) {
			k, v, _ := strings.Cut(strings.TrimSpace(line), ": ")
			switch k {
			case "lang":
				s.lang = v
			case "kind":
				s.kind = v
			case "check":
				n, cmd, _ := strings.Cut(v, "=")
				s.checks[n] = cmd
			case "setup":
				n, cmd, _ := strings.Cut(v, "=")
				s.setup[n] = cmd
			}
		}
		for _, file := range a.Files {
			side, p, _ := strings.Cut(file.Name, "/")
			map[string]map[string]string{"base": s.base, "head": s.head}[side][p] = string(file.Data)
		}
		out = append(out, s)
	}
	return out
}

// commits puts files into a bare repository and returns the ids of one commit for each, parents first.
func commits(tb testing.TB, sides ...map[string]string) (git.Repo, []string) {
	tb.Helper()
	r := git.Repo{Dir: tb.TempDir(), Bare: true}
	if err := r.Run(tb.Context(), "init", "-q", "--bare"); err != nil {
		tb.Fatal(err)
	}
	var in strings.Builder
	for i, files := range sides {
		fmt.Fprintf(&in, "commit refs/heads/c%d\nmark :%d\ncommitter Ann <ann@example.org> 1000000000 +0000\ndata 1\nx\ndeleteall\n", i, i+1)
		for p, content := range files {
			fmt.Fprintf(&in, "M 100644 inline %s\ndata %d\n%s\n", p, len(content), content)
		}
		in.WriteString("\n")
	}
	imp := r
	imp.Stdin = in.String()
	if err := imp.Run(tb.Context(), "fast-import", "--quiet"); err != nil {
		tb.Fatal(err)
	}
	out, err := r.Output(tb.Context(), "for-each-ref", "--sort=version:refname", "--format=%(objectname)")
	ids := strings.Fields(string(out))
	if err != nil || len(ids) != len(sides) {
		tb.Fatalf("%d commits, want %d: %v", len(ids), len(sides), err)
	}
	return r, ids
}

// inOne puts all samples into one repository: commits 2i and 2i+1 are base and head of sample i.
func inOne(tb testing.TB, all []sample) (git.Repo, []string) {
	tb.Helper()
	var sides []map[string]string
	for _, s := range all {
		sides = append(sides, s.base, s.head)
	}
	return commits(tb, sides...)
}

func (s sample) flags(tb testing.TB, r git.Repo, base, head string) []workorder.TestFinding {
	tb.Helper()
	edited, err := FindEdited(tb.Context(), r, base, head, Commands{Checks: s.checks, Setup: s.setup})
	if err != nil {
		tb.Fatal(err)
	}
	return slices.DeleteFunc(edited.Flags, func(f workorder.TestFinding) bool { return f.Kind == workorder.FindingTestEdited })
}

// Every seeded edit of a check is flagged.
func TestCheats(t *testing.T) {
	t.Parallel()
	all := samples(t, "cheats")
	if len(all) < 24 {
		t.Errorf("only %d cheats", len(all))
	}
	r, ids := inOne(t, all)
	for i, s := range all {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			flags := s.flags(t, r, ids[2*i], ids[2*i+1])
			if !slices.ContainsFunc(flags, func(f workorder.TestFinding) bool { return f.Kind == s.kind && f.Path != "" && f.Text != "" }) {
				t.Errorf("not flagged as %s: %+v", s.kind, flags)
			}
			for _, f := range flags {
				if f.Kind != s.kind {
					t.Errorf("flagged in vain: %+v", f)
				}
			}
		})
	}
}

// Honest changes of what checks read are not flagged at all.
func TestHonest(t *testing.T) {
	t.Parallel()
	all := samples(t, "honest")
	if len(all) < 16 {
		t.Errorf("only %d honest changes", len(all))
	}
	r, ids := inOne(t, all)
	for i, s := range all {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			for _, f := range s.flags(t, r, ids[2*i], ids[2*i+1]) {
				t.Errorf("flagged: %+v", f)
			}
			if len(s.kind) != 0 {
				t.Error("an honest change has no kind")
			}
		})
	}
}
