//go:build e2e && nightly

package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// cacheNames are the names of the images in the cache, of which none may be damaged.
func (u *user) cacheNames() (names []string) {
	u.t.Helper()
	for _, s := range u.cache("ls").Stores {
		for _, i := range s.Images {
			if i.Problem != "" {
				u.t.Errorf("image %v: %s", i.Names, i.Problem)
			}
			names = append(names, i.Names...)
		}
	}
	return names
}

// TestCacheKilled kills boxes at random moments of load and publish. Images that are
// listed afterwards are whole: a later box starts a service from every image.
func TestCacheKilled(t *testing.T) {
	t.Parallel()
	const rounds, base = 6, "sandbox-agent-e2e/killed-"
	u := newCacheUser(t)
	rng := rand.New(rand.NewPCG(7, 42))
	var names, tarballs []string
	for i := range 4 {
		name := fmt.Sprint(base, i)
		layered(t, name, fmt.Sprint("mark-", i), 2<<20)
		names, tarballs = append(names, name), append(tarballs, archive(t, name))
	}
	every := archive(t, names...)
	for _, name := range names {
		dropImage(t, name)
	}
	begin := time.Now()
	u.cache("load", tarballs[0])
	all := time.Since(begin) / 2 // the other half is the command before its box and after
	killed, loaded := 0, map[string]bool{}
	for round := range rounds {
		i := round % len(tarballs)
		s := u.start("", "cache", "load", tarballs[i])
		box := u.cacheBox(s)
		select {
		case <-s.Done():
		case <-time.After(time.Duration(rng.Int64N(int64(all)))):
			if eng.ContainerKill(t.Context(), box, "KILL") == nil {
				killed++
			}
		}
		c := s.wait()
		if c.code != 0 && c.code != workorder.ExitBox {
			t.Errorf("round %d: exit code %d", round, c.code)
		}
		if c.code == 0 {
			loaded[names[i]] = true
		}
		if round%(rounds/2) != rounds/2-1 {
			continue
		}
		// The cache is sound, and has the layers that were reported as loaded.
		there := u.cacheNames()
		for name := range loaded {
			if !slices.Contains(there, name+":latest") {
				t.Errorf("round %d: %s was loaded, there are %v", round, name, there)
			}
		}
		if round == rounds-1 {
			break
		}
		u.cache("prune", "--all") // start again from nothing
		clear(loaded)
	}
	u.noCacheBox()
	if killed == 0 {
		t.Error("no box was killed in time")
	}
	u.cache("load", every)
	head := "services:\n"
	for i, name := range names {
		head += fmt.Sprintf("  s%d:\n    image: %s\n", i, name)
	}
	w := u.workOn(scripted(head, busy+"for i in 0 1 2 3; do docker run --rm --network none --entrypoint cat "+base+"$i /mark; done\n"))
	w.end(0, workorder.StatusSuccess, workorder.EndedByAgent)
	for i := range tarballs {
		if want := fmt.Sprint("mark-", i); !strings.Contains(w.out.String(), want) {
			t.Errorf("the box printed no %q", want)
		}
	}
	t.Logf("%d of %d boxes were killed within %s", killed, rounds, all)
}

// TestCacheDisk: runs of one project cost the disk no layers of their own.
func TestCacheDisk(t *testing.T) {
	t.Parallel()
	const name, size, delta = "sandbox-agent-e2e/measured", 64 << 20, 8 << 20
	u := newCacheUser(t)
	layered(t, name, "mark-of-the-measured", size)
	run := func(private func(int64)) {
		t.Helper()
		w := u.workOn(withService(name))
		if private != nil {
			for _, s := range u.cache("ls").Stores {
				if slices.Contains(s.Boxes, w.id) {
					private(s.BoxBytes / int64(len(s.Boxes)))
				}
			}
		}
		tell(t, w.box(), "go")
		w.seesMark("mark-of-the-measured")
	}
	u.cache("pull", redisImage) // what the image is made on is there under another name
	empty := u.cache("ls").DiskBytes
	own := int64(-1)
	run(func(n int64) { own = n })
	if own < 0 || own > delta {
		t.Errorf("the first run's own data root has %d bytes: its layers are not shared", own)
	}
	u.cache("prune", "--older-than", "1h") // what a box leaves that ended a moment ago
	first := u.cache("ls").DiskBytes
	run(nil)
	inside := int64(-1)
	run(func(n int64) { inside = n })
	last := u.cache("ls").DiskBytes
	t.Logf("bytes on the disk: %d empty, %d after one run, %d after three; a box's own data root while it runs: %d", empty, first, last, inside)
	if first-empty < size || first-empty > size+delta {
		t.Errorf("the first run put %d bytes on the disk, its image alone has %d", first-empty, size)
	}
	if last-first > delta || inside < 0 || inside > delta {
		t.Errorf("two more runs cost %d bytes, a live box %d; want less than %d", last-first, inside, delta)
	}
	dropImage(t, name)
}

