//go:build e2e

package e2e

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// lockModule is a project whose tests talk to a Redis at an address that is written in them.
const lockModule = "github.com/bsm/redislock@v0.9.4"

// realProject is one of other people, as they published it.
type realProject struct {
	files  func(t *testing.T) map[string]string
	image  func(t *testing.T) mirror // of the box; nil means foundBox
	checks []string                  // that pass, in their order
	red    []string                  // that fail as before: their reasons lie in how the project was published, or in what this network lacks
	// warnings is how much of what was found cannot be had.
	warnings int
	// again starts a second task, which asks the mirror for nothing.
	again bool
	// goesOn runs the commands that the summary and the README name next, by the task's id alone.
	goesOn bool
}

// TestRealProjects starts a task in real projects without a project file, each in a repository that was made a moment ago. They are as
// their authors published them, but for what is said at the row.
func TestRealProjects(t *testing.T) {
	t.Parallel()
	rows := map[string]realProject{
		"rust": {files: source("rust-fnv"), checks: []string{"test"}, goesOn: true},
	}
	if nightly {
		maps.Copy(rows, map[string]realProject{
			"python":                   {files: source("python-slugify"), image: pypiBox, checks: []string{"test", "lint"}, warnings: 1}, // setuptools, a dependency, unittest
			"go with dependencies":     {files: released("github.com/spf13/cobra@v1.9.1"), checks: []string{"test", "vet"}},
			"npm with development":     {files: packed("reusify@1.1.0"), checks: []string{"test", "lint", "typecheck"}},
			"npm with a hook":          {files: packed("split2@4.2.0"), checks: []string{"test", "lint"}}, // its tests run with each commit
			"pnpm":                     {files: locked("split2@4.2.0", "pnpm@10", "install", "--lockfile-only"), checks: []string{"test", "lint"}},
			"python with tox's pytest": {files: source("python-cachetools"), image: pypiBox, checks: []string{"test"}, warnings: 1},
			"ruby":                     {files: source("rake"), image: gemBox, checks: []string{"test", "lint"}},
			// Its tests have the address of Redis written in them; the compose file is ours, in place of its job's service.
			"compose": {files: with(with(released(lockModule), ".github/workflows/test.yml", "on: push\njobs: {}\n"),
				"compose.yaml", "services: {redis: {image: "+redisImage+", ports: ['6379:6379']}}"), checks: []string{"test", "vet"}},
			// Its setup needs the directory that the editor gives it. The database is left out, since starting it accepts a licence.
			"devcontainer": {files: released("github.com/microsoft/go-mssqldb@v1.11.2"), checks: []string{"vet"}, red: []string{"test"}, warnings: 1},
			// Folders that its tests look for are modules of their own, which its author's archive has not.
			"red before": {files: released("github.com/stretchr/testify@v1.10.0"), checks: []string{"vet"}, red: []string{"test"}},
			// The plugin that uploads its releases is left out: the distribution has none, and Maven reads it before anything else.
			"java": {files: without("jsemver", "pom.xml", uploads), image: mavenBox, checks: []string{"test"}, again: true},
			"php":  {files: source("php-zumba-json-serializer"), image: composerBox, checks: []string{"test"}, again: true},
			// Its pyproject.toml names the index, and its lock file is made anew.
			"poetry": {files: poetryLocked("python-async-interrupt"), image: pypiBox, checks: []string{"test"}},
		})
	}
	u := newUser(t, "ANTHROPIC_API_KEY=sk-ant-none")
	foundImage(t, u)
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mine := *u
			mine.t = t
			box := mirror{image: foundBox}
			if row.image != nil {
				box = row.image(t)
			}
			mine.dir = mine.repo(row.files(t))
			c := mine.run("", "create", "--task", "x", "--image", box.image)
			r := mine.result(c.task(t))
			status := workorder.StatusSuccess
			if len(row.red) > 0 {
				status = workorder.StatusUnproven
			}
			if c.code != workorder.ExitCode(status, r.EndedBy) || r.Status != status || len(r.Warnings) != row.warnings {
				t.Errorf("exit code %d, status %s (%s), warnings %q", c.code, r.Status, r.Reasons, r.Warnings)
			}
			var passed, failed []string
			for _, v := range r.Validation {
				if v.Passed {
					passed = append(passed, v.Name)
				} else {
					failed = append(failed, v.Name)
				}
			}
			if !slices.Equal(passed, row.checks) || !slices.Equal(failed, row.red) {
				t.Errorf("checks %q passed and %q failed, want %q and %q", passed, failed, row.checks, row.red)
			}
			// Each was run on both sides, and ended as on the other.
			if r.Proof == nil || len(r.Proof.Checks) != len(row.checks)+len(row.red) {
				t.Fatalf("proof %+v", r.Proof)
			}
			for _, p := range r.Proof.Checks {
				if p.Transition != workorder.TransitionStillPasses && p.Transition != workorder.TransitionStillFails {
					t.Errorf("%s: %s", p.Name, p.Transition)
				}
			}
			if row.goesOn {
				mine.goesOn(r.TaskID)
			}
			if !row.again {
				return
			}
			before := box.asked.Load()
			if c := mine.run("", "create", "--task", "y", "--image", box.image); c.code != 0 {
				t.Errorf("second task: exit code %d", c.code)
			}
			if asked := box.asked.Load(); before == 0 || asked != before {
				t.Errorf("the mirror was asked %d times by the first task, and %d times by the second", before, asked-before)
			}
		})
	}
}

