package provision

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/build"
	imagetypes "github.com/docker/docker/api/types/image"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// PreparedRepository is the name of the images that have a project's packages and tools, without the tag.
const PreparedRepository = Repository + "/prepared"

// Labels of these images: what was installed, and the id of the image that it was installed into.
const (
	labelPrepared = "sandbox-agent.image.prepared"
	labelFrom     = "sandbox-agent.image.from"
)

const (
	// PreparedAge is how long such an image is used: packages get security updates.
	PreparedAge = 30 * 24 * time.Hour
	// maxPrepared bounds what is installed into one, in bytes: it stays on the engine's disk, and a repository may have asked for it.
	maxPrepared = 8 << 30
	// prepareDeadline bounds all of it, also the wait for another process: the budgets of the two steps that it saves a box.
	prepareDeadline = 30 * time.Minute
)

// Needs are what a project wants to be installed in its boxes.
type Needs struct {
	Packages []string          // of the distribution
	Tools    map[string]string // versions by name
}

// String is for people and for the image's label.
func (n Needs) String() string {
	return strings.Join(slices.Concat(slices.Sorted(slices.Values(n.Packages)), n.tools()), " ")
}

// tools are sorted, as NAME=VERSIONS.
func (n Needs) tools() (all []string) {
	for _, name := range slices.Sorted(maps.Keys(n.Tools)) {
		all = append(all, name+"="+n.Tools[name])
	}
	return all
}

// dockerfile installs them with the program that would do it in a box. Packages are a layer of their own, which
// stays in the engine's build cache where a tool cannot be had.
func (n Needs) dockerfile(from imagetypes.InspectResponse) ([]byte, error) {
	if from.Config == nil || len(from.Config.Entrypoint) == 0 {
		return nil, fmt.Errorf("image %s has no entrypoint", from.ID)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "FROM %s\nUSER root\n", from.ID)
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

// EnsurePrepared returns an image that is img with the needs installed, and builds it if there is none that is younger than PreparedAge.
// After an error a box can still be made of img, which then installs them itself.
func EnsurePrepared(ctx context.Context, engine Engine, o Options, img workorder.Image, n Needs) (workorder.Image, error) {
	if o.Progress == nil {
		o.Progress = func(workorder.Event) {}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, prepareDeadline, fmt.Errorf("they were not installed within %s", prepareDeadline))
	defer cancel()
	key := sha256.Sum256([]byte(img.ID + "\n" + n.String()))
	name := fmt.Sprintf("%s:%x", PreparedRepository, key[:6])
	if found, err := engine.ImageInspect(ctx, name); err == nil && young(found.Created) {
		return workorder.Image{Name: name, ID: found.ID}, nil
	}
	unlock, _, err := lock(ctx, o.StateDir, o.Progress)
	if err != nil {
		return workorder.Image{}, err
	}
	defer unlock()
	old, err := engine.ImageInspect(ctx, name)
	if err == nil && young(old.Created) { // of the process that had the lock
		return workorder.Image{Name: name, ID: old.ID}, nil
	}
	from, err := engine.ImageInspect(ctx, img.ID)
	if err != nil {
		return workorder.Image{}, err
	}
	dockerfile, err := n.dockerfile(from)
	if err != nil {
		return workorder.Image{}, err
	}
	b := builder{engine: engine, name: name, o: o}
	b.say("installing %s into an image, which later sandboxes have, too", n)
	err = b.derive(ctx, dockerfile, build.ImageBuildOptions{
		BuildArgs: pointers(readHost(ctx).proxies), NoCache: old.ID != "",
		// Without a hash it is not taken for an image that a user made from the default one.
		Labels: map[string]string{labelHash: "", labelPrepared: n.String(), labelFrom: img.ID},
	})
	if err != nil {
		return workorder.Image{}, err
	}
	removeOld(ctx, engine)
	made, err := engine.ImageInspect(ctx, name)
	if err != nil {
		return workorder.Image{}, err
	}
	if more := made.Size - from.Size; more > maxPrepared {
		_, err := engine.ImageRemove(ctx, name, imagetypes.RemoveOptions{PruneChildren: true})
		return workorder.Image{}, errors.Join(fmt.Errorf("%s would take %d MB of the engine's disk", n, more/1e6), err)
	}
	return workorder.Image{Name: name, ID: made.ID}, nil
}

// removeOld removes prepared images that are too old to be used. The engine keeps those that a container is made of.
func removeOld(ctx context.Context, engine Engine) {
	all, err := list(ctx, engine)
	if err != nil {
		return // the next build tries again
	}
	for _, b := range all {
		if b.Prepared == "" || len(b.Tags) > 0 && time.Since(b.Created) < PreparedAge {
			continue
		}
		for _, ref := range append(b.Tags, b.ID) {
			_, _ = engine.ImageRemove(ctx, ref, imagetypes.RemoveOptions{PruneChildren: true})
		}
	}
}

// young reports whether an image that was created then, in RFC 3339, is still used.
func young(created string) bool {
	at, err := time.Parse(time.RFC3339, created)
	return err == nil && time.Since(at) < PreparedAge
}
