package provision

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/build"
	"github.com/docker/docker/api/types/filters"
	imagetypes "github.com/docker/docker/api/types/image"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/internal/versionrange"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// PreparedRepository is the name of images with a project's packages and tools, without the tag.
const PreparedRepository = Repository + "/prepared"

// Labels of these images: the packages and tools for users and as JSON, and the id of their base.
const (
	labelPrepared = "sandbox-agent.image.prepared"
	labelNeeds    = "sandbox-agent.image.needs"
	labelFrom     = "sandbox-agent.image.from"
)

// Limits of prepared images.
const (
	PreparedAge     = 30 * 24 * time.Hour // after it the image is replaced, for security updates
	maxPrepared     = 8 << 30             // bytes of installed files
	prepareDeadline = 30 * time.Minute    // bounds the build and the wait for another process
	// keyBytes is the length of the key in an image's name. It must resist collisions: a repository chooses the content.
	keyBytes    = 16
	memoryShare = 2 // a build may use the machine's memory divided by this
)

// Needs are the packages and tools for a project's boxes.
type Needs struct {
	Packages []string          // of the distribution
	Tools    map[string]string // versions by name
}

// String returns the needs for users and for the image's label.
func (n Needs) String() string {
	return strings.Join(slices.Concat(slices.Sorted(slices.Values(n.Packages)), n.tools()), " ")
}

func (n Needs) tools() (all []string) {
	for _, name := range slices.Sorted(maps.Keys(n.Tools)) {
		all = append(all, name+"="+n.Tools[name])
	}
	return all
}

var atLeast = lazyregexp.New(`^>=\s*([0-9][0-9.]*)$`)

// met reports whether an image with other needs has all that these ask for: Go 1.24 or newer is 1.19 or newer, too.
func (n Needs) met(by Needs) bool {
	return slices.Equal(slices.Sorted(slices.Values(n.Packages)), slices.Sorted(slices.Values(by.Packages))) &&
		maps.EqualFunc(n.Tools, by.Tools, func(asked, has string) bool {
			a, h := atLeast.FindStringSubmatch(asked), atLeast.FindStringSubmatch(has)
			return asked == has || a != nil && h != nil && versionrange.Compare(h[1], a[1]) >= 0
		})
}

// unfinished labels intermediate images of a build, which stay on the engine if it fails. Without a hash they do not count as
// images that a user based on the default one.
const unfinished = `LABEL ` + labelHash + `="" ` + labelPrepared + `="unfinished"`

// dockerfile installs the needs with the program that does it in a box. Packages have a layer of their own, which stays in the
// build cache if a tool is unavailable. The build argument limits the age of cached layers: young counts from the last layer.
func (n Needs) dockerfile(from imagetypes.InspectResponse, now time.Time) ([]byte, error) {
	if from.Config == nil || len(from.Config.Entrypoint) == 0 {
		return nil, fmt.Errorf("image %s has no entrypoint", from.ID)
	}
	var b strings.Builder
	year, week := now.UTC().ISOWeek()
	fmt.Fprintf(&b, "FROM %s\n%s\nUSER root\nARG SANDBOX_AGENT_WEEK=%d-W%02d\n", from.ID, unfinished, year, week)
	for _, run := range [][]string{append([]string{"packages"}, n.Packages...), append([]string{"tools"}, n.tools()...)} {
		if len(run) == 1 {
			continue
		}
		argv, err := json.Marshal(append([]string{from.Config.Entrypoint[0], "prepare"}, run...))
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "RUN %s\n", argv)
	}
	if user := from.Config.User; user != "" {
		fmt.Fprintf(&b, "USER %s\n", user)
	}
	return []byte(b.String()), nil
}

// key identifies an image by its needs and its base. String is ambiguous: a package may have a version like a tool.
func (n Needs) key(from string) ([sha256.Size]byte, error) {
	b, err := json.Marshal(struct {
		From     string
		Packages []string
		Tools    map[string]string
	}{from, slices.Sorted(slices.Values(n.Packages)), n.Tools})
	return sha256.Sum256(b), err
}

