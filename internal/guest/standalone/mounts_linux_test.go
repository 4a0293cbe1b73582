package standalone

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/safeopen"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

// A guest whose mounts are not those that the host held ends before it serves.
func TestReadVerifiesMounts(t *testing.T) {
	t.Parallel()
	h, err := safeopen.Hold([]safeopen.Mount{{Source: t.TempDir(), Target: "/proc"}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	c := wire.Config{Dir: dir}
	for _, c.Mounts = range [][]wire.MountID{nil, h.IDs} {
		c.Kernel = h.Kernel
		b, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := read(b); (err != nil) != (c.Mounts != nil) {
			t.Errorf("%d mounts: %v", len(c.Mounts), err)
		}
	}
}
