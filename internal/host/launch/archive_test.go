package launch_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/test/runtimetest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestArchiveGoesAlong: files that git could not take are given to every later box,
// until the agent of one has worked with them and something of it was saved.
func TestArchiveGoesAlong(t *testing.T) {
	t.Parallel()
	n := 0
	var got []string
	f := setup(t, func(b *runtimetest.Box) int {
		g := newGuest(b)
		n++
		in, there := b.ReadFile(workorder.ArchiveIn)
		if there != g.env.Order.Archive {
			t.Errorf("box %d: the order says %v, the file is there: %v", n, g.env.Order.Archive, there)
		}
		got = append(got, string(in))
		res := workorder.Result{Status: workorder.StatusTimeout, EndedBy: workorder.EndedByTimeout}
		switch n {
		case 1, 5, 6:
			b.WriteFile(workorder.OutDir+"/"+workorder.ArchiveFile, fmt.Append(nil, "files ", n))
		case 2: // ends before it has restored anything
			return 137
		case 3:
			// A folder of that name is no archive.
			b.WriteFile(workorder.OutDir+"/"+workorder.ArchiveFile+"/x", nil)
		}
		if n == 3 { // its setup failed: what it restored went with it
			res.Restored = &workorder.Restored{Head: sha}
		}
		if n == 4 {
			res.Steps = []workorder.Step{{Name: "agent", Status: workorder.StepDone, StartedAt: time.Now()}}
			res.Checkpoint = &workorder.Checkpoint{SHA: sha, Tree: sha, At: time.Now()}
		}
		return g.endAs(res)
	})
	j := newJob()
	if _, err := f.Run(t.Context(), nil, j); err != nil {
		t.Fatal(err)
	}
	for range 6 {
		if _, err := f.resume(t, j); err != nil {
			t.Fatal(err)
		}
	}
	// The sixth was given what the fifth left, and left some of its own.
	if want := []string{"", "files 1", "files 1", "files 1", "", "files 5", "files 6"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