// EnsurePrepared returns img with the needs installed. It builds a missing image, or one older than PreparedAge. After an error a
// box can use img and install the needs itself; the build is not repeated within retryAfter.
func EnsurePrepared(ctx context.Context, engine Engine, o Options, img workorder.Image, n Needs) (workorder.Image, error) {
	if o.Progress == nil {
		o.Progress = func(workorder.Event) {}
	}
	key, err := n.key(img.ID)
	if err != nil {
		return workorder.Image{}, err
	}
	p := preparer{
		builder: builder{engine: engine, name: fmt.Sprintf("%s:%x", PreparedRepository, key[:keyBytes]), o: o}, needs: n, from: img.ID,
		failed: failure(filepath.Join(o.StateDir, "prepared", fmt.Sprintf("%x", key[:keyBytes]))),
	}
	timed, cancel := context.WithTimeoutCause(ctx, prepareDeadline, fmt.Errorf("not installed within %s", prepareDeadline))
	defer cancel()
	if found, _ := p.look(timed); found.ID != "" {
		return found, nil
	}
	// A lock apart from other builds: a slow project does not delay others. The number of lock files is limited.
	unlock, _, err := lock(timed, o.StateDir, fmt.Sprintf("prepared-%x.lock", key[0]>>4), o.Progress)
	if err != nil {
		return workorder.Image{}, err
	}
	defer unlock()
	found, old := p.look(timed)
	if found.ID != "" { // built by the previous holder of the lock
		return found, nil
	}
	if err := p.failed.lately(time.Now()); err != nil {
		return workorder.Image{}, err
	}
	made, err := p.build(timed, old)
	if err != nil && ctx.Err() == nil { // not the end of a stopped run
		err = errors.Join(err, p.failed.note(err, time.Now()))
	}
	return made, err
}

type preparer struct {
	builder
	needs  Needs
	from   string // id of the base
	failed failure
}

// look finds the image, or another one that meets the needs; old reports that it exists and is too old.
func (p *preparer) look(ctx context.Context) (found workorder.Image, old bool) {
	r, err := p.engine.ImageInspect(ctx, p.name)
	switch {
	case err != nil:
		return p.other(ctx), false
	case !young(r.Created):
		return workorder.Image{}, true
	}
	return workorder.Image{Name: p.name, ID: r.ID}, false
}

// other finds an image of the same base that meets the needs.
func (p *preparer) other(ctx context.Context) workorder.Image {
	all, err := p.engine.ImageList(ctx, imagetypes.ListOptions{Filters: filters.NewArgs(filters.Arg("label", labelNeeds))})
	if err != nil {
		return workorder.Image{} // it is built
	}
	for _, img := range all {
		var has Needs
		fresh := time.Since(time.Unix(img.Created, 0)) < PreparedAge
		if len(img.RepoTags) > 0 && fresh && img.Labels[labelFrom] == p.from && json.Unmarshal([]byte(img.Labels[labelNeeds]), &has) == nil &&
			p.needs.met(has) {
			return workorder.Image{Name: img.RepoTags[0], ID: img.ID}
		}
	}
	return workorder.Image{}
}

func (p *preparer) build(ctx context.Context, noCache bool) (workorder.Image, error) {
	from, err := p.engine.ImageInspect(ctx, p.from)
	if err != nil {
		return workorder.Image{}, err
	}
	dockerfile, err := p.needs.dockerfile(from, time.Now())
	if err != nil {
		return workorder.Image{}, err
	}
	info, err := p.engine.Info(ctx)
	if err != nil {
		return workorder.Image{}, fmt.Errorf("read the engine's memory: %w", err)
	}
	needs, err := json.Marshal(p.needs)
	if err != nil {
		return workorder.Image{}, err
	}
	p.say("installing %s into an image for later sandboxes", p.needs)
	err = p.derive(ctx, dockerfile, build.ImageBuildOptions{
		BuildArgs: buildArgs(readHost(ctx).proxies, ""), NoCache: noCache, Memory: info.MemTotal / memoryShare,
		MemorySwap: info.MemTotal / memoryShare,
		Labels:     map[string]string{labelHash: "", labelPrepared: p.needs.String(), labelNeeds: string(needs), labelFrom: p.from},
	})
	if err != nil {
		return workorder.Image{}, err
	}
	removeOld(ctx, p.engine)
	made, err := p.engine.ImageInspect(ctx, p.name)
	if err != nil {
		return workorder.Image{}, err
	}
	if more := made.Size - from.Size; more > maxPrepared {
		_, err := p.engine.ImageRemove(ctx, p.name, imagetypes.RemoveOptions{PruneChildren: true})
		return workorder.Image{}, errors.Join(fmt.Errorf("%s would take %d MB of the engine's disk", p.needs, more/1e6), err)
	}
	return workorder.Image{Name: p.name, ID: made.ID}, nil
}

// removeOld removes prepared images that are too old. The engine keeps images with containers.
func removeOld(ctx context.Context, engine Engine) {
	all, err := list(ctx, engine)
	if err != nil {
		return // the next build tries again
	}
	for _, b := range all {
		if !b.old(time.Now()) {
			continue
		}
		for _, ref := range append(b.Tags, b.ID) {
			_, _ = engine.ImageRemove(ctx, ref, imagetypes.RemoveOptions{PruneChildren: true})
		}
	}
}

// old reports whether a prepared image is unusable. An untagged one is left from a build, or being built.
func (b *Built) old(now time.Time) bool {
	age := now.Sub(b.Created)
	return b.Prepared != "" && (age >= PreparedAge || len(b.Tags) == 0 && age >= prepareDeadline)
}

// young reports whether an image created then, in RFC 3339, is still used.
func young(created string) bool {
	at, err := time.Parse(time.RFC3339, created)
	return err == nil && time.Since(at) < PreparedAge
}
