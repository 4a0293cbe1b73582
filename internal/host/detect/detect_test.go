package detect_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/sandbox-agent/sandbox-agent/internal/host/detect"
	"github.com/sandbox-agent/sandbox-agent/projects"
)

var update = flag.Bool("update", false, "write golden files anew")

// tree is a repository of a txtar file.
func tree(t *testing.T, file string) fstest.MapFS {
	t.Helper()
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	m := fstest.MapFS{}
	for _, f := range a.Files {
		m[f.Name] = &fstest.MapFile{Data: f.Data}
	}
	return m
}

// TestDetect compares the drafts of the repositories in testdata with golden files. Each draft is a valid project.
func TestDetect(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 15 {
		t.Fatalf("%d repositories, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			got := detect.Detect(t.Context(), tree(t, file), "My App!").YAML()
			if _, err := projects.Parse("draft.yaml", []byte(got), projects.LoadOptions{Dir: "/"}); err != nil {
				t.Errorf("the draft is invalid: %v", err)
			}
			if strings.Contains(got, "hunter2") {
				t.Error("a secret is repeated")
			}
			golden := strings.TrimSuffix(file, ".txtar") + ".yaml"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatalf("%v (write it with -update)", err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Every finding names a file that is there, and a line of it.
func TestFindings(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"workflows", "compose", "devcontainer", "pnpm", "maven", "versions", "berry"} {
		m := tree(t, "testdata/"+name+".txtar")
		findings := detect.Detect(t.Context(), m, name).Findings()
		if len(findings) == 0 {
			t.Errorf("%s: nothing found", name)
		}
		for _, f := range findings {
			if file := m[f.File]; file == nil || f.Line > 1+strings.Count(string(file.Data), "\n") {
				t.Errorf("%s: %s is of no line of the repository", name, f)
			}
		}
	}
}

func TestName(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"my-app": "my-app", "My App!": "My-App", "": "my-project", "...": "my-project", "日本": "my-project",
		strings.Repeat("a", 100): strings.Repeat("a", 63), "/": "my-project",
	} {
		if got := detect.Detect(t.Context(), fstest.MapFS{}, in).Name; got != want {
			t.Errorf("name of folder %q is %q, want %q", in, got, want)
		}
	}
}

// TestHostileFolder looks at a folder whose files are not what they seem: nothing of it is waited for, or read whole.
func TestHostileFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "package.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(t.TempDir(), "go.mod")
	if err := os.WriteFile(outside, []byte("module secret\n\ngo 1.0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "go.mod")); err != nil {
		t.Fatal(err)
	}
	large, err := os.Create(filepath.Join(dir, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	if err := large.Truncate(100 << 20); err != nil {
		t.Fatal(err)
	}
	large.Close()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	d := detect.Detect(t.Context(), root.FS(), "x")
	if f := d.Findings(); len(f) > 0 {
		t.Errorf("found %v", f)
	}
	var left []string
	for _, l := range d.Omitted {
		left = append(left, l.At.File)
	}
	if diff := cmp.Diff([]string{"package.json", "go.mod", "Makefile"}, left); diff != "" {
		t.Error(diff)
	}
}
