package layercache

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/atomicfile"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func upkeep(dir string) *Maintainer { return &Maintainer{Dir: dir, Log: slog.New(slog.DiscardHandler)} }

// later is upkeep some time from now.
func later(dir string, d time.Duration) *Maintainer {
	u := upkeep(dir)
	u.Now = func() time.Time { return time.Now().Add(d) }
	return u
}

func theStore(t *testing.T, r *workorder.CacheReport, err error) workorder.CacheStore {
	t.Helper()
	if err != nil || len(r.Stores) != 1 {
		t.Fatalf("%+v %v", r, err)
	}
	return r.Stores[0]
}

func prune(t *testing.T, u *Maintainer, o PruneOptions) workorder.CacheStore {
	t.Helper()
	r, err := u.Prune(t.Context(), o)
	return theStore(t, r, err)
}

func listed(t *testing.T, dir string) workorder.CacheStore {
	t.Helper()
	r, err := upkeep(dir).List(t.Context())
	return theStore(t, r, err)
}

func names(images []workorder.CacheImage) string {
	var all []string
	for _, i := range images {
		all = append(all, strings.Join(i.Names, ","))
		if i.Problem != "" {
			all = append(all, "("+i.Problem+")")
		}
	}
	return strings.Join(all, " ")
}

// tidy checks that the seed holds nothing that no record or image refers to.
func tidy(t *testing.T, dir string) {
	t.Helper()
	base := filepath.Join(dir, format, driver+"-1000.1000")
	seed := imageStore{filepath.Join(base, "seed")}
	known := map[string]bool{"l": true}
	chains, err := list(seed.meta("layerdb", "sha256"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range chains {
		known[seed.cacheID(c)] = true
	}
	folders, err := list(seed.layers())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range folders {
		if !known[f] {
			t.Errorf("layer %s has no record", f)
		}
	}
	err = filepath.WalkDir(base, func(path string, d fs.DirEntry, err error) error {
		if err == nil && hidden(d.Name()) {
			t.Errorf("left: %s", path)
		}
		if _, serr := os.Stat(path); err == nil && d.Type()&fs.ModeSymlink != 0 && strings.HasPrefix(path, seed.root) && serr != nil {
			t.Errorf("leads nowhere: %s", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{seed.meta("layerdb", "tmp"), filepath.Join(base, "trash")} {
		if left, err := list(p); err != nil || len(left) > 0 {
			t.Errorf("%s holds %v, %v", p, left, err)
		}
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	dir := cacheDir(t)
	a := newBox(t, dir, "a")
	a.declares("one:1", "base", "one")
	a.declares("two:1", "base", "two")
	a.publish1(3)
	chains, err := list(imageStore{a.seed()}.meta("layerdb", "sha256"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range chains {
		a.write("1000", filepath.Join(imageStore{a.seed()}.record(c), "size"))
	}
	newBox(t, dir, "b", "one:1")
	s := listed(t, dir)
	if s.Name != "overlay2-1000.1000" || s.Layers != 3 || s.SeedBytes == 0 || s.BoxBytes == 0 || strings.Join(s.Boxes, " ") != "a b" || names(s.Images) != "one:1 two:1" {
		t.Errorf("%+v", s)
	}
	one, two := s.Images[0], s.Images[1]
	if one.OwnBytes != 1000 || one.SharedBytes != 1000 || strings.Join(one.Boxes, " ") != "a b" || strings.Join(two.Boxes, " ") != "a" || one.UsedAt.Before(two.UsedAt) || one.PublishedAt.IsZero() {
		t.Errorf("%+v", s.Images)
	}
}

func TestPruneBesideBoxes(t *testing.T) {
	t.Parallel()
	dir := cacheDir(t)
	a := newBox(t, dir, "a")
	a.declares("redis:7", "base", "redis")
	a.declares("other:1", "base", "other")
	a.publish1(3)
	b := newBox(t, dir, "b", "redis:7")
	if s := prune(t, upkeep(dir), PruneOptions{}); len(s.Removed) != 0 {
		t.Errorf("removed under the box that published it: %s", names(s.Removed))
	}
	a.die()
	if s := prune(t, upkeep(dir), PruneOptions{DryRun: true}); names(s.Removed) != "other:1" || names(s.Images) != "redis:7" || s.RemovedLayers != 1 || s.Leftovers != 1 {
		t.Errorf("dry run: %+v", s)
	}
	if s := listed(t, dir); names(s.Images) != "other:1 redis:7" || s.Layers != 3 {
		t.Errorf("a dry run changed something: %+v", s)
	}
	r, err := upkeep(dir).Prune(t.Context(), PruneOptions{})
	if s := theStore(t, r, err); names(s.Removed) != "other:1" || s.RemovedLayers != 1 || s.Layers != 2 || r.FreedBytes == 0 {
		t.Errorf("%+v, freed %d", s, r.FreedBytes)
	}
	b.wantContent("redis:7", "base", "redis")
	newBox(t, dir, "c", "redis:7").wantContent("redis:7", "base", "redis")
	tidy(t, dir)
	b.declares("other:1", "base", "other") // brought in again
	b.publish1(1)
	newBox(t, dir, "d", "other:1").wantContent("other:1", "base", "other")
}

func TestPruneFreesEverything(t *testing.T) {
	t.Parallel()
	dir := cacheDir(t)
	a := newBox(t, dir, "a")
	a.declares("redis:7", "base", "redis")
	source := filepath.Join("distribution", "v2metadata-by-diffid", "sha256", digest("base"))
	a.write(`[{"Digest":"sha256:abc"}]`, a.store.meta(source))
	a.write("sha256:"+digest("base"), a.store.meta("distribution", "diffid-by-digest", "sha256", "abc"))
	a.publish1(2)
	a.die()
	if s := prune(t, upkeep(dir), PruneOptions{}); names(s.Removed) != "redis:7" || s.RemovedLayers != 2 || s.Leftovers != 1 {
		t.Errorf("%+v", s)
	}
	tidy(t, dir)
	var left []string
	err := filepath.WalkDir(filepath.Join(dir, format), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Name() != "lock" && d.Name() != "repositories.json" {
			left = append(left, path)
		}
		return err
	})
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if s := prune(t, upkeep(dir), PruneOptions{}); len(s.Removed)+s.RemovedLayers+s.Leftovers != 0 {
		t.Errorf("a second time: %+v", s)
	}
}

func TestPruneByAge(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	dir := cacheDir(t)
	a := newBox(t, dir, "a")
	a.declares("used:1", "base", "used")
	a.declares("idle:1", "base", "idle")
	a.publish1(3)
	a.die()
	old := time.Now().Add(-20 * day)
	for _, i := range listed(t, dir).Images {
		id := strings.TrimPrefix(i.ID, "sha256:")
		for _, p := range []string{a.Path("used", id), imageStore{a.seed()}.config(id)} {
			if err := os.Chtimes(p, old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	newBox(t, dir, "b", "used:1").die()
	// A box that links everything in case does not use it.
	c := New(Config{Dir: dir, View: filepath.Join(filepath.Dir(dir), "view"), DataRoot: filepath.Join(t.TempDir(), "root"), ID: "c", All: true, Log: slog.New(slog.DiscardHandler), Mounts: flat{}})
	if placed, note, err := c.Prepare(t.Context(), driver, 1000, 1000); !placed || err != nil {
		t.Fatal(note, err)
	}
	if s := prune(t, later(dir, 12*day), PruneOptions{OlderThan: 30 * day}); len(s.Removed) != 0 {
		t.Errorf("removed under a box that linked everything: %s", names(s.Removed))
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if s := prune(t, upkeep(dir), PruneOptions{OlderThan: 30 * day}); len(s.Removed) != 0 {
		t.Errorf("removed too early: %s", names(s.Removed))
	}
	if s := prune(t, later(dir, 12*day), PruneOptions{OlderThan: 30 * day}); names(s.Removed) != "idle:1" || names(s.Images) != "used:1" {
		t.Errorf("removed %s, kept %s", names(s.Removed), names(s.Images))
	}
}

// A box whose program is older than the list of layers does not tell what it runs on.
func TestPruneBesideAnOlderBox(t *testing.T) {
	t.Parallel()
	dir := cacheDir(t)
	a := newBox(t, dir, "a")
	a.declares("redis:7", "base")
	a.publish1(1)
	a.die()
	b := newBox(t, dir, "b", "redis:7")
	if err := os.Remove(filepath.Join(b.Run(), "layers")); err != nil {
		t.Fatal(err)
	}
	if s := prune(t, upkeep(dir), PruneOptions{}); len(s.Removed)+s.RemovedLayers != 0 {
		t.Errorf("%+v", s)
	}
	b.wantContent("redis:7", "base")
}

// The name of an image is reassigned: the older one is unused.
func TestPruneReplaced(t *testing.T) {
	t.Parallel()
	dir := cacheDir(t)
	a := newBox(t, dir, "a")
	a.declares("app:1", "base", "old")
	a.publish1(2)
	a.die()
	b := newBox(t, dir, "b")
	b.declares("app:1", "base", "new")
	b.publish1(1)
	b.die()
	s := prune(t, upkeep(dir), PruneOptions{OlderThan: time.Hour})
	if len(s.Removed) != 1 || len(s.Removed[0].Names) != 0 || s.RemovedLayers != 1 || names(s.Images) != "app:1" {
		t.Errorf("%+v", s)
	}
	newBox(t, dir, "c", "app:1").wantContent("app:1", "base", "new")
}

// A damaged image would cost every box that wants it the cache, for ever.
func TestPruneDamaged(t *testing.T) {
	t.Parallel()
	dir := cacheDir(t)
	a := newBox(t, dir, "a")
	a.declares("app:1", "base", "app")
	a.publish1(2)
	a.die()
	layers, err := imageStore{a.seed()}.chain(strings.TrimPrefix(listed(t, dir).Images[0].ID, "sha256:"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(imageStore{a.seed()}.record(layers[0].chain)); err != nil {
		t.Fatal(err)
	}
	if s := listed(t, dir); len(s.Images) != 1 || !strings.Contains(s.Images[0].Problem, layers[0].chain) {
		t.Errorf("%+v", s)
	}
	if s := prune(t, upkeep(dir), PruneOptions{OlderThan: time.Hour}); len(s.Removed) != 1 || s.RemovedLayers != 1 || s.Leftovers != 2 {
		t.Errorf("%+v", s)
	}
	tidy(t, dir)
	b := newBox(t, dir, "b")
	b.declares("app:1", "base", "app")
	b.publish1(2)
	newBox(t, dir, "c", "app:1").wantContent("app:1", "base", "app")
}

// Remains of boxes that died half-way go with the next publish, and with prune.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	dir := cacheDir(t)
	a := newBox(t, dir, "a")
	a.declares("one:1", "base")
	a.publish1(1)
	seed := imageStore{a.seed()}
	litter := func() {
		a.write("x", seed.meta("layerdb", "tmp", "abc", "diff"))
		a.write("x", atomicfile.Part(seed.config("abc")))
		a.write("x", atomicfile.Part(seed.meta("repositories.json")))
		a.write("x", seed.layers("norecord", "diff", "file"))
		a.write("x", atomicfile.Part(seed.layers(seed.cacheID(digest("base")), "lower")))
	}
	litter()
	if all := listed(t, dir).Images; len(all) != 1 || all[0].Problem != "" {
		t.Errorf("with a partly written image: %+v", all)
	}
	a.declares("two:1", "two")
	a.publish1(1)
	if err := upkeep(dir).each(func(c *Cache, _ string) error {
		left, err := c.leftovers(imageStore{c.seed()}, nil)
		if len(left) > 0 {
			t.Errorf("after a publish: %v", left)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	litter()
	a.write("x", filepath.Join(dir, ".trial-9", "x"))
	if s := prune(t, later(dir, time.Hour), PruneOptions{}); s.Leftovers != 5 || len(s.Removed) != 0 {
		t.Errorf("%+v", s)
	}
	if _, err := os.Stat(filepath.Join(dir, ".trial-9")); err == nil {
		t.Error("a dead box's trial is left")
	}
	tidy(t, dir)
	a.wantContent("one:1", "base")
}

func TestClose(t *testing.T) {
	t.Parallel()
	dir := cacheDir(t)
	a := newBox(t, dir, "a")
	a.declares("one:1", "base")
	a.publish1(1)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if s := listed(t, dir); len(s.Boxes) != 0 || names(s.Images) != "one:1" {
		t.Errorf("%+v", s)
	}
	for _, d := range []string{"runs", "trash"} {
		if left, err := list(a.Path(d)); err != nil || len(left) > 0 {
			t.Errorf("%s holds %v, %v", d, left, err)
		}
	}
}

func TestUpkeepOfNothing(t *testing.T) {
	t.Parallel()
	r, err := upkeep(cacheDir(t)).List(t.Context())
	if err != nil || len(r.Stores) != 0 {
		t.Errorf("%+v %v", r, err)
	}
	if r, err := upkeep(cacheDir(t)).Prune(t.Context(), PruneOptions{}); err != nil || r.FreedBytes != 0 {
		t.Errorf("%+v %v", r, err)
	}
}

// Boxes come and go while the cache is pruned all the time.
func TestPruneAmongBoxes(t *testing.T) {
	t.Parallel()
	dir := cacheDir(t)
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			if _, err := upkeep(dir).Prune(t.Context(), PruneOptions{}); err != nil {
				stopped <- err
				return
			}
		}
	}()
	for i := range 20 {
		name, layers := fmt.Sprintf("app:%d", i), []string{"base", "shared", fmt.Sprint("own", i)}
		a := newBox(t, dir, fmt.Sprint("a", i))
		a.declares(name, layers...)
		if _, err := a.Publish(t.Context()); err != nil {
			t.Fatal(err)
		}
		b := newBox(t, dir, fmt.Sprint("b", i), name)
		a.wantContent(name, layers...) // what the dead left may go at any moment
		a.die()
		b.wantContent(name, layers...)
		b.die()
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	prune(t, upkeep(dir), PruneOptions{})
	tidy(t, dir)
}
