// Package provision provides the images of sandboxes: it builds the default images, and images with a project's packages and tools.
package provision

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/build"
	imagetypes "github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/client"

	"github.com/sandbox-agent/sandbox-agent/image"
	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/programs"
	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Names of the images, without the tag.
const (
	Repository      = "sandbox-agent"       // of boxes
	SmallRepository = "sandbox-agent/small" // of environments and pools
)

const ( // labels of the images
	labelHash    = "sandbox-agent.image.hash"
	labelVersion = "sandbox-agent.image.version"
	labelParts   = "sandbox-agent.image.parts" // the parts of the default image, for users
)

const (
	askDeadline   = 15 * time.Second // for a request that the engine answers from memory
	buildDeadline = 40 * time.Minute // bounds one build: about 800 MB of packages on a slow connection
)

// Engine is the part of the Docker API for builds; docker.Client and *client.Client implement it.
type Engine interface {
	Info(ctx context.Context) (system.Info, error)
	ImageInspect(ctx context.Context, ref string, o ...client.ImageInspectOption) (imagetypes.InspectResponse, error)
	ImageList(ctx context.Context, o imagetypes.ListOptions) ([]imagetypes.Summary, error)
	ImageBuild(ctx context.Context, buildContext io.Reader, o build.ImageBuildOptions) (build.ImageBuildResponse, error)
	ImagePull(ctx context.Context, ref string, o imagetypes.PullOptions) (io.ReadCloser, error)
	ImageTag(ctx context.Context, ref, name string) error
	ImageRemove(ctx context.Context, ref string, o imagetypes.RemoveOptions) ([]imagetypes.DeleteResponse, error)
	ImageImport(ctx context.Context, src imagetypes.ImportSource, ref string, o imagetypes.ImportOptions) (io.ReadCloser, error)
}

// Options select the image.
type Options struct {
	Image   string   // the user's choice; "" means the default image
	Parts   []string // parts that the default image must have; it may have more, unless Exact is set
	Exact   bool
	Version string // of the CLI, part of the default image's name
	Arch    string // the engine's architecture as Go names it; "" means to ask the engine
	// Rebuild builds an existing default image, too, without the cache.
	Rebuild  bool
	Programs *programs.Finder // of the default image's program
	StateDir string           // for the locks of builds
	// Building, if non-nil, receives the name of an image once, before this process builds it.
	Building   func(name string)
	repository string                // the image's name without the tag
	releases   image.Releases        // set by tests; empty means the program's own
	Progress   func(workorder.Event) // receives the events of a build; nil drops them
}

// Ensure returns the image, and builds the default one if it is missing.
func Ensure(ctx context.Context, engine Engine, o Options) (workorder.Image, error) {
	if o.Progress == nil {
		o.Progress = func(workorder.Event) {}
	}
	o.Programs = cmp.Or(o.Programs, &programs.Finder{})
	if o.Image != "" && o.Rebuild {
		return workorder.Image{}, exiterr.New(workorder.ExitUsage,
			fmt.Errorf("image %s is not built by this program", o.Image), "omit the image to build the default one")
	}
	if o.Image != "" {
		return custom(ctx, engine, o.Image)
	}
	arch, err := architecture(ctx, engine, o.Arch)
	if err != nil {
		return workorder.Image{}, err
	}
	entrypoint, err := o.Programs.Entrypoint(ctx, arch, func(line string) {
		o.Progress(workorder.Event{Time: time.Now(), Type: workorder.EventOutput, Name: StepImage, Text: line})
	})
	if err != nil {
		return workorder.Image{}, exiterr.New(workorder.ExitBox, err, "or use an existing image: --image NAME")
	}
	o.repository = Repository
	for _, part := range o.Parts {
		if !slices.Contains(image.Parts(), part) {
			return workorder.Image{}, exiterr.New(workorder.ExitUsage, fmt.Errorf("part %q of the image unknown", part),
				"use "+strings.Join(image.Parts(), ", "))
		}
	}
	sets := image.Sets(o.Parts)
	if o.Exact {
		sets = sets[:1]
	}
	src := image.Box(entrypoint, sets[0]...)
	if !o.Rebuild {
		if img, err := existing(ctx, engine, o, src, sets); img.ID != "" || err != nil {
			return img, err
		}
		if img, err := released(ctx, engine, o, src, sets, arch); img.ID != "" || err != nil {
			return img, err
		}
	}
	return ensure(ctx, engine, o, src, arch)
}

// existing returns the image with the first set of parts, or else the one with all parts, or else the smallest with another set, of those
// that exist; a zero Image if there is none. It looks them up by name, because listing images takes half a second on a full engine.
func existing(ctx context.Context, engine Engine, o Options, src *image.Source, sets [][]string) (workorder.Image, error) {
	last := len(sets) - 1
	for _, set := range slices.Concat(sets[:1], sets[last:], sets[1:max(1, last)]) {
		name, err := o.name(src.With(set))
		if err != nil {
			return workorder.Image{}, err
		}
		if img, err := inspect(ctx, engine, name); !cerrdefs.IsNotFound(err) {
			return img, err
		}
	}
	return workorder.Image{}, nil
}

// name returns the name of the image of a source.
func (o *Options) name(src *image.Source) (string, error) {
	hash, err := src.Hash()
	return o.repository + ":" + tag(o.Version, hash), err
}

