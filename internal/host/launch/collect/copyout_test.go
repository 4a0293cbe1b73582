package collect

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/host/launch/attempt"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/test/runtimetest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestWorkComesFirst: evidence that has no room does not cost the work that git could
// not take.
func TestWorkComesFirst(t *testing.T) {
	t.Parallel()
	written := make(chan struct{})
	fake := runtimetest.NewFake(map[string]runtimetest.Program{"x": func(b *runtimetest.Box) int {
		for _, name := range []string{workorder.EvidenceDir + "/a", workorder.EvidenceDir + "/b", workorder.ArchiveFile} {
			b.WriteFile(workorder.OutDir+"/"+name, []byte(name))
		}
		close(written)
		return 0
	}})
	id, err := fake.Run(t.Context(), runtime.BoxSpec{Name: "x", Image: "x"}, strings.NewReader(""))
	if err != nil {
		t.Fatal(err)
	}
	<-written
	dir := t.TempDir()
	in, err := newIntake(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	in.entries = 2
	if err := (&Collector{Host: &attempt.Host{Engine: fake}}).empty(t.Context(), id, in); err != nil || len(in.warnings) != 1 {
		t.Errorf("%v, warnings %q", err, in.warnings)
	}
	if b, err := os.ReadFile(filepath.Join(dir, workorder.ArchiveFile)); err != nil || string(b) != workorder.ArchiveFile {
		t.Errorf("%q, %v", b, err)
	}
}
