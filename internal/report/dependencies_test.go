package report

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestDependenciesAreOneLine: a reviewer sees the folder, and not its 1,420 files between two of the agent's own.
func TestDependenciesAreOneLine(t *testing.T) {
	t.Parallel()
	files := []workorder.FileChange{
		{Path: "a.js", Added: 1},
		{Path: "vendor/own.go", Added: 2},
		{Path: "my_node_modules/x", Added: 3},
		{Path: "node_modules", Added: 4},
	}
	for i := range 1420 {
		files = append(files, workorder.FileChange{Path: fmt.Sprintf("web/node_modules/p%d/vendor/index.js", i), Added: 2, Deleted: 1})
	}
	files = append(files, workorder.FileChange{Path: "z.js", Added: 5})
	list := folded(files)
	if len(list) != 6 || list[4].Added != 2840 || list[4].Deleted != 1420 || !strings.HasPrefix(list[4].Path,
		"web/node_modules/ (1,420 files") || list[5].Path != "z.js" {
		t.Errorf("%d lines: %+v", len(list), list[:min(len(list), 8)])
	}
	r := &workorder.Result{
		TaskID: "T-4K9QZ7AB", Status: workorder.StatusSuccess,
		Commits: []workorder.Commit{{SHA: "c1", Subject: "x"}}, Changes: map[string][]workorder.FileChange{"c1": files},
	}
	body := Markdown(Data{Result: r})
	if strings.Contains(body, "index.js") || !strings.Contains(body, "web/node_modules/") || !strings.Contains(body, "z.js") {
		t.Error("the files of dependencies are in the report, or others are not")
	}
}