// EnsureSmall returns the small image, and builds it if it is missing.
func EnsureSmall(ctx context.Context, engine Engine, o Options) (workorder.Image, error) {
	if o.Progress == nil {
		o.Progress = func(workorder.Event) {}
	}
	arch, err := architecture(ctx, engine, o.Arch)
	if err != nil {
		return workorder.Image{}, err
	}
	src, err := image.Small()
	if err != nil {
		return workorder.Image{}, err
	}
	o.repository = SmallRepository
	return ensure(ctx, engine, o, src, arch)
}

func ensure(ctx context.Context, engine Engine, o Options, src *image.Source, arch string) (workorder.Image, error) {
	hash, err := src.Hash()
	if err != nil {
		return workorder.Image{}, err
	}
	name := o.repository + ":" + tag(o.Version, hash)
	if !o.Rebuild {
		if img, err := inspect(ctx, engine, name); !cerrdefs.IsNotFound(err) {
			return img, err
		}
	}
	unlock, waited, err := lock(ctx, o.StateDir, imageLock, o.Progress)
	if err != nil {
		return workorder.Image{}, err
	}
	defer unlock()
	// A process that waited finds the other one's image.
	if !o.Rebuild || waited {
		if img, err := inspect(ctx, engine, name); !cerrdefs.IsNotFound(err) {
			return img, err
		}
	}
	if o.Building != nil {
		o.Building(name)
	}
	b := builder{engine: engine, src: src, name: name, hash: hash, arch: arch, o: o}
	if err := b.run(ctx); err != nil {
		return workorder.Image{}, err
	}
	return inspect(ctx, engine, name)
}

// release matches the version of a release, but not Go's version of a commit between releases (a date and a commit id).
var release = lazyregexp.New(`^v\d+\.\d+\.\d+(-(alpha|beta|rc)[0-9.]*)?$`)

// tag returns the tag of an image. The content's hash identifies it; a release's version is for users.
func tag(version, hash string) string {
	if !release.MatchString(version) {
		version = "dev"
	}
	return version + "-" + hash
}

func custom(ctx context.Context, engine Engine, name string) (workorder.Image, error) {
	r, err := look(ctx, engine, name)
	if cerrdefs.IsNotFound(err) {
		return workorder.Image{}, exiterr.New(workorder.ExitBox, fmt.Errorf("image %s is not on the engine", name),
			fmt.Sprintf("a custom image is never built or pulled automatically: run `docker pull %s`, build it, or remove `image:` to use "+
				"the default image", name))
	}
	if err != nil {
		return workorder.Image{}, err
	}
	if c := r.Config; c != nil && !slices.ContainsFunc(strings.Fields(strings.Join(slices.Concat([]string(c.Entrypoint), []string(c.Cmd)),
		" ")), func(arg string) bool { return path.Base(arg) == path.Base(workorder.EntrypointIn) }) {
		// Another program would receive the order, with secrets.
		return workorder.Image{}, exiterr.New(workorder.ExitBox, fmt.Errorf("image %s does not start the guest program", name),
			"build it `FROM` the default image (see `sandbox-agent image build`); any image works with `sandbox-agent up --runtime container`")
	}
	return described(name, r), nil
}

func look(ctx context.Context, engine Engine, name string) (imagetypes.InspectResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, askDeadline)
	defer cancel()
	r, err := engine.ImageInspect(ctx, name)
	if err != nil {
		return r, fmt.Errorf("inspect image %s: %w", name, err)
	}
	return r, nil
}

func inspect(ctx context.Context, engine Engine, name string) (workorder.Image, error) {
	r, err := look(ctx, engine, name)
	if err != nil {
		return workorder.Image{}, err
	}
	return described(name, r), nil
}

func described(name string, r imagetypes.InspectResponse) workorder.Image {
	img := workorder.Image{Name: name, ID: r.ID}
	if len(r.RepoDigests) > 0 {
		img.Digest = r.RepoDigests[0]
	}
	return img
}

func architecture(ctx context.Context, engine Engine, given string) (string, error) {
	if given != "" {
		return given, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askDeadline)
	defer cancel()
	info, err := engine.Info(ctx)
	if err != nil {
		return "", fmt.Errorf("read the engine's architecture: %w", err)
	}
	switch info.Architecture {
	case "x86_64", "amd64":
		return "amd64", nil
	case "aarch64", "arm64":
		return "arm64", nil
	}
	return "", exiterr.New(workorder.ExitBox, fmt.Errorf("no image for the engine's architecture %q", info.Architecture),
		"use an engine on amd64 or arm64")
}

// Built is an image built by this program, or one based on it, which inherits the labels.
type Built struct {
	ID       string
	Name     string // the tag from this program; "" if it has none
	Tags     []string
	Own      bool   // it has tags, and that all are from this program
	Prepared string // has the packages and tools installed for projects; "" for other images
	From     string // for a prepared image, the id of its base
	Hash     string
	Version  string
	Parts    string // of the default image, for users
	Created  time.Time
	Bytes    int64
}

// ownTag reports whether a tag is the one from this program. Users may add other tags to Repository.
func ownTag(tag, hash string) bool {
	name, version, ok := strings.Cut(tag, ":")
	if version, ok2 := strings.CutSuffix(version, "-"+hash); ok && ok2 && hash != "" && (name == Repository || name == SmallRepository) {
		return version == "dev" || release.MatchString(version)
	}
	return false
}

// List returns the images built by this program and images based on them, newest first.
func List(ctx context.Context, engine Engine) ([]Built, error) {
	ctx, cancel := context.WithTimeout(ctx, askDeadline)
	defer cancel()
	return list(ctx, engine)
}
