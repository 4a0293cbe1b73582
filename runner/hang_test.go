package runner

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestEvidenceOfAHangIsBounded: what an agent's processes have decides neither how long the evidence takes nor how much it is.
func TestEvidenceOfAHangIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fill := func(folder, file string, n int) {
		t.Helper()
		for i := range n {
			name := filepath.Join(dir, "7", folder, strconv.Itoa(i), file)
			folder := filepath.Dir(name)
			if file == "" {
				folder = name
			}
			if err := os.MkdirAll(folder, 0o755); err != nil {
				t.Fatal(err)
			}
			if file != "" {
				if err := os.WriteFile(name, []byte(strconv.Itoa(i)), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	fill("fd", "", maxFiles+10)
	fill("task", "syscall", 2*maxThreads)
	if err := os.WriteFile(filepath.Join(dir, "7", "cmdline"), []byte(strings.Repeat("x", 2*maxRead)), 0o644); err != nil {
		t.Fatal(err)
	}
	table := processTable(dir)
	var b strings.Builder
	table.describe(&b, []process{{pid: 7, Stat: proc.Stat{State: "S", Began: "1"}}})
	if got := b.String(); !strings.Contains(got, " "+strconv.Itoa(maxFiles)+"+ ") {
		t.Errorf("its files: %s", got)
	}
	if n := len(table.read(7, "cmdline")); n != maxRead {
		t.Errorf("%d bytes of its command line are read", n)
	}
	b.Reset()
	table.waiting(&b, 7)
	if n := strings.Count(b.String(), "\n") - 1; n != maxThreads { // the first line is the process
		t.Errorf("%d threads are shown", n)
	}
}

// TestSilentUntilItSpeaks: what was asked of models before the agent is no word of it.
func TestSilentUntilItSpeaks(t *testing.T) {
	t.Parallel()
	m := &fakeMeter{requests: 3, used: usageOf(1000, 200, 0.25)}
	w := newAgentUsage(m, nil)
	if n := w.moved(); n != 0 {
		t.Errorf("it moved by %d", n)
	}
	m.set(4, workorder.Usage{InputTokens: 1000, OutputTokens: 200})
	if w.moved() == 0 {
		t.Error("a call of its own is none")
	}
}
