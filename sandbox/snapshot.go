package sandbox

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/branch"
	"github.com/sandbox-agent/sandbox-agent/internal/host/registry"
	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
)

const (
	// labelSnapshotOf is the sandbox of a snapshot, or the fork of a fork's image.
	labelSnapshotOf = "sandbox-agent.snapshot.of"
	// snapshotRef and forkRef are prefixes of image references. The rest is a tag, in which, unlike in an image name,
	// all characters of a sandbox's name are valid.
	snapshotRef = "sandbox-agent-snapshot:"
	forkRef     = "sandbox-agent-fork:"
	// beforeRestore is the snapshot that a restore makes. A restore of that snapshot makes the second.
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
	Bytes   int64     `json:"bytes"` // in addition to its base image
	// Omitted are mounted directories, which are not part of the snapshot. It is set only for a new snapshot.
	Omitted []string `json:"omitted,omitempty"`

	id, ref, owner string
	spec           Spec
}

// Snapshot keeps the sandbox's root file system under a name, without mounts and volumes. It pauses the sandbox
// meanwhile.
func (sb *Sandbox) Snapshot(ctx context.Context, name string) (Snapshot, error) {
	if err := checkName("snapshot", name); err != nil {
		return Snapshot{}, err
	}
	if err := sb.ready(ctx); err != nil {
		return Snapshot{}, err
	}
	unlock, err := sb.m.lock(ctx, sb.spec.Name)
	if err != nil {
		return Snapshot{}, err
	}
	defer unlock()
	if _, err := sb.m.snapshot(ctx, sb.spec.Name, name); !errors.Is(err, ErrNotFound) {
		if err == nil {
			err = fmt.Errorf("snapshot %s of sandbox %s: %w", name, sb.spec.Name, ErrSnapshotExists)
		}
		return Snapshot{}, err
	}
	return sb.snapshot(ctx, name)
}

// snapshot makes a snapshot and replaces one of that name. The caller holds the sandbox's lock.
func (sb *Sandbox) snapshot(ctx context.Context, name string) (Snapshot, error) {
	s, err := sb.image(ctx, snapshotRef+sb.spec.Name+"."+name,
		map[string]string{runtime.LabelSnapshot: name, labelSnapshotOf: sb.spec.Name})
	if err != nil {
		return Snapshot{}, err
	}
	sb.note(registry.Event{Event: registry.EventSnapshot, Detail: name})
	return Snapshot{
		Sandbox: sb.spec.Name, Name: name, Created: s.Created, Bytes: s.Bytes, Omitted: s.Omitted,
		id: s.ID, ref: s.Ref, spec: sb.Spec(),
	}, nil
}

// image saves the sandbox's files as an image.
func (sb *Sandbox) image(ctx context.Context, ref string, labels map[string]string) (runtime.Snapshot, error) {
	at, id := sb.at()
	r, ok := at.(runtime.Snapshotter)
	if !ok {
		return runtime.Snapshot{}, fmt.Errorf("sandbox %s: %w", sb.spec.Name, &UnsupportedError{sb.spec.Runtime, []Capability{CapSnapshots}})
	}
	if id == "" {
		return runtime.Snapshot{}, fmt.Errorf("sandbox %s: %w: its files are gone", sb.spec.Name, ErrNotFound)
	}
	spec, err := json.Marshal(sb.Spec())
	if err != nil {
		return runtime.Snapshot{}, err
	}
	labels[labelSpec], labels[labelOwner] = string(spec), sb.owner
	s, err := r.Snapshot(ctx, id, ref, labels)
	if err != nil {
		return s, fmt.Errorf("sandbox %s: %w", sb.spec.Name, public(err))
	}
	return s, nil
}

// Snapshots lists the snapshots of this state directory by sandbox, oldest first, including those of removed sandboxes.
func (m *Manager) Snapshots(ctx context.Context) ([]Snapshot, error) {
	owner, err := m.owner(false)
	if err != nil {
		return nil, err
	}
	all, err := m.snapshots(ctx, "")
	return slices.DeleteFunc(all, func(s Snapshot) bool { return s.owner != owner }), err
}

// SnapshotsOf lists the snapshots of one sandbox.
func (m *Manager) SnapshotsOf(ctx context.Context, sandbox string) ([]Snapshot, error) {
	if err := checkName("sandbox", sandbox); err != nil {
		return nil, err
	}
	all, err := m.Snapshots(ctx)
	return slices.DeleteFunc(all, func(s Snapshot) bool { return s.Sandbox != sandbox }), err
}

