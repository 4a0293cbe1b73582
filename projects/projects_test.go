package projects_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/internal/diag"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

var update = flag.Bool("update", false, "write golden files anew")

// TestMistakes reads every testdata/err/*.yaml and compares what is reported.
func TestMistakes(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/err/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			content, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			_, err = projects.Parse(filepath.Base(f), content, projects.LoadOptions{Dir: "/src"})
			invalid, ok := errors.AsType[*projects.InvalidError](err)
			if !ok {
				t.Fatalf("want an invalid project, got %v", err)
			}
			if invalid.ExitCode() != workorder.ExitInvalid {
				t.Errorf("exit code %d", invalid.ExitCode())
			}
			var b strings.Builder
			if err := invalid.Problems.Print(&b, diag.Style{}); err != nil {
				t.Fatal(err)
			}
			for _, l := range []string{"hunter2", "leaked"} {
				if strings.Contains(b.String()+err.Error(), l) {
					t.Errorf("a secret (%s) is printed:\n%s", l, b.String())
				}
			}
			golden(t, strings.TrimSuffix(f, ".yaml")+".out", b.String())
		})
	}
}

// TestShipped checks every project file that is not meant to be wrong.
func TestShipped(t *testing.T) {
	t.Parallel()
	examples, _ := filepath.Glob("examples/*.yaml")
	valid, _ := filepath.Glob("testdata/ok/*.yaml")
	if len(examples) == 0 || len(valid) == 0 {
		t.Fatal("no project files")
	}
	for _, f := range append(examples, valid...) {
		if _, err := projects.Load(f, projects.LoadOptions{Dir: "."}); err != nil {
			t.Errorf("%s: %v", f, err)
		}
	}
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (write it with -update)", err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s differs (-want +got):\n%s", file, d)
	}
}
