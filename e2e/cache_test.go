//go:build e2e

package e2e

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	imagetypes "github.com/docker/docker/api/types/image"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// layered builds an image on the redis one with a layer that no other image has,
// and returns its id. mark is in the file /mark.
func layered(t *testing.T, name, mark string, size int64) string {
	t.Helper()
	// Content that cannot be shared with anybody, from the base's own tools.
	err := buildImage(t.Context(), name, fmt.Sprintf("FROM %s\nRUN echo %s >/mark && head -c %d /dev/urandom >/fill\n", redisImage, mark, size))
	if err != nil {
		t.Fatal(err)
	}
	in, err := eng.ImageInspect(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return in.ID
}

func dropImage(t *testing.T, name string) {
	t.Helper()
	if _, err := eng.ImageRemove(t.Context(), name, imagetypes.RemoveOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
}

// archive saves images as `docker save` does.
func archive(t *testing.T, names ...string) string {
	t.Helper()
	r, err := eng.ImageSave(t.Context(), names)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	path := filepath.Join(t.TempDir(), "images.tar")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(f, r); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// cacheVolume is a name for a test's own cache.
func cacheVolume(t *testing.T) string {
	t.Helper()
	return "sandbox-agent-e2e-" + strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-"))
}

// newCacheUser is a careful user whose boxes share a cache of their own: what other tests do to theirs is not seen.
func newCacheUser(t *testing.T) *user {
	t.Helper()
	volume := cacheVolume(t)
	remove := func() {
		if err := eng.VolumeRemove(context.WithoutCancel(t.Context()), volume, true); err != nil {
			t.Error(err)
		}
	}
	remove() // what a test that was killed left
	t.Cleanup(remove)
	return newCarefulUser(t, "SANDBOX_AGENT_CACHE_VOLUME="+volume)
}

// cache calls a command of the cache with --json.
func (u *user) cache(args ...string) *workorder.CacheReport {
	u.t.Helper()
	c := u.run("", append([]string{"cache"}, append(args, "--json")...)...)
	var r workorder.CacheReport
	if err := json.Unmarshal([]byte(c.stdout), &r); c.code != 0 || err != nil {
		u.t.Fatalf("exit code %d, %v", c.code, err)
	}
	return &r
}

// cached is the image in the cache; nil when it is not there. No image may be damaged.
func (u *user) cached(name string) (found *workorder.CacheImage) {
	u.t.Helper()
	for _, s := range u.cache("ls").Stores {
		for _, i := range s.Images {
			if i.Problem != "" {
				u.t.Errorf("image %v: %s", i.Names, i.Problem)
			}
			if slices.Contains(i.Names, name+":latest") {
				found = &i
			}
		}
	}
	return found
}

// took says whether a prune removed the image, or would.
func took(r *workorder.CacheReport, name string) bool {
	return slices.ContainsFunc(r.Stores, func(s workorder.CacheStore) bool {
		return slices.ContainsFunc(s.Removed, func(i workorder.CacheImage) bool { return slices.Contains(i.Names, name+":latest") })
	})
}

func (u *user) noCacheBox() {
	u.t.Helper()
	cs, err := eng.ContainerList(u.t.Context(), container.ListOptions{All: true})
	if err != nil {
		u.t.Fatal(err)
	}
	for _, c := range cs {
		if strings.HasPrefix(c.Labels[workorder.LabelTask], workorder.CacheBoxPrefix) && strings.HasSuffix(c.Labels[workorder.LabelOwner], ":"+u.state) {
			u.t.Errorf("%v is left: %s", c.Names, c.Status)
		}
	}
}

// withService is a project with one service of the image, whose agent waits to be let go and
// then starts containers from the image again.
func withService(image string) string {
	return scripted("services:\n  store:\n    image: "+image+"\n", busy+
		await("go")+
		"docker run --rm --network none --entrypoint cat "+image+" /mark\n"+
		"printf 'PING\\r\\nQUIT\\r\\n' | nc store 6379 | grep PONG\n")
}

func (w *working) seesMark(mark string) {
	w.t.Helper()
	w.end(0, workorder.StatusSuccess, workorder.EndedByAgent)
	if out := w.out.String(); !strings.Contains(out, mark) || !strings.Contains(out, "+PONG") {
		w.t.Errorf("the box printed no %q or no +PONG", mark)
	}
}

// loadsAgain loads an archive again, compressed and from standard input: nothing is new.
func (u *user) loadsAgain(tarball, name string) {
	u.t.Helper()
	plain, err := os.ReadFile(tarball)
	if err != nil {
		u.t.Fatal(err)
	}
	var z bytes.Buffer
	zw := gzip.NewWriter(&z)
	if _, err := zw.Write(plain); err != nil || zw.Close() != nil {
		u.t.Fatal(err)
	}
	c := u.run(z.String(), "cache", "load", "-", "--json")
	var r workorder.CacheReport
	if err := json.Unmarshal([]byte(c.stdout), &r); err != nil || c.code != 0 || r.NewLayers != 0 || !slices.Contains(r.Brought, name+":latest") {
		u.t.Errorf("exit code %d, %+v, %v", c.code, r, err)
	}
}

func TestCacheBadArchives(t *testing.T) {
	t.Parallel()
	u := newCacheUser(t)
	for _, stdin := range []string{"", strings.Repeat("no archive ", 1<<20)} {
		if c := u.run(stdin, "cache", "load", "-"); c.code != workorder.ExitInvalid {
			t.Errorf("%d bytes: exit code %d, want %d", len(stdin), c.code, workorder.ExitInvalid)
		}
	}
	u.noCacheBox()
}

// cacheBox waits for the box that a command of the cache started.
func (u *user) cacheBox(s *started) string {
	u.t.Helper()
	for range 6000 {
		cs, err := eng.ContainerList(u.t.Context(), container.ListOptions{})
		if err != nil {
			u.t.Fatal(err)
		}
		for _, c := range cs {
			if strings.HasPrefix(c.Labels[workorder.LabelTask], workorder.CacheBoxPrefix) && strings.HasSuffix(c.Labels[workorder.LabelOwner], ":"+u.state) {
				return c.ID
			}
		}
		select {
		case <-s.Done():
			return ""
		case <-time.After(20 * time.Millisecond):
		}
	}
	u.t.Fatal("no box within the time")
	return ""
}

// TestCacheInterrupt: Ctrl-C in the middle of a load leaves no box. A CLI that is
// killed takes the archive's end with it: its box ends by itself, and gc removes it.
func TestCacheInterrupt(t *testing.T) {
	t.Parallel()
	u := newCacheUser(t)
	fifo := filepath.Join(t.TempDir(), "images.tar")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	begin := func() (s *started, box string) {
		t.Helper()
		if _, err := f.Write(make([]byte, 512)); err != nil { // and no more: the box waits for the rest
			t.Fatal(err)
		}
		s = u.start("", "cache", "load", fifo)
		return s, u.cacheBox(s)
	}
	s, box := begin()
	s.Signal(syscall.SIGINT)
	if c := s.wait(); c.code != workorder.ExitInterrupted || box == "" {
		t.Errorf("exit code %d, box %q", c.code, box)
	}
	u.noCacheBox()

	s, box = begin()
	s.Signal(syscall.SIGKILL)
	s.wait()
	for range 600 {
		in, err := eng.ContainerInspect(t.Context(), box)
		if err != nil {
			t.Fatal(err)
		}
		if !in.State.Running {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if c := u.run("", "gc"); c.code != 0 {
		t.Errorf("gc: exit code %d", c.code)
	}
	u.noCacheBox()
}
