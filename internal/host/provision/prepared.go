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
	// keyBytes of a key name an image: a repository chooses what it asks for, and must not be able to choose another's name.
	keyBytes = 16
	// memoryShare is the part of the machine's memory that installing may take: boxes run beside it.
	memoryShare = 2
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

func (n Needs) tools() (all []string) {
	for _, name := range slices.Sorted(maps.Keys(n.Tools)) {
		all = append(all, name+"="+n.Tools[name])
	}
	return all
}

// unfinished labels what a build has made of an image so far, which stays on the engine where it fails. Without a hash it is not taken for
// an image that a user made from the default one.
const unfinished = `LABEL ` + labelHash + `="" ` + labelPrepared + `="unfinished"`

// dockerfile installs them with the program that would do it in a box. Packages are a layer of their own, which
// stays in the engine's build cache where a tool is unavailable. The build argument keeps it from another week's image: young counts
// from the last layer, and the tool may be had only weeks later.
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

// key tells images apart: by what is installed, and into which image. A package may have a version like a tool, so that String does not.
func (n Needs) key(from string) ([sha256.Size]byte, error) {
	b, err := json.Marshal(struct {
		From     string
		Packages []string
		Tools    map[string]string
	}{from, slices.Sorted(slices.Values(n.Packages)), n.Tools})
	return sha256.Sum256(b), err
}

// EnsurePrepared returns an image that is img with the needs installed, and builds it if there is none that is younger than PreparedAge.
// After an error a box can still be made of img, which then installs them itself; for retryAfter no build is tried again.
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
	timed, cancel := context.WithTimeoutCause(ctx, prepareDeadline, fmt.Errorf("they were not installed within %s", prepareDeadline))
	defer cancel()
	if found, _ := p.look(timed); found.ID != "" {
		return found, nil
	}
	// Not the lock of all builds: a project that takes long holds no other one up. The locks are few, so that their files do not pile up.
	unlock, _, err := lock(timed, o.StateDir, fmt.Sprintf("prepared-%x.lock", key[0]>>4), o.Progress)
	if err != nil {
		return workorder.Image{}, err
	}
	defer unlock()
	found, old := p.look(timed)
	if found.ID != "" { // of the process that had the lock
		return found, nil
	}
	if err := p.failed.lately(time.Now()); err != nil {
		return workorder.Image{}, err
	}
	made, err := p.build(timed, old)
	if err != nil && ctx.Err() == nil { // a run that was stopped says nothing of the image
		err = errors.Join(err, p.failed.note(err, time.Now()))
	}
	return made, err
}

type preparer struct {
	builder
	needs  Needs
	from   string // id of the image below
	failed failure
}

// look finds the image; old reports that there is one which is too old to be used.
func (p *preparer) look(ctx context.Context) (found workorder.Image, old bool) {
	r, err := p.engine.ImageInspect(ctx, p.name)
	if err != nil || !young(r.Created) {
		return workorder.Image{}, err == nil
	}
	return workorder.Image{Name: p.name, ID: r.ID}, false
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
		return workorder.Image{}, fmt.Errorf("ask the engine for its memory: %w", err)
	}
	p.say("installing %s into an image, which later sandboxes have, too", p.needs)
	err = p.derive(ctx, dockerfile, build.ImageBuildOptions{
		BuildArgs: pointers(readHost(ctx).proxies), NoCache: noCache, Memory: info.MemTotal / memoryShare,
		MemorySwap: info.MemTotal / memoryShare,
		Labels:     map[string]string{labelHash: "", labelPrepared: p.needs.String(), labelFrom: p.from},
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

// removeOld removes prepared images that are too old to be used. The engine keeps those that a container is made of.
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

// old reports that a prepared image is of no use any more. One without a tag is what a build left, or is making now.
func (b *Built) old(now time.Time) bool {
	age := now.Sub(b.Created)
	return b.Prepared != "" && (age >= PreparedAge || len(b.Tags) == 0 && age >= prepareDeadline)
}

// young reports whether an image that was created then, in RFC 3339, is still used.
func young(created string) bool {
	at, err := time.Parse(time.RFC3339, created)
	return err == nil && time.Since(at) < PreparedAge
}
