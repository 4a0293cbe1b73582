package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/build"
	imagetypes "github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/client"
	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-agent/sandbox-agent/image"
	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/programs"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// machineMemory is that of the engine's machine.
const machineMemory = 8 << 30

// fakeEngine holds images by name. Values that are not set are not expected.
type fakeEngine struct {
	mu     sync.Mutex
	images map[string]imagetypes.InspectResponse
	list   []imagetypes.Summary
	size   int64 // of what is built
	arch   string
	pull   func(ctx context.Context) (io.ReadCloser, error)
	build  func(context.Context, io.Reader, build.ImageBuildOptions) (io.ReadCloser, error)
	builds int

	removed []string
}

func (f *fakeEngine) Info(context.Context) (system.Info, error) {
	return system.Info{Architecture: f.arch, MemTotal: machineMemory}, nil
}

func (f *fakeEngine) ImageInspect(_ context.Context, ref string, _ ...client.ImageInspectOption) (imagetypes.InspectResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r, ok := f.images[ref]; ok {
		return r, nil
	}
	return imagetypes.InspectResponse{}, fmt.Errorf("no such image %s: %w", ref, cerrdefs.ErrNotFound)
}

func (f *fakeEngine) ImageList(context.Context, imagetypes.ListOptions) ([]imagetypes.Summary, error) {
	return f.list, nil
}

func (f *fakeEngine) ImageTag(_ context.Context, ref, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.images[name] = f.images[ref]
	return nil
}

func (f *fakeEngine) ImageRemove(_ context.Context, ref string, _ imagetypes.RemoveOptions) ([]imagetypes.DeleteResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.images, ref)
	f.removed = append(f.removed, ref)
	return nil, nil
}

func (f *fakeEngine) ImagePull(ctx context.Context, _ string, _ imagetypes.PullOptions) (io.ReadCloser, error) {
	return f.pull(ctx)
}

func (f *fakeEngine) ImageImport(context.Context, imagetypes.ImportSource, string, imagetypes.ImportOptions) (io.ReadCloser, error) {
	return nil, errors.New("not expected")
}

func (f *fakeEngine) ImageBuild(ctx context.Context, r io.Reader, o build.ImageBuildOptions) (build.ImageBuildResponse, error) {
	f.mu.Lock()
	f.builds++
	f.mu.Unlock()
	if _, err := io.Copy(io.Discard, r); err != nil {
		return build.ImageBuildResponse{}, err
	}
	body, err := f.build(ctx, r, o)
	if err == nil {
		f.mu.Lock()
		f.images[o.Tags[0]] = imagetypes.InspectResponse{ID: "sha256:built", Size: f.size}
		f.mu.Unlock()
	}
	return build.ImageBuildResponse{Body: body}, err
}

func stream(messages ...map[string]string) io.ReadCloser {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	for _, m := range messages {
		if err := enc.Encode(m); err != nil {
			panic(err)
		}
	}
	return io.NopCloser(strings.NewReader(b.String()))
}

func out(s string) map[string]string { return map[string]string{"stream": s} }

