package tools

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/versionrange"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// scripted is a way that a test writes.
type scripted struct {
	has   []string
	err   error
	says  string // what its programs say instead of their version
	asked int
	fills int
}

func (*scripted) String() string { return "scripted" }

func (s *scripted) list(context.Context, *Tools, *tool) ([]string, error) {
	s.asked++
	return s.has, s.err
}

func (s *scripted) fill(ctx context.Context, _ *Tools, t *tool, version, dir string) error {
	s.fills++
	if s.says != "" {
		version = s.says
	}
	return program(ctx, filepath.Join(dir, "bin"), t.programs[0], version)
}

// program writes one that says a version. A process of its own writes it: a file that is open for writing cannot be run, and one that is
// open here would be open in each process that another test starts meanwhile.
func program(ctx context.Context, dir, name, version string) error {
	script := fmt.Sprintf("#!/bin/sh\necho '%s version %s (2026)'\n", name, version)
	return proc.Run(ctx, proc.Spec{
		Argv: []string{"/bin/sh", "-c", `mkdir -p "$1" && cat >"$1/$2" && chmod 755 "$1/$2"`, "sh", dir, name}, Stdin: strings.NewReader(script),
	})
}

// box is a box whose image has node 24.1.0 and java 1.8.0, with ways for all tools that have nothing.
func box(t *testing.T, ways map[string][]way) *Tools {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	for name, version := range map[string]string{"node": "v24.1.0", "java": "1.8.0_392", "npm": "11.2.0"} {
		if err := program(t.Context(), image, name, version); err != nil {
			t.Fatal(err)
		}
	}
	b := &Tools{Dir: filepath.Join(t.TempDir(), "tools"), Path: image + ":/usr/bin:/bin", Commands: "/mine:/usr/bin", Log: func() (io.WriteCloser, error) { return os.Create(filepath.Join(t.TempDir(), "tools.log")) }, table: map[string]*tool{}}
	for _, name := range workorder.ToolNames() {
		b.table[name] = &tool{name: name, programs: []string{name}, ways: ways[name]}
	}
	return b
}