// goesOn continues, revises and rebases a task by its id.
func (u *user) goesOn(id string) {
	u.t.Helper()
	feedback := filepath.Join(u.t.TempDir(), "feedback.md")
	if err := os.WriteFile(feedback, []byte("- do it\n"), 0o600); err != nil {
		u.t.Fatal(err)
	}
	for _, args := range [][]string{{"continue", id, "--task", "y"}, {"revise", id, "--feedback-file", feedback}, {"rebase", id}} {
		if c := u.run("", args...); c.code != 0 {
			u.t.Errorf("%s: exit code %d: %s", args[0], c.code, c.stderr)
		}
	}
}

// released are the files of a Go module.
func released(name string) func(t *testing.T) map[string]string {
	return func(t *testing.T) map[string]string { t.Helper(); return module(t, name) }
}

func with(files func(t *testing.T) map[string]string, name, content string) func(t *testing.T) map[string]string {
	return func(t *testing.T) map[string]string {
		t.Helper()
		all := files(t)
		all[name] = content
		return all
	}
}

// packed are the files of an npm package.
func packed(name string) func(t *testing.T) map[string]string {
	return func(t *testing.T) map[string]string { t.Helper(); return npmPackage(t, name) }
}

// locked are the files of an npm package with the lock file that a package manager makes of it, since packages have none.
func locked(name, manager string, args ...string) func(t *testing.T) map[string]string {
	return func(t *testing.T) map[string]string {
		t.Helper()
		dir, files := t.TempDir(), fstest.MapFS{}
		for name, content := range npmPackage(t, name) {
			files[name] = &fstest.MapFile{Data: []byte(content), Mode: 0o644}
		}
		if err := os.CopyFS(dir, files); err != nil {
			t.Fatal(err)
		}
		if err := proc.Run(t.Context(), proc.Spec{Argv: append([]string{"npx", "--yes", manager}, args...), Dir: dir, Env: os.Environ(), Stderr: os.Stderr}); err != nil {
			t.Fatalf("%s: %v", manager, err)
		}
		return filesOf(t, dir)
	}
}

// source are the files of a source package of the distribution, as their author published them.
func source(name string) func(t *testing.T) map[string]string {
	return func(t *testing.T) map[string]string {
		t.Helper()
		files := below(distribution(t).files, "sources/"+name)
		if len(files) == 0 {
			t.Fatalf("the distribution has no source of %s", name)
		}
		return files
	}
}

// uploads is the plugin of a pom.xml that brings releases to Maven Central.
var uploads = regexp.MustCompile(`\s*<plugin>\s*<groupId>org\.sonatype\.plugins</groupId>(?s:.*?)</plugin>`)

// without are the files of a source package, one of them without a part.
func without(name, file string, part *regexp.Regexp) func(t *testing.T) map[string]string {
	return func(t *testing.T) map[string]string {
		t.Helper()
		files := source(name)(t)
		rest := part.ReplaceAllString(files[file], "")
		if rest == files[file] {
			t.Fatalf("%s of %s has no such part", file, name)
		}
		files[file] = rest
		return files
	}
}

// poetryLocked are the files of a source package that name an index of the test's own, with the lock file that Poetry makes of it:
// Poetry takes no mirror from its surroundings, and the author's lock file has the sums of other files.
func poetryLocked(name string) func(t *testing.T) map[string]string {
	return func(t *testing.T) map[string]string {
		t.Helper()
		d, files := distribution(t), source(name)(t)
		files["pyproject.toml"] += "\n[[tool.poetry.source]]\nname = \"local\"\nurl = \"http://" + serve(t, index(below(d.files, "wheels"))) + "/simple/\"\n"
		locked := fmt.Sprintf("sandbox-agent-e2e-locked:%x", sha256.Sum256([]byte(files["pyproject.toml"])))
		if err := buildImage(t.Context(), locked, "FROM "+d.image+"\nRUN mkdir /locked && cd /locked && "+decoded(files["pyproject.toml"])+"cat >pyproject.toml && poetry lock\n"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { removeImage(t, locked) })
		made, err := filesOfImage(t.Context(), locked, "/locked")
		if err != nil {
			t.Fatal(err)
		}
		files["poetry.lock"] = made["locked/poetry.lock"]
		return files
	}
}

func below(files map[string]string, folder string) map[string]string {
	part := map[string]string{}
	for name, content := range files {
		if rest, ok := strings.CutPrefix(name, folder+"/"); ok {
			part[rest] = content
		}
	}
	return part
}
