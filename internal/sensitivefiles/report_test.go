package sensitivefiles

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// entry is a file of a commit: its mode, and its content or the commit of a submodule.
type entry struct{ mode, data string }

// reported commits two trees and returns the report on them.
func reported(t *testing.T, base, head map[string]entry) []workorder.SurfaceFinding {
	t.Helper()
	repo, ids := commits(t, base, head)
	found, err := Report(t.Context(), repo, ids[0], ids[1])
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func commits(t *testing.T, trees ...map[string]entry) (git.Repo, []string) {
	t.Helper()
	dir := t.TempDir()
	gittest.Git(t, dir, "init", "-q", "--bare")
	var b strings.Builder
	for i, tree := range trees {
		fmt.Fprintf(&b, "commit refs/heads/c%d\ncommitter Ann <ann@example.org> 1700000000 +0000\ndata 1\nx\ndeleteall\n", i)
		for p, e := range tree {
			if e.mode == modeSubmodule {
				fmt.Fprintf(&b, "M 160000 %s %s\n", e.data, p)
				continue
			}
			fmt.Fprintf(&b, "M %s inline %s\ndata %d\n%s\n", e.mode, p, len(e.data), e.data)
		}
		b.WriteString("\n")
	}
	repo := git.Repo{Dir: dir, Bare: true}
	in := repo
	in.Stdin = b.String()
	if err := in.Run(t.Context(), "fast-import", "--quiet"); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for i := range trees {
		ids = append(ids, gittest.Git(t, dir, "rev-parse", fmt.Sprintf("refs/heads/c%d", i)))
	}
	return repo, ids
}

func file(data string) entry { return entry{"100644", data} }

// said are findings as "kind path", with "!" in front of severe ones.
func said(found []workorder.SurfaceFinding) (all []string) {
	for _, f := range found {
		s := f.Kind + " " + f.Path
		if f.Severe {
			s = "!" + s
		}
		all = append(all, s)
	}
	return all
}

func TestClassify(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		".github/workflows/ci.yml":        "workflow",
		".GitHub/Workflows/CI.yml":        "workflow",
		"sub/.github/workflows/ci.yml":    "",
		"sub/action.yml":                  "workflow",
		".husky/pre-commit":               "hook",
		".sandbox-agent.yaml":             "agent-settings",
		"sub/.claude/settings.local.json": "agent-settings",
		".claude/hooks/deep/x.sh":         "agent-settings",
		".claude/skills/x/SKILL.md":       "agent-instructions",
		"sub/AGENTS.md":                   "agent-instructions",
		".vscode/mcp.json":                "agent-settings",
		".vscode/tasks.json":              "editor",
		".envrc":                          "environment",
		".devcontainer/devcontainer.json": "devcontainer",
		".gitmodules":                     "submodule",
		"sub/.gitattributes":              "attributes",
		".npmrc":                          "registry",
		"package.json":                    "package-script",
		"web/package-lock.json":           "dependencies",
		"go.mod":                          "dependencies",
		"requirements-dev.txt":            "dependencies",
		"Dockerfile.test":                 "container",
		"build.rs":                        "build-script",
		"buildSrc/src/main/A.kt":          "build-script",
		"Makefile":                        "recipe",
		"main.go":                         "",
		"workflows/ci.yml":                "",
		".claude":                         "",
		"README.md":                       "",
	} {
		got := ""
		if i := classify(name); i >= 0 {
			got = rules[i].kind
		}
		if got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// A pattern that no path can match, or that an earlier rule hides, is a mistake in the table.
func TestEveryPatternMatches(t *testing.T) {
	t.Parallel()
	for i, r := range rules {
		for _, s := range r.paths {
			if s != strings.ToLower(s) {
				t.Errorf("%s is not in lower case", s)
			}
			for name := range strings.SplitSeq(strings.TrimSuffix(s, "/**"), "/") {
				if strings.Count(name, "*") > 1 {
					t.Errorf("%s has more than one star in a name", s)
				}
			}
			p := strings.ReplaceAll(strings.TrimPrefix(s, "/"), "/**", "/zz/zz")
			if got := classify(strings.ReplaceAll(p, "*", "zz")); got != i {
				t.Errorf("%s of rule %d (%s) belongs to rule %d", s, i, r.kind, got)
			}
		}
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	elf := "\x7fELF\x02\x01\x01\x00"
	found := reported(t,
		map[string]entry{
			"run.sh": file("#!/bin/sh\n"), "old.sh": {modeExecutable, "#!/bin/sh\n"}, ".travis.yml": file("x"), "a.go": file("package a\n"), "vendored": {modeSubmodule, strings.Repeat("1", 40)},
			"gone.bin": file(elf),
		},
		map[string]entry{
			"run.sh": {modeExecutable, "#!/bin/sh\n"}, "old.sh": {modeExecutable, "#!/bin/sh\ntrue\n"}, "a.go": file("package a\n\nvar X = 1\n"), "vendored": {modeSubmodule, strings.Repeat("2", 40)},
			".github/workflows/ci.yml": file("on: push\n"), "link": {modeLink, "/etc/passwd"}, "tool": {modeExecutable, elf}, "data.bin": file(elf), "logo.png": file("\x89PNG\x00"),
			"evil\u202egnp.js": file("1\n"), "go.sum": file("x\n"), "bun.lockb": file(elf),
			// Attributes of the repository do not hide a binary file.
			".gitattributes": file("* diff text\n"),
		})
	want := []string{
		"!submodule vendored", "!symlink link", `!invisible evil\u202egnp.js`, "!binary tool", "!workflow .travis.yml", "!workflow .github/workflows/ci.yml", "!attributes .gitattributes",
		"mode run.sh", "mode tool", "binary data.bin", "dependencies bun.lockb", "dependencies go.sum",
	}
	if got := said(found); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, f := range found {
		if f.Text == "" || f.Line != 0 {
			t.Errorf("%+v", f)
		}
	}
	if !strings.HasPrefix(found[4].Text, "deleted") || !strings.HasPrefix(found[5].Text, "new") {
		t.Errorf("%+v", found[4:6])
	}
}

func TestNothingSensitive(t *testing.T) {
	t.Parallel()
	found := reported(t, map[string]entry{"a.go": file("package a\n")}, map[string]entry{"b.go": file("package a\n")})
	if found == nil || len(found) != 0 {
		t.Errorf("%+v", found)
	}
}

// The list is bounded for each rule, and files close to the root come first.
func TestBounds(t *testing.T) {
	t.Parallel()
	head := map[string]entry{"package.json": file("{}"), strings.Repeat("d/", 200) + "Makefile": file("x")}
	for i := range 3 * perRule {
		head[fmt.Sprintf("a/%d/package.json", i)] = file("{}")
	}
	repo, ids := commits(t, head)
	found, err := Report(t.Context(), repo, "", ids[0])
	if err != nil || len(found) != perRule+1 || found[0].Path != "package.json" {
		t.Fatalf("%v, %v", said(found), err)
	}
	if last := found[perRule-1].Text; !strings.Contains(last, fmt.Sprint(2*perRule+1)) {
		t.Errorf("the last one does not tell the number of the others: %s", last)
	}
	if n := len([]rune(found[perRule].Path)); n > maxPath {
		t.Errorf("a path of %d characters", n)
	}
}

// What paths and modes say is there although contents cannot be read.
func TestMissingObject(t *testing.T) {
	t.Parallel()
	repo, ids := commits(t, map[string]entry{".travis.yml": file("a")}, map[string]entry{".travis.yml": file("b")})
	blob := gittest.Git(t, repo.Dir, "rev-parse", ids[1]+":.travis.yml")
	if err := os.Remove(filepath.Join(repo.Dir, "objects", blob[:2], blob[2:])); err != nil {
		t.Fatal(err)
	}
	if found, err := Report(t.Context(), repo, ids[0], ids[1]); err == nil || !slices.Equal(said(found), []string{"!workflow .travis.yml"}) {
		t.Errorf("%v, %v", said(found), err)
	}
	if _, err := Report(t.Context(), repo, "main", ids[1]); err == nil {
		t.Error("a name is taken for a commit")
	}
}
