package dockerd

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestScrub(t *testing.T) {
	root := t.TempDir()
	for _, r := range []string{"", "1000.1000"} {
		at := func(p string) string { return filepath.Join(root, r, p) }
		for _, p := range []string{
			"network/files/local-kv.db", "containers/abc/config.json", "volumes/data/x", "volumes/metadata.db", "swarm/x", "containerd/daemon/x",
			"overlay2/kept/diff/f", "overlay2/container/diff/f", "overlay2/container-init/diff/f", "overlay2/half/diff/f", "overlay2/l/x",
			"image/overlay2/layerdb/mounts/abc/mount-id", "image/overlay2/layerdb/tmp/x", "image/overlay2/imagedb/content/sha256/i",
			"image/overlay2/repositories.json", ".trial-1/lower/x", "buildkit/x",
		} {
			write(t, at(p), "x")
		}
		write(t, at("image/overlay2/layerdb/sha256/c1/cache-id"), "kept\n")
		for link, to := range map[string]string{"GOOD": "../kept/diff", "DEAD": "../container/diff"} {
			if err := os.Symlink(to, at("overlay2/l/"+link)); err != nil {
				t.Fatal(err)
			}
		}
	}
	empty, err := scrub(root, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := empty(); err != nil {
		t.Fatal(err)
	}
	for _, r := range []string{"", "1000.1000"} {
		for p, want := range map[string]bool{
			"network": false, "containers": false, "volumes": false, "swarm": false, "containerd": false, ".trial-1": false,
			"overlay2/kept/diff/f": true, "overlay2/container": false, "overlay2/container-init": false, "overlay2/half": false,
			"overlay2/l/GOOD": true, "overlay2/l/DEAD": false, "image/overlay2/layerdb/mounts": false, "image/overlay2/layerdb/tmp": false,
			"image/overlay2/imagedb/content/sha256/i": true, "image/overlay2/repositories.json": true, "buildkit/x": true, trashDir: false,
		} {
			if exists(filepath.Join(root, r, p)) != want {
				t.Errorf("%s: there %v, want %v", filepath.Join(r, p), !want, want)
			}
		}
	}
	if _, err := scrub(t.TempDir(), false); err != nil {
		t.Errorf("a fresh data root: %v", err)
	}
}

// Names and images are as they were; stores that did not exist before are gone.
func TestRestoreImages(t *testing.T) {
	root := t.TempDir()
	at := func(p string) string { return filepath.Join(root, "1000.1000/image/overlay2", p) }
	write(t, at("imagedb/content/sha256/declared"), "{}")
	write(t, at(namesFile), `{"Repositories":{"redis":{"redis:7":"sha256:declared"}}}`)
	s, err := readImages(root)
	if err != nil {
		t.Fatal(err)
	}
	write(t, at("imagedb/content/sha256/forged"), "{}")
	write(t, at("imagedb/metadata/sha256/forged/parent"), "x")
	write(t, at(namesFile), `{"Repositories":{"redis":{"redis:7":"sha256:forged"}}}`)
	write(t, filepath.Join(root, "image/vfs/imagedb/content/sha256/other"), "{}")
	write(t, filepath.Join(root, "1000.1000/buildkit/cache.db"), "x")
	if err := errors.Join(s.restore(root), dropBuilds(root)); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(at(namesFile)); err != nil || !strings.Contains(string(b), "sha256:declared") || strings.Contains(string(b), "forged") {
		t.Errorf("names %s %v", b, err)
	}
	for p, want := range map[string]bool{
		at("imagedb/content/sha256/declared"): true, at("imagedb/content/sha256/forged"): false, at("imagedb/metadata/sha256/forged"): false,
		filepath.Join(root, "image/vfs"): false, filepath.Join(root, "1000.1000/buildkit"): false,
	} {
		if exists(p) != want {
			t.Errorf("%s: there %v, want %v", p, !want, want)
		}
	}
	if err := (*imageStore)(nil).restore(root); err == nil {
		t.Error("images that were not recorded were restored")
	}
}

// Processes of containers are ended when no daemon can start more, and a renewal does not go on beside them.
func TestWhatContainersLeftEndsAfterTheDaemons(t *testing.T) {
	var daemons []*daemon
	for _, name := range []string{"dockerd", "containerd"} {
		d, err := spawn(t.Context(), name, t.TempDir(), specOf("sleep", "1000"))
		if err != nil {
			t.Fatal(err)
		}
		daemons = append(daemons, d)
	}
	e := newTestEngine(t)
	left := errors.New("one is left")
	e.cfg.Sweep = func() error {
		for _, d := range daemons {
			select {
			case <-d.p.Done():
			default:
				t.Errorf("%s still runs", d.name)
			}
		}
		return left
	}
	if err := e.endAll(t.Context(), daemons...); !errors.Is(err, left) {
		t.Errorf("%v", err)
	}
}
