package sandbox_test

import (
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// maxInternal is the number of internal packages that a program gets with this library. Raise it only for a reason that users of the
// library would accept.
const maxInternal = 31

// TestClosure keeps tasks, forges and project files out of the library: a program that imports it must not compile them.
func TestClosure(t *testing.T) {
	t.Parallel()
	const module = "github.com/sandbox-agent/sandbox-agent/"
	out, err := proc.Output(t.Context(), proc.Spec{Argv: []string{"go", "list", "-deps", "."}})
	if err != nil {
		t.Fatal(err)
	}
	internal := 0
	for path := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(path, module+"internal/") {
			internal++
		}
		for _, forbidden := range []string{
			"github.com/google/go-github", module + "projects", module + "runner", module + "internal/forge", module + "internal/guest",
			module + "internal/host/launch", module + "internal/host/taskstore", module + "internal/host/trust", module + "internal/host/tasks",
			module + "internal/front/cli",
		} {
			if path == forbidden || strings.HasPrefix(path, forbidden+"/") {
				t.Errorf("the library imports %s", path)
			}
		}
	}
	if internal == 0 || internal > maxInternal {
		t.Errorf("the library imports %d internal packages, at most %d are wanted: see go list -deps ./sandbox", internal, maxInternal)
	}
}
