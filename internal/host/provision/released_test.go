package provision

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/docker/docker/api/types/build"
	imagetypes "github.com/docker/docker/api/types/image"

	"github.com/sandbox-agent/sandbox-agent/image"
	"github.com/sandbox-agent/sandbox-agent/internal/host/programs"
)

// TestReleased: the smallest released image with the parts is pulled by digest, and built if its registry does not answer.
func TestReleased(t *testing.T) {
	t.Parallel()
	program := []byte("ELF")
	hash := func(parts ...string) string {
		t.Helper()
		h, err := image.Box(image.Of(program), parts...).Hash()
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	releases := image.Releases{Repository: "registry.example/box", Digests: map[string]string{
		hash(image.Parts()...): "sha256:all", hash("codex", "browser"): "sha256:two",
	}}
	for name, c := range map[string]struct {
		parts  []string
		pull   error
		pulled string // "" for a build
	}{
		"exactly":       {[]string{"codex", "browser"}, nil, "sha256:two"},
		"with more":     {[]string{"codex"}, nil, "sha256:two"},
		"with all":      {[]string{"opencode"}, nil, "sha256:all"},
		"no registry":   {[]string{"codex"}, errors.New("no such host"), ""},
		"a denied pull": {[]string{"codex"}, errors.New("denied: requested access to the resource is denied"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var froms []string
			engine := &fakeEngine{
				images: map[string]imagetypes.InspectResponse{registryBase: {ID: "base"}},
				build: func(_ context.Context, _ io.Reader, o build.ImageBuildOptions) (io.ReadCloser, error) {
					froms = append(froms, *o.BuildArgs["BASE"])
					return io.NopCloser(strings.NewReader("{}")), nil
				},
			}
			pulls := 0
			engine.pull = func(context.Context) (io.ReadCloser, error) {
				pulls++
				for _, digest := range releases.Digests {
					engine.images[releases.Repository+"@"+digest] = imagetypes.InspectResponse{ID: digest}
				}
				return io.NopCloser(strings.NewReader(`{"status":"Pulling"}`)), c.pull
			}
			o := Options{
				Parts: c.parts, Arch: "amd64", StateDir: t.TempDir(), releases: releases,
				Programs: &programs.Finder{Given: fstest.MapFS{"entrypoint-linux-amd64": {Data: program}}},
			}
			img, err := Ensure(t.Context(), engine, o)
			if err != nil || pulls != 1 {
				t.Fatalf("%+v, %v after %d pulls", img, err, pulls)
			}
			// This machine may have certificates that the image has to have, which is then based on the released one.
			based := c.pulled == "" && slices.Equal(froms, []string{registryBase}) ||
				c.pulled != "" && (img.ID == c.pulled || slices.Equal(froms, []string{releases.Repository + "@" + c.pulled}))
			if !based || c.pulled == "" && img.Name != Repository+":dev-"+hash(c.parts...) {
				t.Errorf("%+v, built from %v", img, froms)
			}
			if again, err := Ensure(t.Context(), engine, o); err != nil || c.pulled == "" && (again != img || pulls != 1) {
				t.Errorf("the second time %+v, %v after %d pulls", again, err, pulls)
			}
		})
	}
}
