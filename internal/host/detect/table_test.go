package detect_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/sandbox-agent/sandbox-agent/internal/host/detect"
	"github.com/sandbox-agent/sandbox-agent/projects"
)

// order is the part of a work order that detection decides. Services, checks and the development server are lines of text.
type order struct {
	Tools     map[string]string `json:"tools,omitempty"`
	Packages  []string          `json:"packages,omitempty"`
	Services  map[string]string `json:"services,omitempty"`
	Env       map[string]string `json:"env,omitempty"`
	Setup     []string          `json:"setup,omitempty"`
	Checks    []string          `json:"checks,omitempty"`
	Dev       string            `json:"dev,omitempty"`
	Browser   bool              `json:"browser,omitempty"`
	Suggested []string          `json:"suggested,omitempty"`
	// Left are omissions by position and name.
	Left []string `json:"left,omitempty"`
}

const wantFile = "want.json"

// TestTable compares the orders of small repositories with the expected ones, which are a file of each.
func TestTable(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/table/*.txtar")
	if err != nil || len(files) < 60 {
		t.Fatalf("%d repositories, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			m, want := tree(t, file), wanted(t, file)
			d := detect.Detect(m, "x")
			got := orderOf(t, d)
			if *update {
				writeWant(t, file, &got)
				return
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if strings.Contains(d.YAML(), "hunter2") {
				t.Error("a secret is repeated")
			}
			for _, f := range d.Findings() {
				if file := m[f.File]; file != nil && f.Line > 1+strings.Count(string(file.Data), "\n") {
					t.Errorf("%s is of no line of the repository", f)
				}
			}
		})
	}
}

// wanted is the expected order of a repository.
func wanted(t *testing.T, file string) (o order) {
	t.Helper()
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range a.Files {
		if f.Name == wantFile {
			if err := json.Unmarshal(f.Data, &o); err != nil {
				t.Fatal(err)
			}
		}
	}
	return o
}

// orderOf reads the draft as a project, and takes what it orders.
func orderOf(t *testing.T, d *detect.Draft) (o order) {
	t.Helper()
	p, err := projects.Parse("draft.yaml", []byte(d.YAML()), projects.LoadOptions{Dir: "/"})
	if err != nil {
		t.Fatalf("the draft is invalid: %v\n%s", err, d.YAML())
	}
	spec := p.Spec()
	o = order{Tools: spec.Tools, Packages: spec.Packages, Env: spec.Env, Setup: spec.Setup}
	for _, s := range spec.Services {
		line := append([]string{s.Image}, s.Ports...)
		if len(s.Command) > 0 {
			line = append(line, fmt.Sprint(s.Command))
		}
		var env []string
		for k, v := range s.Env {
			env = append(env, k+"="+v)
		}
		slices.Sort(env)
		if o.Services == nil {
			o.Services = map[string]string{}
		}
		o.Services[s.Name] = strings.Join(append(line, env...), " ")
	}
	for _, c := range p.Validate {
		o.Checks = append(o.Checks, c.Name+": "+c.Run)
	}
	o.Browser = p.Browser
	if p.Dev != nil {
		o.Dev = fmt.Sprintf("%s :%d", p.Dev.Command, p.Dev.Port)
	}
	for _, c := range d.Suggested {
		o.Suggested = append(o.Suggested, c.Name+": "+c.Command)
	}
	for _, l := range d.Omitted {
		o.Left = append(o.Left, fmt.Sprintf("%s %s", l.At, l.What))
	}
	return o
}

func writeWant(t *testing.T, file string, o *order) {
	t.Helper()
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(o); err != nil {
		t.Fatal(err)
	}
	a.Files = slices.DeleteFunc(a.Files, func(f txtar.File) bool { return f.Name == wantFile })
	a.Files = append(a.Files, txtar.File{Name: wantFile, Data: []byte(b.String())})
	if err := os.WriteFile(file, txtar.Format(a), 0o600); err != nil {
		t.Fatal(err)
	}
}