func TestCustomImageIsNeverBuilt(t *testing.T) {
	engine := &fakeEngine{images: map[string]imagetypes.InspectResponse{
		"mine:1": {ID: "sha256:abc", RepoDigests: []string{"mine@sha256:def"}},
	}}
	got, err := Ensure(t.Context(), engine, Options{Image: "mine:1", StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(workorder.Image{Name: "mine:1", ID: "sha256:abc", Digest: "mine@sha256:def"}, got); d != "" {
		t.Error(d)
	}
	_, err = Ensure(t.Context(), engine, Options{Image: "other:1", StateDir: t.TempDir()})
	if exiterr.Code(err) != workorder.ExitBox || !strings.Contains(err.Error(), "other:1") || !strings.Contains(exiterr.Hint(err), "docker pull other:1") {
		t.Errorf("a missing custom image gives %v (code %d, hint %q)", err, exiterr.Code(err), exiterr.Hint(err))
	}
	for argv, right := range map[string]bool{`null`: false, `["sh"]`: false, `["/docker-entrypoint.sh"]`: false, `["/usr/local/bin/entrypoint", "init"]`: true, `["my-init", "entrypoint", "init"]`: true, `["/bin/sh", "-c", "exec /usr/local/bin/entrypoint init"]`: true} {
		var r imagetypes.InspectResponse
		if err := json.Unmarshal([]byte(`{"Id": "sha256:x", "Config": {"Entrypoint": `+argv+`}}`), &r); err != nil {
			t.Fatal(err)
		}
		engine.images["begins:1"] = r
		if _, err := Ensure(t.Context(), engine, Options{Image: "begins:1", StateDir: t.TempDir()}); (err == nil) != right || err != nil && exiterr.Hint(err) == "" {
			t.Errorf("an image that begins with %s: %v", argv, err)
		}
	}
	_, err = Ensure(t.Context(), engine, Options{Image: "mine:1", Rebuild: true, StateDir: t.TempDir()})
	if exiterr.Code(err) != workorder.ExitUsage {
		t.Errorf("rebuilding a custom image gives %v", err)
	}
	if engine.builds != 0 {
		t.Errorf("%d builds", engine.builds)
	}
}

func TestUnknownArchitecture(t *testing.T) {
	_, err := Ensure(t.Context(), &fakeEngine{arch: "riscv64"}, Options{StateDir: t.TempDir()})
	if exiterr.Code(err) != workorder.ExitBox || !strings.Contains(err.Error(), "riscv64") {
		t.Errorf("got %v", err)
	}
}

// TestBuildFailure checks what a user sees of a build that fails: the end of
// its output and what to do.
func TestBuildFailure(t *testing.T) {
	engine := &fakeEngine{
		images: map[string]imagetypes.InspectResponse{registryBase: {}},
		build: func(context.Context, io.Reader, build.ImageBuildOptions) (io.ReadCloser, error) {
			return stream(out("Step 1/1 : RUN x\n"), out("curl: (6) could not resolve host\n"), map[string]string{"error": "code: 6"}), nil
		},
	}
	b := &builder{engine: engine, src: testSource(), name: "n:1", o: Options{Progress: func(workorder.Event) {}}}
	err := b.run(t.Context())
	if exiterr.Code(err) != workorder.ExitBox || exiterr.Hint(err) == "" || !strings.Contains(err.Error(), "could not resolve host") {
		t.Errorf("got %v (code %d, hint %q)", err, exiterr.Code(err), exiterr.Hint(err))
	}
}

// TestBuildOnce checks that processes that need the image at once build it once.
func TestBuildOnce(t *testing.T) {
	engine := &fakeEngine{
		images: map[string]imagetypes.InspectResponse{registryBase: {}},
		build: func(context.Context, io.Reader, build.ImageBuildOptions) (io.ReadCloser, error) {
			return stream(out("Step 1/1 : FROM x\n")), nil
		},
	}
	o := Options{Version: "v1", StateDir: t.TempDir(), Progress: func(workorder.Event) {}}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			img, err := ensure(t.Context(), engine, o, testSource(), "amd64")
			if err != nil || img.ID != "sha256:built" {
				t.Errorf("got %+v, %v", img, err)
			}
		})
	}
	all.Wait()
	if engine.builds != 1 {
		t.Errorf("%d builds, want 1", engine.builds)
	}
	o.Rebuild = true
	if _, err := ensure(t.Context(), engine, o, testSource(), "amd64"); err != nil || engine.builds != 2 {
		t.Errorf("rebuild: %d builds, %v", engine.builds, err)
	}
}

// TestParts: an exact image is used before one with all parts, and that one before others that have more than is asked for.
func TestParts(t *testing.T) {
	t.Parallel()
	finder := &programs.Finder{Given: fstest.MapFS{"entrypoint-linux-amd64": {Data: []byte("ELF")}}}
	engine := &fakeEngine{
		images: map[string]imagetypes.InspectResponse{registryBase: {ID: "base"}},
		build: func(context.Context, io.Reader, build.ImageBuildOptions) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader("{}")), nil
		},
	}
	options := func(parts ...string) Options {
		return Options{Parts: parts, Arch: "amd64", Programs: finder, StateDir: t.TempDir()}
	}
	ensured := func(o Options, builds int) string {
		t.Helper()
		img, err := Ensure(t.Context(), engine, o)
		if err != nil || engine.builds != builds {
			t.Fatalf("%+v, %v after %d builds, want %d", img, err, engine.builds, builds)
		}
		return img.Name
	}
	two := ensured(options("browser", "codex"), 1)
	if got := ensured(options("browser"), 1); got != two {
		t.Errorf("for one part %s, want %s", got, two)
	}
	if got := ensured(options("codex", "browser"), 1); got != two {
		t.Errorf("in another order %s, want %s", got, two)
	}
	exact := options("browser")
	exact.Exact = true
	one := ensured(exact, 2)
	if got := ensured(options("browser"), 2); one == two || got != one {
		t.Errorf("exactly %s, want %s", got, one)
	}
	all := ensured(options(image.Parts()...), 3)
	if got := ensured(options("codex"), 3); got != all {
		t.Errorf("with all parts there %s, want %s", got, all)
	}
	if got := ensured(options("browser"), 3); got != one {
		t.Errorf("with all parts there, exactly %s, want %s", got, one)
	}
	again := options("codex")
	again.Rebuild = true
	if got := ensured(again, 4); got == two || got == all {
		t.Errorf("rebuilt %s", got)
	}
	if _, err := Ensure(t.Context(), engine, options("emacs")); exiterr.Code(err) != workorder.ExitUsage {
		t.Errorf("an unknown part: %v", err)
	}
}

