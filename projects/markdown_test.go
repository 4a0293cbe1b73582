package projects_test

import (
	"os"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/projects"
)

// The page of keys is what the table says.
func TestMarkdown(t *testing.T) {
	t.Parallel()
	const page = "../docs/project-keys.md"
	want := projects.Markdown()
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/project-keys.md is not what the table of keys says: go test ./projects -run TestMarkdown -update")
	}
	for _, key := range []string{"`name`", "`services.*.image`", "`lifecycle.setup`", "`network.allow`"} {
		if !strings.Contains(want, "| "+key+" |") {
			t.Errorf("%s has no row", key)
		}
	}
}
