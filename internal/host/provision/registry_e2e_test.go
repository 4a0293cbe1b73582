//go:build e2e

package provision

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	imagetypes "github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"

	"github.com/sandbox-agent/sandbox-agent/image"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// loopback is a registry of images in memory, with the part of the protocol that an engine needs. Uploads are not resumed.
type loopback struct {
	mu    sync.Mutex
	files map[string][]byte // blobs and manifests by path
	types map[string]string // of the manifests
	gets  int               // blobs that were read
}

func (r *loopback) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	body, _ := io.ReadAll(q.Body) // a cut body has another digest
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(body))
	dir, name := path.Split(q.URL.Path)
	content, there := r.files[q.URL.Path]
	switch {
	case q.URL.Path == "/v2/":
	case q.Method == http.MethodPost: // of an upload
		w.Header().Set("Location", q.URL.Path+rand.Text())
		w.WriteHeader(http.StatusAccepted)
	case q.Method == http.MethodPatch:
		r.files[q.URL.Path] = append(content, body...)
		w.Header().Set("Location", q.URL.Path)
		w.Header().Set("Range", fmt.Sprintf("0-%d", len(r.files[q.URL.Path])-1))
		w.WriteHeader(http.StatusAccepted)
	case q.Method == http.MethodPut && strings.HasSuffix(dir, "/uploads/"):
		r.files[strings.TrimSuffix(dir, "uploads/")+q.URL.Query().Get("digest")] = append(content, body...)
		w.WriteHeader(http.StatusCreated)
	case q.Method == http.MethodPut:
		for _, p := range []string{q.URL.Path, dir + digest} {
			r.files[p], r.types[p] = body, q.Header.Get("Content-Type")
		}
		w.Header().Set("Docker-Content-Digest", digest)
		w.WriteHeader(http.StatusCreated)
	case !there:
		w.WriteHeader(http.StatusNotFound)
	default:
		if t := r.types[q.URL.Path]; t != "" {
			w.Header().Set("Content-Type", t)
			name = fmt.Sprintf("sha256:%x", sha256.Sum256(content))
		} else if q.Method == http.MethodGet {
			r.gets++
		}
		w.Header().Set("Docker-Content-Digest", name)
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		if q.Method == http.MethodGet {
			_, _ = w.Write(content)
		}
	}
}

// push gives an image to a registry, and returns its digest.
func push(t *testing.T, c *client.Client, ref string) string {
	t.Helper()
	body, err := c.ImagePush(t.Context(), ref, imagetypes.PushOptions{RegistryAuth: "e30="})
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	for dec := json.NewDecoder(body); ; {
		var m struct {
			Error string
			Aux   struct{ Digest string }
		}
		if err := dec.Decode(&m); err != nil || m.Error != "" {
			t.Fatalf("push: %v %s", err, m.Error)
		}
		if m.Aux.Digest != "" {
			return m.Aux.Digest
		}
	}
}

// TestE2EReleased pulls a released image by digest from a registry, with the host's certificates added, and builds it without the registry.
func TestE2EReleased(t *testing.T) {
	t.Parallel()
	c := engineClient(t)
	r := &loopback{files: map[string][]byte{}, types: map[string]string{}}
	srv := httptest.NewServer(r)
	t.Cleanup(srv.Close)
	base, err := EnsureBase(t.Context(), c, Options{StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	// Each test has another image, of which the engine has nothing but the base.
	recipe := fmt.Sprintf("ARG BASE\nFROM ${BASE}\nLABEL test=%s\nRUN echo %[1]s >/released\n", rand.Text())
	src := image.From(fstest.MapFS{"Dockerfile": {Data: []byte(recipe)}}, nil)
	hash, err := src.Hash()
	if err != nil {
		t.Fatal(err)
	}
	repository := strings.TrimPrefix(srv.URL, "http://") + "/box"
	name := "sandbox-agent-e2e-released:" + tag("", hash)
	o := Options{StateDir: t.TempDir(), repository: "sandbox-agent-e2e-released", Progress: func(workorder.Event) {}}
	remove := func(names ...string) {
		for _, n := range names {
			_, _ = c.ImageRemove(context.WithoutCancel(t.Context()), n, imagetypes.RemoveOptions{Force: true, PruneChildren: true})
		}
	}
	t.Cleanup(func() { remove(name, repository+":1") })
	b := &builder{engine: c, src: src, name: repository + ":1", hash: hash, arch: runtime.GOARCH, o: o}
	if err := b.build(t.Context(), src, base, readHost(t.Context())); err != nil {
		t.Fatal(err)
	}
	digest := push(t, c, repository+":1")
	remove(repository+":1", repository+"@"+digest)
	o.releases = image.Releases{Repository: repository, Digests: map[string]string{hash: digest}}
	img, err := released(t.Context(), c, o, src, [][]string{nil}, runtime.GOARCH)
	if err != nil || img.Name != name || r.gets == 0 {
		t.Fatalf("%+v, %v after %d blobs", img, err, r.gets)
	}
	t.Cleanup(func() { remove(repository + "@" + digest) })
	host := readHost(t.Context())
	var want bytes.Buffer
	for file, content := range host.cas {
		fmt.Fprintf(&want, "test \"$(sha256sum </usr/local/share/ca-certificates/%s)\" = '%x  -'\n", file, sha256.Sum256(content))
	}
	if out, code := asSandbox(t, c, name, "set -e\ntest -s /released\n"+want.String()); code != 0 {
		t.Errorf("exit code %d: %s", code, out)
	}
	if found, err := inspect(t.Context(), c, name); err != nil || found != img {
		t.Errorf("%+v, %v", found, err)
	}
	// Without the registry the caller builds it.
	srv.Close()
	remove(name, repository+"@"+digest)
	warned := 0
	o.Progress = func(e workorder.Event) {
		if e.Type == workorder.EventWarning {
			warned++
		}
	}
	if img, err = released(t.Context(), c, o, src, [][]string{nil}, runtime.GOARCH); err != nil || img.ID != "" || warned != 1 {
		t.Fatalf("%+v, %v, %d warnings", img, err, warned)
	}
	if img, err = ensure(t.Context(), c, o, src, runtime.GOARCH); err != nil || img.Name != name {
		t.Errorf("%+v, %v", img, err)
	}
}
