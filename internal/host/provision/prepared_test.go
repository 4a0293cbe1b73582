package provision

import (
	"context"
	"encoding/json"
	"io"
	"testing"
	"time"

	"github.com/docker/docker/api/types/build"
	imagetypes "github.com/docker/docker/api/types/image"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestPrepared: what projects want is installed once, by the program of the image, until the image is too old or another one is below it.
func TestPrepared(t *testing.T) {
	t.Parallel()
	image := func(id string) (r imagetypes.InspectResponse) {
		if err := json.Unmarshal([]byte(`{"Config": {"Entrypoint": ["/bin/inside", "init"], "User": "nobody"}}`), &r); err != nil {
			t.Fatal(err)
		}
		r.ID = id
		return r
	}
	var noCache bool
	var labels map[string]string
	engine := &fakeEngine{
		images: map[string]imagetypes.InspectResponse{"sha256:1": image("sha256:1"), "sha256:2": image("sha256:2")},
		build: func(_ context.Context, _ io.Reader, o build.ImageBuildOptions) (io.ReadCloser, error) {
			noCache, labels = o.NoCache, o.Labels
			return stream(out("Step 1/3 : FROM x\n")), nil
		},
	}
	o := Options{StateDir: t.TempDir()}
	needs := Needs{Packages: []string{"jq", "a b"}, Tools: map[string]string{"node": ">=20 <22", "go": "1.25"}}
	prepare := func(id string, builds int) workorder.Image {
		t.Helper()
		img, err := EnsurePrepared(t.Context(), engine, o, workorder.Image{ID: id}, needs)
		if err != nil || img.ID != "sha256:built" || engine.builds != builds {
			t.Errorf("%+v, %v; %d builds, want %d", img, err, engine.builds, builds)
		}
		return img
	}
	age := func(img workorder.Image, d time.Duration) {
		engine.images[img.Name] = imagetypes.InspectResponse{ID: img.ID, Created: time.Now().Add(-d).Format(time.RFC3339Nano)}
	}
	first := prepare("sha256:1", 1)
	if noCache || labels[labelPrepared] == "" || labels[labelFrom] != "sha256:1" || labels[labelHash] != "" {
		t.Errorf("without the cache %v, labels %v", noCache, labels)
	}
	age(first, PreparedAge/2)
	prepare("sha256:1", 1)
	if other := prepare("sha256:2", 2); other.Name == first.Name {
		t.Errorf("two images have the name %s", other.Name)
	}
	age(first, PreparedAge+time.Minute)
	prepare("sha256:1", 3)
	if !noCache {
		t.Error("what is too old came from the build's cache")
	}
	dockerfile, err := needs.dockerfile(engine.images["sha256:1"])
	want := `FROM sha256:1
USER root
RUN ["/bin/inside","prepare","packages","jq","a b"]
RUN ["/bin/inside","prepare","tools","go=1.25","node=\u003e=20 \u003c22"]
USER nobody
`
	if err != nil || string(dockerfile) != want {
		t.Errorf("%v\n%s", err, dockerfile)
	}
	// What is large is not kept, and what is old goes.
	old := map[string]string{labelHash: "", labelPrepared: "x"}
	engine.size, engine.list = maxPrepared+1, []imagetypes.Summary{
		{ID: "old", RepoTags: []string{"p:old"}, Labels: old, Created: time.Now().Add(-PreparedAge - time.Hour).Unix()},
		{ID: "new", RepoTags: []string{"p:new"}, Labels: old, Created: time.Now().Unix()},
		{ID: "mine", RepoTags: []string{"mine:1"}, Labels: map[string]string{labelHash: "h"}},
	}
	large, err := EnsurePrepared(t.Context(), engine, o, workorder.Image{ID: "sha256:2"}, Needs{Packages: []string{"texlive-full"}})
	if err == nil || large.ID != "" || len(engine.removed) != 3 || engine.removed[0] != "p:old" || engine.removed[1] != "old" {
		t.Errorf("%+v, %v; removed %q", large, err, engine.removed)
	}
	if _, err := EnsurePrepared(t.Context(), engine, o, workorder.Image{ID: "sha256:gone"}, needs); err == nil || engine.builds != 4 {
		t.Errorf("%v; %d builds", err, engine.builds)
	}
}