// there are the programs in front of PATH, with the folders that they are in.
func there(t *testing.T, b *Tools) map[string]string {
	t.Helper()
	links, err := os.ReadDir(filepath.Join(b.Dir, "bin"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, l := range links {
		to, err := filepath.EvalSymlinks(filepath.Join(b.Dir, "bin", l.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[l.Name()], _ = filepath.Rel(b.Dir, filepath.Dir(filepath.Dir(to)))
	}
	return all
}

func TestWays(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	for name, row := range map[string]struct {
		asked  string
		first  scripted
		second scripted
		put    string // the version that is there afterwards; empty: none beside the image's
		tried  []SourceResult
	}{
		"the image's":          {asked: "8"},
		"newest that fits":     {asked: "21", first: scripted{has: []string{"21.0.2", "21.0.13", "22.0.1"}}, put: "21.0.13"},
		"second way":           {asked: ">=17 <18", first: scripted{has: []string{"21.0.1"}}, second: scripted{has: []string{"17.0.9"}}, put: "17.0.9"},
		"first way is down":    {asked: "17", first: scripted{err: down}, second: scripted{has: []string{"17.0.9"}}, put: "17.0.9"},
		"says another version": {asked: "17", first: scripted{has: []string{"17.0.9"}, says: "18.0.0"}, second: scripted{has: []string{"17.0.1"}}, put: "17.0.1"},
		"none": {
			asked: "17", first: scripted{has: []string{"21.0.1", "21.0.2", "25.0.1"}}, second: scripted{err: down},
			tried: []SourceResult{{Way: "image", Has: []string{"8.0"}}, {Way: "scripted", Has: []string{"25.0.1", "21.0.2"}}, {Way: "scripted", Err: down}},
		},
		"no version": {asked: "a/b", tried: []SourceResult{{Err: errors.New("any")}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := box(t, map[string][]way{"java": {&row.first, &row.second}})
			env, err := b.Install(t.Context(), map[string]string{"java": row.asked})
			var missing []Missing
			if e, ok := errors.AsType[*Error](err); ok {
				missing = e.Missing
			} else if err != nil {
				t.Fatal(err)
			}
			var want []Missing
			if row.tried != nil {
				want = []Missing{{Tool: "java", Asked: row.asked, Sources: row.tried}}
			}
			if diff := cmp.Diff(want, missing, cmp.Comparer(func(a, b error) bool { return (a == nil) == (b == nil) })); diff != "" {
				t.Error(diff)
			}
			bin := map[string]string{}
			if row.put != "" {
				bin["java"] = "java/" + row.put
				home, err := filepath.EvalSymlinks(filepath.Join(b.Dir, "java", row.put))
				if err != nil || env["JAVA_HOME"] != home {
					t.Errorf("JAVA_HOME is %q, want %q, %v", env["JAVA_HOME"], home, err)
				}
			}
			if diff := cmp.Diff(bin, there(t, b)); diff != "" {
				t.Error(diff)
			}
			if env["PATH"] != filepath.Join(b.Dir, "bin")+":/mine:/usr/bin" {
				t.Errorf("PATH is %q", env["PATH"])
			}
			if left, _ := filepath.Glob(filepath.Join(b.Dir, ".*")); len(left) > 0 {
				t.Errorf("%q was left", left)
			}
		})
	}
}

// All unavailable tools are reported together, and the others are installed.
func TestAllMistakes(t *testing.T) {
	t.Parallel()
	b := box(t, map[string][]way{"go": {&scripted{has: []string{"1.26.1"}}}})
	env, err := b.Install(t.Context(), map[string]string{"go": "1.26", "ruby": "3.3", "php": "8", "node": "24"})
	var names []string
	if e, ok := errors.AsType[*Error](err); ok {
		for _, m := range e.Missing {
			names = append(names, m.Tool)
		}
	}
	if !slices.Equal(names, []string{"ruby", "php"}) {
		t.Errorf("missing are %q: %v", names, err)
	}
	if diff := cmp.Diff(map[string]string{"go": "go/1.26.1"}, there(t, b)); diff != "" {
		t.Error(diff)
	}
	if env["GOTOOLCHAIN"] != "local" {
		t.Errorf("Go may fetch another version: %q", env["GOTOOLCHAIN"])
	}
}

// What is in the folder and satisfies is not fetched again; what does not run any more is.
func TestKept(t *testing.T) {
	t.Parallel()
	w := &scripted{has: []string{"1.2.3", "2.0.0"}}
	b := box(t, map[string][]way{"bun": {w}})
	install := func(asked string) {
		t.Helper()
		if _, err := b.Install(t.Context(), map[string]string{"bun": asked}); err != nil {
			t.Fatal(err)
		}
	}
	install("1")
	install("1")
	if w.asked != 1 || w.fills != 1 {
		t.Errorf("asked %d times, filled %d times", w.asked, w.fills)
	}
	install("2")
	if diff := cmp.Diff(map[string]string{"bun": "bun/2.0.0"}, there(t, b)); diff != "" {
		t.Error(diff)
	}
	install("^1.2")
	if diff := cmp.Diff(map[string]string{"bun": "bun/1.2.3"}, there(t, b)); diff != "" || w.fills != 2 {
		t.Errorf("filled %d times, %s", w.fills, diff)
	}
	if err := os.Remove(filepath.Join(b.Dir, "bun/1.2.3/bin/bun")); err != nil {
		t.Fatal(err)
	}
	install("1")
	if w.fills != 3 {
		t.Errorf("what does not run was taken: filled %d times", w.fills)
	}
}

// An install that was killed leaves nothing that counts.
func TestKilledInstall(t *testing.T) {
	t.Parallel()
	w := &scripted{has: []string{"1.2.3"}}
	b := box(t, map[string][]way{"bun": {w}})
	half := filepath.Join(b.Dir, unfinished+"1")
	if err := program(t.Context(), filepath.Join(half, "bin"), "bun", "1.2.3"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Install(t.Context(), map[string]string{"bun": "1"}); err != nil || w.fills != 1 {
		t.Errorf("filled %d times, %v", w.fills, err)
	}
	if exists(half) {
		t.Error("the half install is still there")
	}
}

// The image's own version takes the place of one that an earlier run put there.
func TestBackToTheImage(t *testing.T) {
	t.Parallel()
	b := box(t, map[string][]way{"java": {&scripted{has: []string{"17.0.1"}}}})
	for _, asked := range []string{"17", "8"} {
		if _, err := b.Install(t.Context(), map[string]string{"java": asked}); err != nil {
			t.Fatal(err)
		}
	}
	if got := there(t, b); len(got) != 0 {
		t.Errorf("%v is in front of the image's", got)
	}
}

// Maven runs on Java: one that the image lacks is brought, too.
func TestMavenNeedsJava(t *testing.T) {
	t.Parallel()
	b := box(t, map[string][]way{"maven": {&scripted{has: []string{"3.9.9"}}}})
	if got := slices.Sorted(maps.Keys(b.plus(map[string]string{"maven": "3"}))); !slices.Equal(got, []string{"java", "maven"}) {
		t.Errorf("asked for are %q", got)
	}
	if got := b.plus(map[string]string{"maven": "3", "java": "17"})["java"]; got != "17" {
		t.Errorf("java %q", got)
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	all := table()
	if got, want := slices.Sorted(maps.Keys(all)), slices.Sorted(slices.Values(workorder.ToolNames())); !slices.Equal(got, want) {
		t.Errorf("rows %q, want %q", got, want)
	}
	for name, row := range all {
		if row.name != name || len(row.programs) == 0 || len(row.ways) == 0 {
			t.Errorf("row %s: %+v", name, row)
		}
	}
}

// TestSaid reads what programs say of themselves.
func TestSaid(t *testing.T) {
	t.Parallel()
	for out, want := range map[string]string{
		"v22.3.1\n":                        "22.3.1",
		"go version go1.26rc1 linux/amd64": "1.26rc1",
		"go version go1.26.8 linux/amd64":  "1.26.8",
		"Python 3.13.5":                    "3.13.5",
		"openjdk version \"17.0.9\" 2023-10-17\nOpenJDK Runtime": "17.0.9",
		"openjdk version \"21\" 2023-09-19":                      "21",
		"ruby 3.3.0p0 (2023-12-25 revision 5124f9ac75)":          "3.3.0",
		"PHP 8.2.20 (cli) (built: Jun  4 2024)":                  "8.2.20",
		"Apache Maven 3.9.6 (bc0240f3c744dd6b6ec2920b3cd08dcc)":  "3.9.6",
		"\n----\nGradle 8.5\n----\n\nBuild time: 2023":           "8.5",
		"Poetry (version 1.8.3)":                                 "1.8.3",
		"rustc 1.85.1 (4eb161250 2025-03-15)":                    "1.85.1",
	} {
		if got := said.FindString(out); got != want || versionrange.Compare(got, "none") <= 0 {
			t.Errorf("%q says %q, want %q", out, got, want)
		}
	}
}

// Root runs nothing from a folder that the agent's user can write.
func TestTrusted(t *testing.T) {
	t.Parallel()
	got := Trusted("/home/sandbox/.local/bin:/usr/bin::.:bin:/home/sandbox:/home/sandboxes/bin:/workspace/x/../bin", "/home/sandbox", "/workspace")
	if got != "/usr/bin:/home/sandboxes/bin" {
		t.Error(got)
	}
}

// A failure of a program is one line without its noise.
func TestBrief(t *testing.T) {
	t.Parallel()
	b := box(t, nil)
	b.log = &strings.Builder{}
	_, err := b.run(t.Context(), "/", nil, "sh", "-c", "printf 'mise ERROR dns error\\nmise ERROR dns error\\nmise ERROR Version: 1\\n' >&2; exit 1")
	if got := brief(err); got == nil || got.Error() != "dns error" {
		t.Errorf("%v", got)
	}
	if got := npmError([]byte(`{"error": {"code": "E404", "summary": "Not Found"}}`), err); got.Error() != "E404: Not Found" {
		t.Errorf("%v", got)
	}
}
