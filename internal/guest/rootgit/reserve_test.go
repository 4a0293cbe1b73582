package rootgit

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/atomicfile"
	"github.com/sandbox-agent/sandbox-agent/internal/test/gittest"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// A disk without room for what we note of a push does not keep the push back; and
// who reads the old notes finds out what the remote has.
func TestFullDiskAndTheLedger(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	if st, err := os.Stat(filepath.Join(f.Repos.Dir, "reserve")); err != nil || st.Size() < 1<<20 {
		t.Fatalf("nothing is reserved: %v", err)
	}
	if err := os.Symlink("/dev/full", atomicfile.Part(filepath.Join(f.Repos.Dir, "ledger.json"))); err != nil {
		t.Fatal(err)
	}
	f.commit(t, "a")
	head := f.commit(t, "b")
	if s := f.Saver.Save(t.Context(), true); s.PushErr != nil || f.remote(t, workorder.BranchRef(target)) != head {
		t.Errorf("saved %+v", s)
	}
	if _, err := os.Stat(filepath.Join(f.Repos.Dir, "reserve")); err == nil {
		t.Error("the reserve was kept though it was missed")
	}
	if f.saw(workorder.EventWarning, "") != 1 {
		t.Errorf("events %+v", f.seen())
	}
	f.Heartbeat.Stop()
	if err := os.Remove(atomicfile.Part(filepath.Join(f.Repos.Dir, "ledger.json"))); err != nil {
		t.Fatal(err)
	}
	r := f.rescue(t)
	r.write(t, "c", "3")
	if l := r.land(t); l.Err != nil || !l.Pushed || len(l.Commits) != 3 {
		t.Errorf("rescue landed %+v", l)
	}
}

// A disk without room for our own objects costs the checkpoint, not the commits.
func TestFullDiskAndTheState(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.Heartbeat.Stop()
	// Nothing new can be written where a file stands in a folder's place.
	for i := range 256 {
		file, err := os.OpenFile(filepath.Join(f.Repos.Outbox().Dir, "objects", fmt.Sprintf("%02x", i)), os.O_CREATE|os.O_EXCL, 0o644)
		if err == nil {
			file.Close()
		}
	}
	objects, written := f.Repos.Outbox(), 0
	for i := range 16 { // a folder that was there already takes objects still: one of them, not all
		objects.Stdin = fmt.Sprint(i)
		if objects.Run(t.Context(), "hash-object", "-w", "--stdin") == nil {
			written++
		}
	}
	if written == 16 {
		t.Fatal("any object could be written")
	}
	head := f.commit(t, "a")
	if s := f.Saver.Save(t.Context(), true); s.PushErr != nil || f.remote(t, workorder.BranchRef(target)) != head {
		t.Errorf("saved %+v", s)
	}
	state := f.remote(t, workorder.StateRef("T-A1B2C3D4"))
	n, _, _ := f.next(t)
	f.commit(t, "b")
	if s := f.Saver.Save(t.Context(), true); s.PushErr == nil || f.remote(t, workorder.BranchRef(target)) != head {
		t.Errorf("saved %+v without the lease", s)
	}
	if got := gittest.Git(t, f.srv.Root+"/r.git", "rev-parse", workorder.StateRef("T-A1B2C3D4")); got == state || n.state(t).Lease == nil {
		t.Errorf("the state is %s", got)
	}
}
