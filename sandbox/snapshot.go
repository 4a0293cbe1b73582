package sandbox

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
	"github.com/sandbox-agent/sandbox-agent/internal/host/sandboxstore"
)

const (
	labelSnapshotOf = "sandbox-agent.snapshot.of" // the sandbox of a snapshot, or the fork of a fork's image
	// snapshotRef and forkRef are prefixes of image references. The rest is a tag, in which, unlike in an image name,
	// all characters of a sandbox's name are valid.
	snapshotRef = "sandbox-agent-snapshot:"
	forkRef     = "sandbox-agent-fork:"
	// beforeRestore is the snapshot that a restore makes; a restore of that snapshot makes beforeThat.
	beforeRestore, beforeThat = "before-restore", "before-restore-2"
)

// Errors of snapshots on which a caller branches.
var (
	// ErrInUse means that a sandbox uses the snapshot.
	ErrInUse = errors.New("in use by a sandbox")
	// ErrSnapshotExists means that a snapshot of that name exists.
	ErrSnapshotExists = errors.New("a snapshot of that name exists")
)

// Snapshot holds a sandbox's files at one time. It outlives its sandbox.
type Snapshot struct {
	Sandbox string    `json:"sandbox"`
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
	Bytes   int64     `json:"bytes"` // in addition to its base image and to the commits of its branch
	// Commit has the clone's files, the first one of several. The branch's repository has the tag SANDBOX/NAME.
	Commit string `json:"commit,omitempty"`
	// Omitted are mounted directories, and large files of a clone, which are not part of the snapshot. It is set only for a new snapshot.
	Omitted []string `json:"omitted,omitempty"`

	id, ref, owner string
	spec           Spec
}

// Snapshot keeps the sandbox's root file system under a name, without mounts and volumes. It pauses the sandbox meanwhile. Of a box or jail
// with a clone it keeps the clone: its files as a commit with a tag, and its ignored files. A branch gets a tag in each case.
func (sb *Sandbox) Snapshot(ctx context.Context, name string) (Snapshot, error) {
	in := sb.in
	if err := checkName("snapshot", name); err != nil {
		return Snapshot{}, err
	}
	if err := in.ready(ctx); err != nil {
		return Snapshot{}, err
	}
	b := &Branch{in: in}
	clones := len(b.clones()) > 0
	if !hasImages(in) {
		if in.current().clonesLocal() {
			return b.snapshotClones(ctx, name, false)
		}
		return in.snapshot(ctx, name) // an error
	}
	if clones {
		if _, err := b.saveAll(ctx); err != nil {
			return Snapshot{}, err
		}
	}
	unlock, err := in.c.lock(ctx, in.spec.Name)
	if err != nil {
		return Snapshot{}, err
	}
	defer unlock()
	if _, err := in.c.snapshot(ctx, in.spec.Name, name); !errors.Is(err, ErrNotFound) {
		if err == nil {
			err = fmt.Errorf("snapshot %s of sandbox %s: %w", name, in.spec.Name, ErrSnapshotExists)
		}
		return Snapshot{}, err
	}
	if !clones {
		return in.snapshot(ctx, name)
	}
	commits, err := tagClones(ctx, b, name, false)
	if err != nil {
		return Snapshot{}, err
	}
	s, err := in.snapshot(ctx, name)
	if err != nil {
		return s, errors.Join(err, in.c.untag(ctx, in.spec.Name, name, b.clones()))
	}
	s.Commit = commits[0]
	return s, nil
}

// snapshot makes a snapshot and replaces one of that name. The caller holds the sandbox's lock.
func (in *instance) snapshot(ctx context.Context, name string) (Snapshot, error) {
	s, err := in.image(ctx, snapshotRef+in.spec.Name+"."+name,
		map[string]string{runtime.LabelSnapshot: name, labelSnapshotOf: in.spec.Name})
	if err != nil {
		return Snapshot{}, err
	}
	in.note(sandboxstore.Event{Event: sandboxstore.EventSnapshot, Detail: name})
	return Snapshot{
		Sandbox: in.spec.Name, Name: name, Created: s.Created, Bytes: s.Bytes, Omitted: s.Omitted,
		id: s.ID, ref: s.Ref, spec: in.current(),
	}, nil
}