// snapshots lists the snapshots of all state directories, or of one sandbox.
func (m *Manager) snapshots(ctx context.Context, sandbox string) ([]Snapshot, error) {
	all := []Snapshot{}
	for _, p := range m.all {
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
	slices.SortFunc(all, func(a, b Snapshot) int {
		if c := strings.Compare(a.Sandbox, b.Sandbox); c != 0 {
			return c
		}
		return a.Created.Compare(b.Created)
	})
	return all, nil
}

// snapshot finds a snapshot by its name. One of another state directory is an ErrOtherOwner.
func (m *Manager) snapshot(ctx context.Context, sandbox, name string) (Snapshot, error) {
	if err := errors.Join(checkName("sandbox", sandbox), checkName("snapshot", name)); err != nil {
		return Snapshot{}, err
	}
	owner, err := m.owner(false)
	if err != nil {
		return Snapshot{}, err
	}
	all, err := m.snapshots(ctx, sandbox)
	if err != nil {
		return Snapshot{}, err
	}
	what := fmt.Sprintf("snapshot %s of sandbox %s", name, sandbox)
	i := slices.IndexFunc(all, func(s Snapshot) bool { return s.Name == name })
	switch {
	case i < 0:
		return Snapshot{}, fmt.Errorf("%s: %w", what, ErrNotFound)
	case all[i].owner != owner: // the name is unique on the engine
		return Snapshot{}, fmt.Errorf("%s: %w", what, belongs(all[i].owner))
	}
	return all[i], nil
}

// RemoveSnapshot removes a snapshot. One that a sandbox uses is an ErrInUse.
func (m *Manager) RemoveSnapshot(ctx context.Context, sandbox, name string) error {
	s, err := m.snapshot(ctx, sandbox, name)
	if err != nil {
		return err
	}
	return m.removeImage(ctx, s.ref)
}

func (m *Manager) removeImage(ctx context.Context, ref string) error {
	for _, p := range m.all {
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
// recreated with the Spec that it had at the time of the snapshot.
func (m *Manager) Restore(ctx context.Context, sandbox, name string) (*Sandbox, error) {
	s, err := m.snapshot(ctx, sandbox, name)
	if err != nil {
		return nil, err
	}
	sb, err := m.find(ctx, sandbox)
	if errors.Is(err, ErrNotFound) {
		return m.revive(ctx, s)
	}
	if err != nil {
		return nil, err
	}
	kept := beforeRestore
	if name == kept {
		kept = beforeThat
	}
	earlier, err := m.snapshot(ctx, sandbox, kept)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return nil, err
	}
	unlock, err := m.lock(ctx, sandbox)
	if err != nil {
		return nil, err
	}
	_, err = sb.snapshot(ctx, kept)
	unlock()
	if err != nil {
		return nil, err
	}
	again, err := sb.replace(ctx, sb.Spec(), registry.Creation{Snapshot: s.ref, Event: registry.EventRestored, Detail: name})
	if err == nil && earlier.id != "" {
		_ = m.removeImage(ctx, earlier.id) // it lost its name, and often no sandbox uses it
	}
	return again, err
}

// revive recreates a removed sandbox from its snapshot.
func (m *Manager) revive(ctx context.Context, s Snapshot) (*Sandbox, error) {
	if s.spec.Name != s.Sandbox {
		return nil, fmt.Errorf("sandbox %s: %w, and its snapshot %s is of another version", s.Sandbox, ErrNotFound, s.Name)
	}
	unlock, err := m.lock(ctx, s.spec.Name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return m.of(ctx, s.spec, registry.Creation{Snapshot: s.ref, Event: registry.EventRestored, Detail: s.Name})
}

// Fork creates another sandbox with the same files and Spec. It has no endpoints. Both share mounted directories.
func (sb *Sandbox) Fork(ctx context.Context, name string) (*Sandbox, error) {
	s := sb.Spec()
	s.Name, s.Lifetime = name, LifetimeNamed
	if err := errors.Join(checkName("sandbox", name), sb.ready(ctx)); err != nil {
		return nil, err
	}
	unlock, err := sb.m.lock(ctx, name) // its image has its name, too
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := sb.m.abandon(ctx, name); err != nil {
		return nil, err
	}
	if err := sb.m.taken(ctx, sb.m.place(s.Runtime), name); err != nil {
		return nil, err
	}
	if repo := s.BranchOf(); repo != "" {
		if base := branch.New(sb.m.state).Of(sb.spec.Name, repo).ClonedAt(ctx); base != "" {
			if err := sb.m.cloned(ctx, s, base); err != nil {
				return nil, err
			}
		}
	}
	r, _ := sb.at()
	if err := sb.m.removeForks(ctx, r, name, sb.owner); err != nil { // leftovers of a killed fork
		return nil, err
	}
	// The image name is unique: the engine may still finish the commit of a killed command, which would take the name.
	img, err := sb.image(ctx, forkRef+name+"."+strings.ToLower(rand.Text()), map[string]string{
		runtime.LabelSnapshot: "",
		labelSnapshotOf:       name,
	})
	if err != nil {
		return nil, err
	}
	fork, err := sb.m.of(ctx, s, registry.Creation{Snapshot: img.Ref, Event: registry.EventForked, Detail: sb.spec.Name})
	if err != nil {
		clean, cancel := cleanup(ctx)
		defer cancel()
		return nil, errors.Join(err, sb.m.removeImage(clean, img.ID))
	}
	return fork, nil
}

// of creates a named sandbox from a complete spec and the creation's snapshot. The caller holds the lock of its name.
func (m *Manager) of(ctx context.Context, s Spec, c registry.Creation) (*Sandbox, error) {
	p := m.place(s.Runtime)
	if p == nil {
		return nil, fmt.Errorf("sandbox %s: runtime %s: %w", s.Name, s.Runtime, ErrUnsupported)
	}
	r, err := p.open()
	if err != nil {
		return nil, err
	}
	return m.createNamed(ctx, p, r, s, c)
}

// removeVolumes removes volumes of a sandbox whose container was removed without them. The caller holds the name's
// lock.
func (m *Manager) removeVolumes(ctx context.Context, k Runtime, name, owner string) error {
	if p := m.place(k); p == nil || !p.onEngine() {
		return nil
	}
	v, err := m.volumes()
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
func (m *Manager) volumes() (runtime.Volumes, error) {
	p := m.place(RuntimeContainer)
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
func (m *Manager) removeForks(ctx context.Context, r runtime.Stander, name, owner string) error {
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