func testSource() *image.Source {
	return image.From(fstest.MapFS{"Dockerfile": {Data: []byte("FROM x\n")}}, new(image.Of([]byte("ELF"))))
}

func TestTag(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.3":                   "v1.2.3-abc",
		"v1.2.3-rc.1":              "v1.2.3-rc.1-abc",
		"v0.1.1-0.2026112-c+dirty": "dev-abc",
		"devel":                    "dev-abc",
		"":                         "dev-abc",
	} {
		if got := tag(version, "abc"); got != want {
			t.Errorf("tag(%q) = %q, want %q", version, got, want)
		}
	}
}

func TestFollow(t *testing.T) {
	var events []string
	b := &builder{o: Options{Progress: func(e workorder.Event) { events = append(events, string(e.Type)+" "+e.Text) }}}
	err := b.follow(stream(
		out("Step 1/2 : FROM x\n"), out(" ---> 123\n"), out("Step 2/2 : RUN sh a.sh\n"),
		out("fetching\nnot in this image: supabase: no answer\n"),
		map[string]string{"error": "The command returned a non-zero code: 1"},
	), io.Discard)
	if err == nil || err.Error() != "The command returned a non-zero code: 1" {
		t.Errorf("error %v", err)
	}
	want := []string{"output [1/2] FROM x", "output [2/2] RUN sh a.sh", "warning not in this image: supabase: no answer"}
	if d := cmp.Diff(want, events); d != "" {
		t.Error(d)
	}
}

func TestFollowCutStream(t *testing.T) {
	b := &builder{o: Options{Progress: func(workorder.Event) {}}}
	if err := b.follow(strings.NewReader(`{"stream":"Step 1/2 : FROM x\n"}{"stre`), io.Discard); err == nil {
		t.Error("a stream that ends in the middle of a message is no error")
	}
}

func TestPullDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &fakeEngine{pull: func(ctx context.Context) (io.ReadCloser, error) {
			<-ctx.Done() // a registry behind a network that drops packets
			return nil, ctx.Err()
		}}
		b := &builder{engine: engine, o: Options{Progress: func(workorder.Event) {}}}
		if err := b.pull(t.Context(), registryBase); !errors.Is(err, errUnreachable) {
			t.Errorf("got %v", err)
		}
	})
}

func TestPullThatIsSlowAfterItsFirstWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &fakeEngine{pull: func(ctx context.Context) (io.ReadCloser, error) {
			r, w := io.Pipe()
			go func() {
				_, _ = io.WriteString(w, `{"status":"Pulling from library/ubuntu"}`)
				select {
				case <-time.After(3 * answerDeadline):
					_ = w.Close()
				case <-ctx.Done():
					_ = w.CloseWithError(ctx.Err())
				}
			}()
			return r, nil
		}}
		b := &builder{engine: engine, o: Options{Progress: func(workorder.Event) {}}}
		if err := b.pull(t.Context(), registryBase); err != nil {
			t.Errorf("got %v", err)
		}
	})
}

func TestClassify(t *testing.T) {
	for text, want := range map[string]error{
		"Get \"https://registry.example/v2/\": dial tcp: lookup registry.example: no such host":      errUnreachable,
		"net/http: request canceled while waiting for connection (Client.Timeout exceeded)":          errUnreachable,
		"toomanyrequests: You have reached your pull rate limit":                                     errDenied,
		"pull access denied for ubuntu, repository does not exist or may require 'docker login'":     errDenied,
		"error parsing HTTP 403 response body: invalid character '<' looking for beginning of value": errDenied,
	} {
		if got := classify(errors.New(text)); !errors.Is(got, want) {
			t.Errorf("%s: %v", text, got)
		}
	}
}

