package projects_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"gopkg.in/yaml.v3"

	"github.com/sandbox-agent/sandbox-agent/projects"
)

// TestEverythingIsEverything keeps the file that TestEverything reads complete:
// a key that is added to the table must be decoded, bound and tested.
func TestEverythingIsEverything(t *testing.T) {
	t.Parallel()
	written := map[string]bool{}
	for _, f := range []string{"everything", "seed-flat", "harness-codex"} {
		maps.Copy(written, load(t, "testdata/ok/"+f+".yaml").Written())
	}
	for _, path := range projects.KeyPaths() {
		if !written[path] {
			t.Errorf("no project sets %s", path)
		}
	}
	if u := projects.Undocumented(); len(u) > 0 {
		t.Errorf("keys without a description: %q", u)
	}
}

// TestShowReadsBack: what show prints is a project that means the same.
func TestShowReadsBack(t *testing.T) {
	t.Parallel()
	for _, f := range []string{"everything", "seed-flat", "seed-nested"} {
		p := load(t, "testdata/ok/"+f+".yaml")
		for _, effective := range []bool{false, true} {
			again, err := projects.Parse("/src/x.yaml", []byte(p.Show(effective)), projects.LoadOptions{Dir: "/cwd", Home: "/home/me"})
			if err != nil {
				t.Fatalf("%s: %v\n%s", f, err, p.Show(effective))
			}
			if again.Show(false) != p.Show(false) && !effective {
				t.Errorf("%s changes when it is shown twice", f)
			}
			if strings.Contains(again.Show(true), "# testdata") {
				t.Error("origins are part of the value")
			}
		}
	}
}

// compiled is the generated JSON Schema in a validator of its own.
func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	b, err := projects.JSONSchema()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("project.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("project.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// asEditor reads YAML the way editors do: as plain JSON values.
func asEditor(t *testing.T, content []byte) any {
	t.Helper()
	var v any
	if err := yaml.Unmarshal(content, &v); err != nil {
		t.Skip("no YAML")
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Skip("not representable as JSON")
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// TestJSONSchema: editors accept every valid project, and mark the mistakes
// that a schema can know of.
func TestJSONSchema(t *testing.T) {
	t.Parallel()
	s := compiled(t)
	ok, _ := filepath.Glob("testdata/ok/*.yaml")
	more, _ := filepath.Glob("examples/*.yaml")
	for _, f := range append(ok, more...) {
		t.Run(f, func(t *testing.T) {
			content, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Validate(asEditor(t, content)); err != nil {
				t.Error(err)
			}
		})
	}
	for _, f := range []string{
		"unknown-keys", "types", "numbers", "branch", "harness-unknown", "harness-mapping", "network", "network-mapping", "gateway",
		"secret-uses", "services", "sequence", "scalar", "empty",
	} {
		t.Run(f, func(t *testing.T) {
			content, err := os.ReadFile("testdata/err/" + f + ".yaml")
			if err != nil {
				t.Fatal(err)
			}
			if s.Validate(asEditor(t, content)) == nil {
				t.Error("an editor would not mark it")
			}
		})
	}
}
