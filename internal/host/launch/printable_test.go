package launch_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/test/runtimetest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestOutputIsPrivateAndPrintable: what a run leaves is its user's alone, and whoever prints a text of it with `cat` prints text.
func TestOutputIsPrivateAndPrintable(t *testing.T) {
	t.Parallel()
	const escape = "one \x1b]0;title\x07\u009b2Jtwo\u007f\n"
	binary := []byte("\x1bPNG\x00\x9b\r\n")
	f := setup(t, func(b *runtimetest.Box) int {
		g := newGuest(b)
		for _, name := range []string{"logs/agent.stdout.log", "logs/deep/er", "evidence/hang-1.txt", workorder.PlanFile} {
			b.WriteFile(workorder.OutDir+"/"+name, []byte(escape))
		}
		b.WriteFile(workorder.OutDir+"/evidence/media/x.png", binary)
		_, _ = b.Stderr.Write([]byte(escape))
		g.say(workorder.Event{Type: workorder.EventOutput, Text: escape})
		return g.endAs(workorder.Result{Status: workorder.StatusFailed, EndedBy: workorder.EndedByAgent, Reasons: workorder.Because("", escape), Warnings: []string{escape}})
	})
	j := newJob()
	j.OutDir = filepath.Join(t.TempDir(), "out")
	if _, err := f.Run(t.Context(), nil, j); err != nil {
		t.Fatal(err)
	}
	files := 0
	err := filepath.WalkDir(j.OutDir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		if fi.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s is open to others: %s", path, fi.Mode())
		}
		if d.IsDir() {
			return nil
		}
		files++
		b, err := os.ReadFile(path)
		if filepath.Ext(path) == ".png" {
			if !bytes.Equal(b, binary) {
				t.Errorf("%s was changed: %q", path, b)
			}
			return err
		}
		if i := bytes.IndexAny(b, "\x1b\x07\x7f\u009b"); i >= 0 {
			t.Errorf("%s has what a terminal obeys: %q", path, b[max(0, i-20):min(len(b), i+20)])
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 10 {
		t.Errorf("only %d files", files)
	}
}