func (in *instance) image(ctx context.Context, ref string, labels map[string]string) (runtime.Snapshot, error) {
	at, id := in.at()
	r, ok := at.(runtime.Snapshotter)
	if !ok {
		return runtime.Snapshot{}, fmt.Errorf("sandbox %s: without a clone of a repository: %w",
			in.spec.Name, &UnsupportedError{in.spec.Runtime, []Capability{CapSnapshots}})
	}
	if id == "" {
		return runtime.Snapshot{}, fmt.Errorf("sandbox %s: %w: its files are gone", in.spec.Name, ErrNotFound)
	}
	spec, err := json.Marshal(in.current())
	if err != nil {
		return runtime.Snapshot{}, err
	}
	labels[labelSpec], labels[labelOwner] = string(spec), in.owner
	s, err := r.Snapshot(ctx, id, ref, labels)
	if err != nil {
		return s, fmt.Errorf("sandbox %s: %w", in.spec.Name, public(err))
	}
	return s, nil
}

// Snapshots are the snapshots of this state directory, including those of removed sandboxes.
type Snapshots struct{ creator *creator }

// Snapshots returns access to the snapshots.
func (m *Manager) Snapshots() Snapshots { return Snapshots{m.creator} }

// List lists all snapshots by sandbox, oldest first.
func (s Snapshots) List(ctx context.Context) ([]Snapshot, error) {
	return s.creator.ownSnapshots(ctx, "")
}

// ListOf lists the snapshots of one sandbox.
func (s Snapshots) ListOf(ctx context.Context, sandbox string) ([]Snapshot, error) {
	if err := checkName("sandbox", sandbox); err != nil {
		return nil, err
	}
	return s.creator.ownSnapshots(ctx, sandbox)
}

// ownSnapshots lists the snapshots of this state directory, or of one sandbox.
func (l *lookup) ownSnapshots(ctx context.Context, sandbox string) ([]Snapshot, error) {
	owner, err := l.owner(false)
	if err != nil {
		return nil, err
	}
	all, err := l.snapshots(ctx, sandbox)
	all = slices.DeleteFunc(all, func(s Snapshot) bool { return s.owner != owner })
	for _, s := range l.cloneSnapshots(sandbox) {
		all = append(all, s.Snapshot)
		if errors.Is(err, ErrUnavailable) { // without an engine there are no others
			err = nil
		}
	}
	slices.SortStableFunc(all, func(a, b Snapshot) int {
		return cmp.Or(strings.Compare(a.Sandbox, b.Sandbox), a.Created.Compare(b.Created))
	})
	return all, err
}

// snapshots lists the snapshots of all state directories, or of one sandbox.
func (l *lookup) snapshots(ctx context.Context, sandbox string) ([]Snapshot, error) {
	all := []Snapshot{}
	for _, p := range l.all {
		r, err := p.open()
		if err != nil {
			return nil, err
		}
		s, ok := r.(runtime.Snapshotter)
		if !ok {
			continue
		}
		list, err := s.Snapshots(ctx, map[string]string{labelSnapshotOf: sandbox})
		if err != nil {
			return nil, public(err)
		}
		for _, i := range list {
			if !strings.HasPrefix(i.Ref, snapshotRef) { // a fork's image, or one that lost its name to another
				continue
			}
			one := Snapshot{
				Sandbox: i.Labels[labelSnapshotOf], Name: i.Labels[runtime.LabelSnapshot],
				Created: i.Created, Bytes: i.Bytes, id: i.ID, ref: i.Ref, owner: i.Labels[labelOwner],
			}
			if err := json.Unmarshal([]byte(i.Labels[labelSpec]), &one.spec); err != nil {
				one.spec = Spec{} // of another version: its files are still usable
			}
			all = append(all, one)
		}
	}
	return all, nil
}

