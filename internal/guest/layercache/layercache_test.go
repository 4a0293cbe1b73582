package layercache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// flat stands for the kernel's mounts where there is no right to make any: a
// bind is a symbolic link.
type flat struct{}

func (flat) IsMount(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (flat) Bind(source, target string, _ bool) error {
	_ = os.Remove(target)
	return os.Symlink(source, target)
}

func (flat) Detach(string) error { return nil }

type box struct {
	*Cache
	t     *testing.T
	store imageStore
}

func newBox(t *testing.T, dir, id string, images ...string) *box {
	t.Helper()
	// One view for all boxes, as in boxes, where it is the same path of each.
	c := New(Config{
		Dir: dir, View: filepath.Join(filepath.Dir(dir), "view"), DataRoot: filepath.Join(t.TempDir(), "root"), ID: id,
		Images: images, Log: slog.New(slog.DiscardHandler), Mounts: flat{},
	})
	placed, note, err := c.Prepare(t.Context(), driver, 1000, 1000)
	if err != nil || !placed {
		t.Fatal(placed, note, err)
	}
	t.Cleanup(func() { runtime.KeepAlive(c) }) // a box that the test forgets would give its locks back
	return &box{Cache: c, t: t, store: imageStore{c.store()}}
}

func (b *box) die() { _ = b.Abandon() }

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func (b *box) write(text string, path string) {
	b.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// declares makes the engine load an image that the run declares.
func (b *box) declares(name string, layers ...string) {
	b.t.Helper()
	b.cfg.Images = append(b.cfg.Images, name)
	b.engineLoads(name, layers...)
}

// engineLoads does what the engine does when it gets an image.
func (b *box) engineLoads(name string, layers ...string) {
	b.t.Helper()
	tr := b.store
	var diffs []string
	parent, lower := "", ""
	for _, content := range layers {
		diff := "sha256:" + digest(content)
		diffs = append(diffs, diff)
		chain := diff
		if parent != "" {
			chain = "sha256:" + digest(parent+" "+diff)
		}
		hexChain := strings.TrimPrefix(chain, "sha256:")
		if tr.cacheID(hexChain) == "" {
			id := digest(b.cfg.ID + content)
			link := strings.ToUpper(id[:26])
			b.write(content, tr.layers(id, "diff", "file"))
			b.write(link, tr.layers(id, "link"))
			b.write("", tr.layers(id, "committed"))
			if lower != "" {
				b.write(lower, tr.layers(id, "lower"))
			}
			if err := os.MkdirAll(tr.layers("l"), 0o755); err != nil {
				b.t.Fatal(err)
			}
			if err := linkName(tr, id); err != nil {
				b.t.Fatal(err)
			}
			b.write(id, filepath.Join(tr.record(hexChain), "cache-id"))
			b.write(diff, filepath.Join(tr.record(hexChain), "diff"))
			if parent != "" {
				b.write(parent, filepath.Join(tr.record(hexChain), "parent"))
			}
			b.write("gz", filepath.Join(tr.record(hexChain), "tar-split.json.gz"))
		}
		link, err := os.ReadFile(tr.layers(tr.cacheID(hexChain), "link"))
		if err != nil {
			b.t.Fatal(err)
		}
		if lower == "" {
			lower = "l/" + string(link)
		} else {
			lower = "l/" + string(link) + ":" + lower
		}
		parent = chain
	}
	config, err := json.Marshal(map[string]any{"rootfs": map[string]any{"diff_ids": diffs}})
	if err != nil {
		b.t.Fatal(err)
	}
	id := digest(string(config))
	b.write(string(config), tr.config(id))
	names, err := tr.names()
	if err != nil {
		b.t.Fatal(err)
	}
	repo, _, _ := strings.Cut(name, ":")
	names.add(repositories{map[string]map[string]string{repo: {name: "sha256:" + id}}})
	if err := tr.setNames(names); err != nil {
		b.t.Fatal(err)
	}
}

// content reads an image as overlay mounts would: through the short names.
func (b *box) content(name string) ([]string, error) {
	names, err := b.store.names()
	if err != nil {
		return nil, err
	}
	repo, _, _ := strings.Cut(name, ":")
	id, ok := names.Repositories[repo][name]
	if !ok {
		return nil, fmt.Errorf("no image %s", name)
	}
	layers, err := b.store.chain(strings.TrimPrefix(id, "sha256:"))
	if err != nil {
		return nil, err
	}
	top := b.store.cacheID(layers[len(layers)-1].chain)
	link, err := os.ReadFile(b.store.layers(top, "link"))
	if err != nil {
		return nil, err
	}
	paths := []string{"l/" + string(link)}
	if lower, err := os.ReadFile(b.store.layers(top, "lower")); err == nil {
		paths = append(paths, strings.Split(string(lower), ":")...)
	}
	var out []string
	for _, p := range paths {
		text, err := os.ReadFile(b.store.layers(p, "file"))
		if err != nil {
			return nil, err
		}
		out = append([]string{string(text)}, out...)
	}
	return out, nil
}

func (b *box) wantContent(name string, want ...string) {
	b.t.Helper()
	got, err := b.content(name)
	if err != nil || strings.Join(got, " ") != strings.Join(want, " ") {
		b.t.Fatalf("%s: %q %v, want %q", name, got, err, want)
	}
}

func (b *box) publish1(want int) {
	b.t.Helper()
	n, err := b.Publish(b.t.Context())
	if err != nil || n != want {
		b.t.Fatalf("published %d layers, want %d: %v", n, want, err)
	}
}

func cacheDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "cache")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestPublishAndLink(t *testing.T) {
	t.Parallel()
	dir := cacheDir(t)
	a := newBox(t, dir, "a", "redis:7")
	a.declares("redis:7", "base", "redis")
	a.publish1(2)
	a.wantContent("redis:7", "base", "redis") // moved under the running box
	a.publish1(0)

	b := newBox(t, dir, "b", "docker.io/library/redis:7")
	b.wantContent("redis:7", "base", "redis")
	b.declares("app:1", "base", "redis", "app")
	b.publish1(1)

	c := newBox(t, dir, "c", "app:1")
	c.wantContent("app:1", "base", "redis", "app")
	if _, err := c.content("redis:7"); err == nil {
		t.Error("an image that was not requested was linked")
	}
}

// An image that the cache does not have is made on layers that it has.
func TestNewImageOnKnownLayers(t *testing.T) {
	t.Parallel()
	dir := cacheDir(t)
	a := newBox(t, dir, "a")
	a.declares("redis:7", "base", "redis")
	a.publish1(2)
	b := newBox(t, dir, "b", "app:1")
	b.engineLoads("app:1", "base", "redis", "app")
	own := 0
	layers, err := list(b.store.layers())
	for _, l := range layers {
		if st, serr := os.Lstat(b.store.layers(l, "diff")); serr == nil && st.IsDir() {
			own++
		}
	}
	if err != nil || own != 1 {
		t.Errorf("the box has %d layers of its own, %v", own, err)
	}
	if _, err := b.content("redis:7"); err == nil {
		t.Error("an image that was not requested was linked")
	}
	b.publish1(1)
	newBox(t, dir, "c", "app:1").wantContent("app:1", "base", "redis", "app")
}

// Two boxes load the same parent at once: the second one's layer must refer to
// the parent that was published.
func TestSameLayersTwice(t *testing.T) {
	t.Parallel()
	dir := cacheDir(t)
	a, b := newBox(t, dir, "a"), newBox(t, dir, "b")
	a.declares("one:1", "base", "one")
	b.declares("two:1", "base", "two")
	a.publish1(2)
	b.publish1(1)
	b.wantContent("two:1", "base", "two")
	a.die()
	b.die()
	c := newBox(t, dir, "c", "one:1", "two:1")
	c.wantContent("one:1", "base", "one")
	c.wantContent("two:1", "base", "two")
	if runs, err := os.ReadDir(c.Path("runs")); err != nil || len(runs) != 1 {
		t.Errorf("%d runs, %v", len(runs), err)
	}
}

// A box dies after the exchange and before the record.
func TestDeathWhilePublishing(t *testing.T) {
	t.Parallel()
	dir := cacheDir(t)
	a := newBox(t, dir, "a")
	a.declares("redis:7", "base")
	chain := digest("base")
	if err := os.Chmod(a.Path("seed"), 0o700); err != nil {
		t.Fatal(err)
	}
	// The record's place is taken by a file, so that publishing stops right there.
	inTheWay := imageStore{a.seed()}.record(chain)
	a.write("", inTheWay)
	if _, err := a.Publish(t.Context()); err == nil {
		t.Fatal("published")
	}
	a.wantContent("redis:7", "base") // it lives on its own
	if _, err := a.Publish(t.Context()); err == nil {
		t.Fatal("published, and the record's place is taken")
	}
	a.wantContent("redis:7", "base")
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	a.die()
	b := newBox(t, dir, "b", "redis:7")
	if (imageStore{b.seed()}).cacheID(chain) != "" {
		t.Fatal("half a layer is referred to")
	}
	b.declares("redis:7", "base")
	b.publish1(1)
	newBox(t, dir, "c", "redis:7").wantContent("redis:7", "base")
}

func TestRunsOfTheLivingAreKept(t *testing.T) {
	t.Parallel()
	dir := cacheDir(t)
	a := newBox(t, dir, "a")
	a.declares("redis:7", "base")
	b := newBox(t, dir, "b")
	a.wantContent("redis:7", "base")
	a.die()
	c := newBox(t, dir, "c")
	if _, err := os.Stat(a.Run()); err == nil {
		t.Error("the dead box's folder is still there")
	}
	for _, live := range []*box{b, c} {
		if _, err := os.Stat(live.Run()); err != nil {
			t.Error(err)
		}
	}
}

func TestManyBoxesAtOnce(t *testing.T) {
	t.Parallel()
	dir := cacheDir(t)
	var wg sync.WaitGroup
	boxes := make([]*box, 8)
	for i := range boxes {
		boxes[i] = newBox(t, dir, fmt.Sprint("box", i))
		boxes[i].declares("app:"+fmt.Sprint(i), "base", "shared", fmt.Sprint("own", i))
	}
	for _, b := range boxes {
		wg.Go(func() {
			if _, err := b.Publish(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i := range boxes {
		name := fmt.Sprint("app:", i)
		newBox(t, dir, fmt.Sprint("later", i), name).wantContent(name, "base", "shared", fmt.Sprint("own", i))
	}
}

func TestWithout(t *testing.T) {
	t.Parallel()
	dir := cacheDir(t)
	for _, c := range []struct {
		name, dir, driver, want string
	}{
		{"no volume", filepath.Join(dir, "absent"), driver, ""},
		{"other driver", dir, "vfs", "vfs"},
	} {
		cache := New(Config{Dir: c.dir, DataRoot: t.TempDir(), ID: "x", Log: slog.New(slog.DiscardHandler), Mounts: flat{}})
		placed, note, err := cache.Prepare(t.Context(), c.driver, 0, 0)
		if placed || err != nil || note == "" || !strings.Contains(note, c.want) {
			t.Errorf("%s: %v %q %v", c.name, placed, note, err)
		}
		if n, err := cache.Publish(t.Context()); n != 0 || err != nil {
			t.Errorf("%s: publish %d %v", c.name, n, err)
		}
	}
}

// A box that holds the lock for ever costs the cache, not the run.
func TestBusyLock(t *testing.T) {
	t.Parallel()
	dir := cacheDir(t)
	a := newBox(t, dir, "a")
	lock, err := os.Open(a.Path("lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("told to stop")
	cancel(stop)
	c := New(Config{Dir: dir, View: filepath.Join(t.TempDir(), "view"), DataRoot: t.TempDir(), ID: "b", Log: slog.New(slog.DiscardHandler), Mounts: flat{}})
	if placed, _, err := c.Prepare(ctx, driver, 1000, 1000); placed || !errors.Is(err, stop) {
		t.Errorf("%v %v", placed, err)
	}
}

// Code of the repository can name any image in its own engine. An image that the
// run did not declare reaches no other box, nor does another meaning of a name it has.
func TestOnlyDeclaredImagesArePublished(t *testing.T) {
	t.Parallel()
	dir := cacheDir(t)
	a := newBox(t, dir, "a")
	a.declares("redis:7", "base", "redis")
	a.declares("redis:6", "base", "older")
	a.publish1(3)

	b := newBox(t, dir, "b")
	b.declares("app:1", "app")
	b.engineLoads("redis:7", "evil")
	b.engineLoads("other:1", "base", "other")
	b.publish1(1)

	c := newBox(t, dir, "c", "redis:7", "redis:6", "app:1", "other:1")
	c.wantContent("redis:7", "base", "redis")
	c.wantContent("redis:6", "base", "older")
	c.wantContent("app:1", "app")
	if got, err := c.content("other:1"); err == nil {
		t.Errorf("an image that no run declared was published: %q", got)
	}
}
