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
)

var update = flag.Bool("update", false, "write golden files")

// tree is a repository of a txtar file.
func tree(t *testing.T, file string) fstest.MapFS {
	t.Helper()
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	m := fstest.MapFS{}
	for _, f := range a.Files {
		if f.Name != wantFile {
			m[f.Name] = &fstest.MapFile{Data: f.Data}
		}
	}
	return m
}

// TestYAML compares drafts with golden project files.
func TestYAML(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"compose", "devcontainer", "workflows"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := detect.Detect(tree(t, "testdata/table/"+name+".txtar"), "My App!").YAML()
			golden := "testdata/" + name + ".yaml"
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

func TestName(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"my-app": "my-app", "My App!": "My-App", "": "my-project", "...": "my-project", "日本": "my-project",
		strings.Repeat("a", 100): strings.Repeat("a", 63), "/": "my-project",
	} {
		if got := detect.Detect(fstest.MapFS{}, in).Name; got != want {
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
	d := detect.Detect(root.FS(), "x")
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