// snapshot finds a snapshot by its name. One of another state directory is an ErrOtherOwner.
func (l *lookup) snapshot(ctx context.Context, sandbox, name string) (Snapshot, error) {
	if err := errors.Join(checkName("sandbox", sandbox), checkName("snapshot", name)); err != nil {
		return Snapshot{}, err
	}
	owner, err := l.owner(false)
	if err != nil {
		return Snapshot{}, err
	}
	all, err := l.snapshots(ctx, sandbox)
	if err != nil {
		return Snapshot{}, err
	}
	what := fmt.Sprintf("snapshot %s of sandbox %s", name, sandbox)
	i := slices.IndexFunc(all, func(s Snapshot) bool { return s.Name == name })
	switch {
	case i < 0:
		return Snapshot{}, fmt.Errorf("%s: %w", what, ErrNotFound)
	case all[i].owner != owner: // the name is unique on the engine
		return Snapshot{}, fmt.Errorf("%s: %w", what, l.belongs(all[i].owner))
	}
	return all[i], nil
}

// Remove removes a snapshot. One that a sandbox uses is an ErrInUse.
func (s Snapshots) Remove(ctx context.Context, sandbox, name string) error {
	cr := s.creator
	if of, err := cr.cloneSnapshot(sandbox, name); err == nil {
		err := errors.Join(cr.untag(ctx, sandbox, name, of.Spec.Clones()), os.RemoveAll(of.dir))
		_ = os.Remove(filepath.Dir(of.dir)) // fails if the sandbox has others
		return err
	}
	one, err := cr.snapshot(ctx, sandbox, name)
	if err != nil {
		return err
	}
	if err := cr.all.removeImage(ctx, one.ref); err != nil {
		return err
	}
	return cr.untag(ctx, sandbox, name, one.spec.Clones())
}

func (bs backends) removeImage(ctx context.Context, ref string) error {
	for _, p := range bs {
		r, err := p.open()
		if err != nil {
			return err
		}
		if s, ok := r.(runtime.Snapshotter); ok {
			return public(s.RemoveSnapshot(ctx, ref))
		}
	}
	return fmt.Errorf("snapshot %s: %w", ref, ErrNotFound)
}

// Restore recreates a sandbox from a snapshot, with its Spec and its current network policy. It first keeps the present
// files as the snapshot before-restore and replaces an earlier one of that name. Endpoints stay. A removed sandbox is
// recreated with the Spec that it had at the time of the snapshot. A box or jail goes on: the files of its clone are
// replaced, in a commit, and what cannot be committed is an error.
func (s Snapshots) Restore(ctx context.Context, sandbox, name string) (*Sandbox, error) {
	cr := s.creator
	kept := beforeRestore
	if name == kept {
		kept = beforeThat
	}
	if of, err := cr.cloneSnapshot(sandbox, name); err == nil {
		return cr.restoreClones(ctx, of, kept)
	}
	from, err := cr.snapshot(ctx, sandbox, name)
	if err != nil {
		return nil, err
	}
	in, err := cr.find(ctx, sandbox)
	if errors.Is(err, ErrNotFound) {
		return cr.revive(ctx, from)
	}
	if err != nil {
		return nil, err
	}
	earlier, err := cr.snapshot(ctx, sandbox, kept)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return nil, err
	}
	unlock, err := cr.lock(ctx, sandbox)
	if err != nil {
		return nil, err
	}
	_, err = in.snapshot(ctx, kept)
	unlock()
	if err != nil {
		return nil, err
	}
	again, err := in.replace(ctx, in.current(), sandboxstore.Creation{Snapshot: from.ref, Event: sandboxstore.EventRestored, Detail: name})
	if err == nil && earlier.id != "" {
		_ = cr.all.removeImage(ctx, earlier.id) // its name was replaced; fails if a sandbox uses it
	}
	return again, err
}

