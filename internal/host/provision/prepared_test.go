package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/docker/docker/api/types/build"
	imagetypes "github.com/docker/docker/api/types/image"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// TestPrepared: what projects want is installed once, by the program of the image, until the image is too old or another one is below it.
func TestPrepared(t *testing.T) {
	t.Parallel()
	var noCache bool
	var labels map[string]string
	var memory int64
	engine := &fakeEngine{
		images: map[string]imagetypes.InspectResponse{"sha256:1": boxImage(t, "sha256:1"), "sha256:2": boxImage(t, "sha256:2")},
		build: func(_ context.Context, _ io.Reader, o build.ImageBuildOptions) (io.ReadCloser, error) {
			noCache, labels, memory = o.NoCache, o.Labels, o.Memory
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
	dockerfile, err := needs.dockerfile(engine.images["sha256:1"], time.Date(2027, time.January, 3, 0, 0, 0, 0, time.UTC))
	want := `FROM sha256:1
LABEL sandbox-agent.image.hash="" sandbox-agent.image.prepared="unfinished"
USER root
ARG SANDBOX_AGENT_WEEK=2026-W53
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
		{ID: "left", Labels: old, Created: time.Now().Add(-prepareDeadline - time.Hour).Unix()},
		{ID: "being made", Labels: old, Created: time.Now().Unix()},
		{ID: "mine", RepoTags: []string{"mine:1"}, Labels: map[string]string{labelHash: "h"}},
	}
	texlive := Needs{Packages: []string{"texlive-full"}}
	large, err := EnsurePrepared(t.Context(), engine, o, workorder.Image{ID: "sha256:2"}, texlive)
	key, kerr := texlive.key("sha256:2")
	if kerr != nil {
		t.Fatal(kerr)
	}
	gone := fmt.Sprintf("%s:%x", PreparedRepository, key[:keyBytes])
	if err == nil || large.ID != "" || !slices.Equal(engine.removed, []string{"left", "p:old", "old", gone}) {
		t.Errorf("%+v, %v; removed %q", large, err, engine.removed)
	}
	if _, err := EnsurePrepared(t.Context(), engine, o, workorder.Image{ID: "sha256:gone"}, needs); err == nil || engine.builds != 4 {
		t.Errorf("%v; %d builds", err, engine.builds)
	}
	if memory <= 0 || memory >= machineMemory {
		t.Errorf("installing may take %d bytes", memory)
	}
}

// TestPreparedShared: an image for a newer least version serves a project that asks for an older one, and no other.
func TestPreparedShared(t *testing.T) {
	t.Parallel()
	made := func(needs string, age time.Duration) imagetypes.Summary {
		return imagetypes.Summary{
			ID: "sha256:made", RepoTags: []string{"made"}, Created: time.Now().Add(-age).Unix(),
			Labels: map[string]string{labelNeeds: needs, labelFrom: "sha256:1"},
		}
	}
	go124 := `{"Packages":["jq"],"Tools":{"go":">=1.24"}}`
	for name, row := range map[string]struct {
		needs  Needs
		image  imagetypes.Summary
		shared bool
	}{
		"older":          {Needs{[]string{"jq"}, map[string]string{"go": ">=1.19"}}, made(go124, 0), true},
		"newer":          {Needs{[]string{"jq"}, map[string]string{"go": ">=1.25"}}, made(go124, 0), false},
		"exactly":        {Needs{[]string{"jq"}, map[string]string{"go": "1.19"}}, made(go124, 0), false},
		"other packages": {Needs{nil, map[string]string{"go": ">=1.19"}}, made(go124, 0), false},
		"another tool":   {Needs{[]string{"jq"}, map[string]string{"go": ">=1.19", "node": "22"}}, made(go124, 0), false},
		"old":            {Needs{[]string{"jq"}, map[string]string{"go": ">=1.19"}}, made(go124, PreparedAge), false},
		"a package that looks like a tool": {
			Needs{nil, map[string]string{"go": ">=1.19"}}, made(`{"Packages":["go=>=1.24"]}`, 0), false,
		},
	} {
		engine := &fakeEngine{
			images: map[string]imagetypes.InspectResponse{"sha256:1": boxImage(t, "sha256:1")}, list: []imagetypes.Summary{row.image},
			build: func(context.Context, io.Reader, build.ImageBuildOptions) (io.ReadCloser, error) {
				return stream(out("Step 1/3 : FROM x\n")), nil
			},
		}
		img, err := EnsurePrepared(t.Context(), engine, Options{StateDir: t.TempDir()}, workorder.Image{ID: "sha256:1"}, row.needs)
		if err != nil || (img.ID == "sha256:made") != row.shared || (engine.builds == 0) != row.shared {
			t.Errorf("%s: %+v, %v, %d builds", name, img, err, engine.builds)
		}
	}
}

// TestPreparedFails: an image that cannot be made is not tried by every task, but once in a while; a run that is stopped says nothing of it.
func TestPreparedFails(t *testing.T) {
	t.Parallel()
	var stop context.CancelFunc
	engine := &fakeEngine{
		images: map[string]imagetypes.InspectResponse{"sha256:1": boxImage(t, "sha256:1")},
		build: func(context.Context, io.Reader, build.ImageBuildOptions) (io.ReadCloser, error) {
			if stop != nil {
				stop()
			}
			return nil, errors.New("no such package")
		},
	}
	o := Options{StateDir: t.TempDir()}
	try := func(ctx context.Context, n Needs, builds int) {
		t.Helper()
		if img, err := EnsurePrepared(ctx, engine, o, workorder.Image{ID: "sha256:1"}, n); err == nil || img.ID != "" || engine.builds != builds {
			t.Errorf("%+v, %v; %d builds, want %d", img, err, engine.builds, builds)
		}
	}
	broken, other := Needs{Packages: []string{"go=1.25"}}, Needs{Tools: map[string]string{"go": "1.25"}}
	var stopped context.Context
	stopped, stop = context.WithCancel(t.Context())
	try(stopped, broken, 1)
	stop = nil
	try(t.Context(), broken, 2)
	try(t.Context(), broken, 2)
	try(t.Context(), other, 3) // another image, although it reads the same
	kept := filepath.Join(o.StateDir, "prepared")
	files, err := os.ReadDir(kept)
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	past := time.Now().Add(-retryAfter)
	for _, f := range files {
		if err := os.Chtimes(filepath.Join(kept, f.Name()), past, past); err != nil {
			t.Fatal(err)
		}
	}
	try(t.Context(), broken, 4)
	if files, err := os.ReadDir(kept); err != nil || len(files) != 1 {
		t.Error(files, err)
	}
}

// boxImage is an image that a box can be made of.
func boxImage(t *testing.T, id string) (r imagetypes.InspectResponse) {
	t.Helper()
	if err := json.Unmarshal([]byte(`{"Config": {"Entrypoint": ["/bin/inside", "init"], "User": "nobody"}}`), &r); err != nil {
		t.Fatal(err)
	}
	r.ID = id
	return r
}