// TestCachePull: this machine's engine hands over what it has; the first run
// starts from the cache. Images that cannot be pulled are reported, the rest is kept.
func TestCachePull(t *testing.T) {
	t.Parallel()
	const name = "sandbox-agent-e2e/pulled"
	u := newCacheUser(t)
	layered(t, name, "mark-of-the-pulled", 1<<20)
	if r := u.cache("pull", "--project", u.project(withService(name))); !slices.Equal(r.Brought, []string{name}) || r.NewLayers < 1 {
		t.Errorf("%+v", r)
	}
	if r := u.cache("pull", name); r.NewLayers != 0 {
		t.Errorf("a second time: %+v", r)
	}
	dropImage(t, name) // from here on the cache is the only one that has it
	w := u.workOn(withService(name))
	tell(t, w.box(), "go")
	w.seesMark("mark-of-the-pulled")
	c := u.run("", "cache", "pull", name, "registry.invalid/nothing/here:1")
	if c.code != workorder.ExitBox || !strings.Contains(c.stderr, "registry.invalid/nothing/here:1") || !strings.Contains(c.stdout, name) {
		t.Errorf("exit code %d", c.code)
	}
	u.noCacheBox()
}

// TestCacheUpkeep: load, ls, two boxes at once on one seed, prune beside them,
// and what prune frees when they are gone.
func TestCacheUpkeep(t *testing.T) {
	t.Parallel()
	const name, size = "sandbox-agent-e2e/cached", 8 << 20
	u := newCacheUser(t)
	id := layered(t, name, "mark-of-the-cached", size)
	tarball := archive(t, redisImage, name) // whose layers are shared by both
	dropImage(t, name)                      // from here on the cache is the only one that has it

	if r := u.cache("load", tarball); !slices.Contains(r.Brought, name+":latest") || r.NewLayers < 2 {
		t.Fatalf("%+v", r)
	}
	got := u.cached(name)
	if got == nil || got.ID != id || got.OwnBytes < size || got.OwnBytes > 2*size || len(got.Boxes) != 0 || time.Since(got.PublishedAt) > time.Hour {
		t.Fatalf("%+v", got)
	}
	if nightly {
		u.loadsAgain(tarball, name)
	}

	a, b := u.workOn(withService(name)), u.workOn(withService(name))
	if got := u.cached(name); got == nil || !slices.Contains(got.Boxes, a.id) || !slices.Contains(got.Boxes, b.id) {
		t.Errorf("%+v, want the boxes %s and %s", got, a.id, b.id)
	}
	if c := u.run("", "ps", "--all"); strings.Contains(c.stdout, workorder.CacheBoxPrefix) {
		t.Error("ps lists the cache's boxes")
	}
	if r := u.cache("prune", "--all"); took(r, name) {
		t.Error("prune took an image that boxes run on")
	}
	tell(t, a.box(), "go")
	tell(t, b.box(), "go")
	a.seesMark("mark-of-the-cached")
	b.seesMark("mark-of-the-cached")

	// Each report says what there was: what the one before took would not be in it.
	prunes := [][]string{{"prune", "--all"}}
	if nightly {
		if r := u.cache("prune", "--older-than", "1h"); took(r, name) {
			t.Error("prune took an image that was used a moment ago")
		}
		prunes = [][]string{{"prune", "--all", "--dry-run"}, {"prune", "--all"}}
	}
	for _, args := range prunes {
		if r := u.cache(args...); r.FreedBytes < size || !took(r, name) {
			t.Errorf("%v: %+v", args, r)
		}
	}
	if u.cached(name) != nil {
		t.Error("it is still there")
	}
	u.noCacheBox()
}