func (cr *creator) revive(ctx context.Context, s Snapshot) (*Sandbox, error) {
	if s.spec.Name != s.Sandbox {
		return nil, fmt.Errorf("sandbox %s: %w, and its snapshot %s is of another version", s.Sandbox, ErrNotFound, s.Name)
	}
	unlock, err := cr.lock(ctx, s.spec.Name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	in, err := cr.of(ctx, s.spec, sandboxstore.Creation{Snapshot: s.ref, Event: sandboxstore.EventRestored, Detail: s.Name})
	if err != nil {
		return nil, err
	}
	return &Sandbox{in}, nil
}

// Fork creates another sandbox with the same files and Spec. It has no endpoints. Both share mounted directories. Of a box or
// jail with a clone, the fork has the clone with its commits and ignored files, and none of the other files.
func (sb *Sandbox) Fork(ctx context.Context, name string) (*Sandbox, error) {
	in := sb.in
	s := in.current()
	s.Name, s.Lifetime = name, LifetimeNamed
	if err := errors.Join(checkName("sandbox", name), in.ready(ctx)); err != nil {
		return nil, err
	}
	unlock, err := in.c.lock(ctx, name) // the fork's image has this name, too
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := in.c.abandon(ctx, name); err != nil {
		return nil, err
	}
	if err := in.c.taken(ctx, in.c.all.find(s.Runtime), name); err != nil {
		return nil, err
	}
	if s.clonesLocal() && !hasImages(in) {
		fork, err := (&Branch{in: in}).forkClones(ctx, s)
		if err != nil {
			return nil, err
		}
		return &Sandbox{fork}, nil
	}
	for _, c := range s.Clones() {
		if base := in.c.branch(in.spec.Name, c.Repo).ClonedAt(ctx); base != "" {
			if err := in.c.cloned(ctx, name, c.Repo, base); err != nil {
				return nil, err
			}
		}
	}
	r, _ := in.at()
	if err := removeForks(ctx, r, name, in.owner); err != nil { // leftovers of a killed fork
		return nil, err
	}
	// The image name is unique: the engine may still finish the commit of a killed command, which would take the name.
	img, err := in.image(ctx, forkRef+name+"."+strings.ToLower(rand.Text()), map[string]string{
		runtime.LabelSnapshot: "",
		labelSnapshotOf:       name,
	})
	if err != nil {
		return nil, err
	}
	fork, err := in.c.of(ctx, s, sandboxstore.Creation{Snapshot: img.Ref, Event: sandboxstore.EventForked, Detail: in.spec.Name})
	if err != nil {
		clean, cancel := cleanup(ctx)
		defer cancel()
		return nil, errors.Join(err, in.c.all.removeImage(clean, img.ID))
	}
	return &Sandbox{fork}, nil
}

// of creates a named sandbox from a complete spec and the creation's snapshot. The caller holds the lock of its name.
func (cr *creator) of(ctx context.Context, s Spec, c sandboxstore.Creation) (*instance, error) {
	p := cr.all.find(s.Runtime)
	if p == nil {
		return nil, fmt.Errorf("sandbox %s: runtime %s: %w", s.Name, s.Runtime, ErrUnsupported)
	}
	r, err := p.open()
	if err != nil {
		return nil, err
	}
	return cr.createNamed(ctx, p, r, s, c)
}

// removeVolumes removes volumes of a sandbox whose container was removed without them. The caller holds the name's lock.
func (bs backends) removeVolumes(ctx context.Context, k Runtime, name, owner string) error {
	if p := bs.find(k); p == nil || !p.onEngine() {
		return nil
	}
	v, err := bs.volumes()
	if err != nil || v == nil {
		return err
	}
	list, err := v.Volumes(ctx, map[string]string{labelName: name, labelOwner: owner})
	errs := []error{public(err)}
	for _, left := range list {
		errs = append(errs, public(v.RemoveVolume(ctx, left.Name)))
	}
	return errors.Join(errs...)
}

// volumes returns the engine's volumes; nil if there is no engine.
func (bs backends) volumes() (runtime.Volumes, error) {
	p := bs.find(RuntimeContainer)
	if p == nil {
		return nil, nil
	}
	r, err := p.open()
	if err != nil {
		return nil, err
	}
	v, _ := r.(runtime.Volumes)
	return v, nil
}

// removeForks removes the images of forks of a name that no sandbox uses any longer. The caller holds the name's lock.
func removeForks(ctx context.Context, r runtime.SandboxRuntime, name, owner string) error {
	s, ok := r.(runtime.Snapshotter)
	if !ok {
		return nil
	}
	list, err := s.Snapshots(ctx, map[string]string{labelSnapshotOf: name, labelOwner: owner})
	if err != nil {
		return public(err)
	}
	var errs []error
	for _, i := range list {
		if !strings.HasPrefix(i.Ref, forkRef) {
			continue
		}
		if err := s.RemoveSnapshot(ctx, i.Ref); err != nil && !errors.Is(err, runtime.ErrNotFound) && !errors.Is(err, runtime.ErrInUse) {
			errs = append(errs, public(err))
		}
	}
	return errors.Join(errs...)
}