func TestLocalBase(t *testing.T) {
	b := &builder{engine: &fakeEngine{list: []imagetypes.Summary{
		{RepoTags: []string{"sandbox-agent/base:old"}, Created: 1},
		{RepoTags: []string{"sandbox-agent/base:new"}, Created: 2},
		{Created: 3}, // lost its name
	}}}
	if got, err := b.localBase(t.Context()); err != nil || got != "sandbox-agent/base:new" {
		t.Errorf("got %q, %v", got, err)
	}
	b = &builder{engine: &fakeEngine{images: map[string]imagetypes.InspectResponse{registryBase: {}}}}
	if got, err := b.localBase(t.Context()); err != nil || got != registryBase {
		t.Errorf("got %q, %v", got, err)
	}
	b = &builder{engine: &fakeEngine{}}
	if got, err := b.localBase(t.Context()); err != nil || got != "" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestLockIsExclusive(t *testing.T) {
	dir := t.TempDir()
	quiet := func(workorder.Event) {}
	unlock, waited, err := lock(t.Context(), dir, imageLock, quiet)
	if err != nil || waited {
		t.Fatalf("first: waited %v, %v", waited, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan string, 1)
	go func() { <-told; cancel() }()
	if _, _, err := lock(ctx, dir, imageLock, func(e workorder.Event) { told <- e.Text }); !errors.Is(err, context.Canceled) {
		t.Fatalf("second while held: %v", err)
	}
	told = make(chan string, 1)
	go func() { <-told; unlock() }()
	again, waited, err := lock(t.Context(), dir, imageLock, func(e workorder.Event) { told <- e.Text })
	if err != nil || !waited {
		t.Fatalf("second after release: waited %v, %v", waited, err)
	}
	again()
}

func TestList(t *testing.T) {
	ours := func(hash, version string) map[string]string {
		return map[string]string{labelHash: hash, labelVersion: version}
	}
	engine := &fakeEngine{list: []imagetypes.Summary{
		{ID: "a", Created: 10, Size: 5, RepoTags: []string{"sandbox-agent:v1.0.0-h1"}, Labels: ours("h1", "v1.0.0")},
		{ID: "b", Created: 20, RepoTags: []string{"<none>:<none>"}, Labels: ours("h2", "")},
		{ID: "c", Created: 30, RepoTags: []string{"x:1", "sandbox-agent:dev-h3"}, Labels: ours("h3", "")},
		// Made of ours by a user, who may call it as he likes.
		{ID: "d", Created: 40, RepoTags: []string{"mine:1"}, Labels: ours("h1", "v1.0.0")},
		{ID: "e", Created: 50, RepoTags: []string{"sandbox-agent:mine-h1", "sandbox-agent:dev-h2", "sandbox-agent:dev"}, Labels: ours("h1", "v1.0.0")},
		{ID: "f", Created: 60, RepoTags: []string{"sandbox-agent:dev-h1", "sandbox-agent:v1.0.0-rc1-h1"}, Labels: ours("h1", "")},
		{ID: "g", Created: 70, RepoTags: []string{"sandbox-agent:dev-"}, Labels: ours("", "")},
	}}
	got, err := List(t.Context(), engine)
	if err != nil {
		t.Fatal(err)
	}
	want := []Built{
		{ID: "g", Tags: []string{"sandbox-agent:dev-"}, Created: time.Unix(70, 0)},
		{ID: "f", Name: "sandbox-agent:dev-h1", Tags: []string{"sandbox-agent:dev-h1", "sandbox-agent:v1.0.0-rc1-h1"}, Own: true, Hash: "h1", Created: time.Unix(60, 0)},
		{ID: "e", Tags: []string{"sandbox-agent:mine-h1", "sandbox-agent:dev-h2", "sandbox-agent:dev"}, Hash: "h1", Version: "v1.0.0", Created: time.Unix(50, 0)},
		{ID: "d", Tags: []string{"mine:1"}, Hash: "h1", Version: "v1.0.0", Created: time.Unix(40, 0)},
		{ID: "c", Name: "sandbox-agent:dev-h3", Tags: []string{"x:1", "sandbox-agent:dev-h3"}, Hash: "h3", Created: time.Unix(30, 0)},
		{ID: "b", Hash: "h2", Created: time.Unix(20, 0)},
		{ID: "a", Name: "sandbox-agent:v1.0.0-h1", Tags: []string{"sandbox-agent:v1.0.0-h1"}, Own: true, Hash: "h1", Version: "v1.0.0", Created: time.Unix(10, 0), Bytes: 5},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
