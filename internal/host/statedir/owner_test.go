package statedir

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestOwner: drawn once, whoever asks first and however the machine is called, and none for a folder that is not there.
func TestOwner(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if o, err := OwnerOf(dir, false); err != nil || len(o.Labels()) != 0 {
		t.Errorf("no folder: %+v, %v", o, err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("it was made")
	}
	const many = 8
	ids := make([]string, many)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			o, err := OwnerOf(dir, true)
			if err != nil {
				t.Error(err)
			}
			ids[i] = o.ID
		})
	}
	wg.Wait()
	if slices.Sort(ids); len(slices.Compact(ids)) != 1 {
		t.Errorf("several: %q", ids)
	}
	o, err := OwnerOf(dir, false)
	if err != nil || o.ID != ids[0] || o.LegacyID != "" || len(o.Labels()) != 1 {
		t.Errorf("%+v, %v, want %s", o, err, ids[0])
	}
	// A shorter name may be in a random id.
	if host, err := os.Hostname(); err == nil && len(host) > 6 && strings.Contains(strings.TrimSuffix(o.ID, dir), host) {
		t.Errorf("%s depends on the machine's name", o.ID)
	}
	if other, err := OwnerOf(t.TempDir(), true); err != nil || other.ID == o.ID {
		t.Errorf("another folder's: %+v, %v", other, err)
	}
	// Nothing is left beside it, and only its owner reads it.
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
		t.Errorf("%v, %v", names, err)
	}
	if st, err := os.Stat(filepath.Join(dir, ownerFile)); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	// The machine may be called otherwise when it is read again: what it was called is in the file.
	b, err := json.Marshal(Owner{ID: "x", LegacyID: "me@before:/state"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ownerFile), b, 0o600); err != nil {
		t.Fatal(err)
	}
	if o, err := OwnerOf(dir, false); err != nil || !slices.Equal(o.Labels(), []string{"x", "me@before:/state"}) {
		t.Errorf("%+v, %v", o, err)
	}
	if err := os.WriteFile(filepath.Join(dir, ownerFile), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OwnerOf(dir, true); err == nil {
		t.Error("a damaged one is drawn anew: the boxes would be nobody's")
	}
}

// TestOwnerOfOld: the boxes of a folder that an older version filled keep their owner.
func TestOwnerOfOld(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "T-AAAA0001"), 0o700); err != nil {
		t.Fatal(err)
	}
	o, err := OwnerOf(dir, false)
	if err != nil || o.LegacyID != oldOwner(dir) || len(o.Labels()) != 2 {
		t.Errorf("%+v, %v", o, err)
	}
}
