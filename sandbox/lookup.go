package sandbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
)

// Get finds a sandbox by its name. If a named sandbox's container was removed, Get returns the sandbox from its record.
// Its first use recreates it with the work that Save has saved, without other files (see Sandbox.Recreated).
func (m *Manager) Get(ctx context.Context, name string) (*Sandbox, error) {
	in, err := m.creator.find(ctx, name)
	if errors.Is(err, ErrNotFound) {
		in, err = m.creator.remember(ctx, name, err)
	}
	if err != nil {
		return nil, err
	}
	begun := m.creator.incomplete(name)
	in.unborn = begun != nil && !errors.Is(begun, errRenewing)
	m.noteEnds(ctx, in.info())
	return &Sandbox{in}, nil
}

// GetRunning finds a running sandbox, as Get does. No method of the result starts the sandbox, even if it stops meanwhile.
func (m *Manager) GetRunning(ctx context.Context, name string) (*Sandbox, error) {
	in, err := m.creator.find(ctx, name)
	if err != nil {
		return nil, err
	}
	in.noAutoStart = true
	return &Sandbox{in}, nil
}

// checkName returns an ErrName unless the name is valid for a sandbox or snapshot.
func checkName(what, name string) error {
	if ValidName(name) {
		return nil
	}
	return &kindError{ErrName, &kindError{ErrInvalidSpec, fmt.Errorf(
		"%s name %.80q is invalid: use at most 63 letters a–z, digits, - and _, not - or _ first", what, name)}}
}

// lookup finds sandboxes in all runtimes and in the records.
type lookup struct {
	records
	all      backends
	allUsers bool
	creator  *creator // of the sandboxes that it finds
}

// find finds an existing sandbox of this state directory by its name, with Options.AllUsers also of others.
func (l *lookup) find(ctx context.Context, name string) (*instance, error) {
	own, other, err := l.byName(ctx, name)
	switch {
	case own != nil && other != nil && l.allUsers:
		return nil, &kindError{ErrOtherOwner, fmt.Errorf("sandbox %s: ambiguous: one of this state directory, runtime %s, and another: %w",
			name, own.spec.Runtime, l.belongs(other.owner))}
	case own != nil && own.damaged != nil:
		return nil, fmt.Errorf("sandbox %s: %w", name, own.damaged)
	case own != nil:
		return own, nil
	case other != nil && l.allUsers:
		return other, nil
	case err != nil:
		return nil, fmt.Errorf("sandbox %s: %w", name, err)
	case other != nil:
		return nil, &kindError{ErrNotFound, fmt.Errorf("sandbox %s: not found in this state directory: %w", name, l.belongs(other.owner))}
	}
	return nil, fmt.Errorf("sandbox %s: %w", name, ErrNotFound)
}

// byName finds the sandboxes of a name: that of this state directory and one of another; nil if missing. If a runtime
// does not answer, it returns an error and the sandboxes of the others.
func (l *lookup) byName(ctx context.Context, name string) (own, other *instance, err error) {
	if err := checkName("sandbox", name); err != nil {
		return nil, nil, err
	}
	err = l.visit(ctx, map[string]string{labelName: name}, func(in *instance, _ runtime.Instance) (more bool) {
		if in.foreign {
			other = in
			return true
		}
		own = in
		return l.allUsers
	})
	return own, other, err
}

// each visits all sandboxes of this state directory, with Options.AllUsers also of others, until visit returns false.
// If a runtime does not answer, it returns an error after it has visited the others.
func (l *lookup) each(ctx context.Context, visit func(*instance, runtime.Instance) (more bool)) error {
	return l.visit(ctx, map[string]string{labelName: ""}, func(in *instance, b runtime.Instance) (more bool) {
		if in.foreign && !l.allUsers {
			return true
		}
		return visit(in, b)
	})
}

// visit visits sandboxes with labels, of all state directories. It queries each engine once.
func (l *lookup) visit(ctx context.Context, labels map[string]string, visit func(*instance, runtime.Instance) (more bool)) error {
	owner, err := l.owner(false)
	errs := []error{err}
	var asked bool
	var onEngine []runtime.Instance
	for _, p := range l.all {
		r, err := p.open()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		boxes := onEngine
		if !p.onEngine() || !asked {
			if boxes, err = r.Instances(ctx, labels); err != nil {
				errs = append(errs, public(err))
			}
		}
		if p.onEngine() {
			asked, onEngine = true, boxes
		}
		for _, b := range boxes {
			if !p.onEngine() && b.Damaged == nil && !slices.Contains([]Runtime{RuntimeJail, RuntimeHost}, known(b).Runtime) {
				b.Damaged = fmt.Errorf("the record of sandbox %s has no valid spec", b.Name)
			}
			if b.Damaged != nil && !ValidName(b.Name) { // belongs to another program
				continue
			}
			// an instance of another runtime, or a container that a user created from a snapshot
			if b.Damaged == nil && known(b).Runtime != p.kind || b.Labels[labelName] == "" {
				continue
			}
			if !visit(l.known(p, r, b, owner), b) {
				return errors.Join(errs...)
			}
		}
	}
	return errors.Join(errs...)
}

// clash adds the owner of the name to an ErrExists.
func (l *lookup) clash(ctx context.Context, name string, err error) error {
	if !errors.Is(err, ErrExists) {
		return err
	}
	own, other, _ := l.byName(ctx, name) // otherwise the owner is unknown
	switch {
	case own != nil && own.damaged != nil:
		return errors.Join(err, own.damaged)
	case own == nil && other != nil:
		return fmt.Errorf("%w: %w", err, l.belongs(other.owner))
	}
	return err
}

// belongs returns an ErrOtherOwner that names the owner.
func (rs *records) belongs(owner string) error {
	if ownerDir(owner) == rs.state {
		return fmt.Errorf("%w that was at the same path, %s, and was moved or deleted", ErrOtherOwner, rs.state)
	}
	return fmt.Errorf("%w: %s", ErrOtherOwner, ownerDir(owner))
}

// ownerDir is the path of an owner's state directory at its first use.
func ownerDir(owner string) string {
	_, dir, _ := strings.Cut(owner, ":")
	return cmp.Or(dir, "an unknown one")
}

// List returns the sandboxes of this state directory, with Options.AllUsers also of others, by name. If a runtime does
// not answer, it returns an error and the sandboxes of the others.
func (m *Manager) List(ctx context.Context) ([]Info, error) {
	all := []Info{}
	err := m.creator.each(ctx, func(in *instance, _ runtime.Instance) (more bool) {
		i := in.info()
		if i.State == StateDamaged && i.Own {
			m.creator.recall(&i)
		}
		all = append(all, i)
		return true
	})
	rest, gerr := m.creator.gone(ctx, all, err)
	all = append(all, rest...)
	err = cmp.Or(err, gerr)
	slices.SortFunc(all, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	m.noteEnds(ctx, all...)
	return all, err
}

// State is a sandbox's state.
type State string

// States of a sandbox.
const (
	StateRunning State = "running"
	StatePaused  State = "paused"  // by its engine (`docker pause`): nothing answers until it is resumed there
	StateStopped State = "stopped" // the next use restarts it, with its files
	StateMissing State = "gone"    // its container was removed: the next use recreates it, without unsaved files
	// StateOtherEngine means that it is on another engine: see Info.Engine.
	StateOtherEngine State = "elsewhere"
	// StateUnknown means that its engine does not answer.
	StateUnknown State = "unknown"
	// StateDamaged means that its record cannot be read: see Info.Error.
	StateDamaged State = "damaged"
)

// Live reports whether the sandbox has processes, also paused ones.
func (s State) Live() bool { return s == StateRunning || s == StatePaused }

// Info describes a sandbox in a list.
type Info struct {
	Name    string    `json:"name"`
	State   State     `json:"state"`
	Runtime Runtime   `json:"runtime"`
	Image   string    `json:"image,omitempty"`
	Created time.Time `json:"created"`
	// Own reports that it belongs to this state directory. Others are listed only with Options.AllUsers.
	Own      bool   `json:"own"`
	Owner    string `json:"owner,omitempty"`    // the other state directory to which it belongs
	Error    string `json:"error,omitempty"`    // why its record cannot be read
	Snapshot string `json:"snapshot,omitempty"` // the snapshot it was made from, if not from the image
	// Omitted are files of the original that a new fork lacks: large ignored files.
	Omitted []string `json:"omitted,omitempty"`
	Engine  string   `json:"engine,omitempty"` // the engine of a sandbox in StateOtherEngine
	Spec    Spec     `json:"spec"`
}

func (l *lookup) known(p *backend, r runtime.SandboxRuntime, b runtime.Instance, owner string) *instance {
	in := &instance{
		c: l.creator, r: r, id: b.ID, running: b.Running(), paused: b.Paused(), ended: !b.Running(), exit: b.Status, created: b.Created,
		owner: b.Labels[labelOwner], from: b.Labels[labelImage], spec: known(b),
		// Jails are files of this state directory.
		foreign: p.onEngine() && b.Labels[labelOwner] != owner,
	}
	if b.Damaged != nil {
		in.damaged, in.spec.Runtime = &kindError{ErrDamaged, b.Damaged}, p.kind
		return in
	}
	l.networkNow(in, b)
	return in
}

// known decodes a sandbox's spec. One that does not decode is of another version: only its name is used.
func known(b runtime.Instance) Spec {
	var s Spec
	if err := json.Unmarshal([]byte(b.Labels[labelSpec]), &s); err != nil {
		s = Spec{}
	}
	s.Name = b.Labels[labelName]
	if s.Runtime == RuntimeAuto {
		s.Runtime = RuntimeContainer
	}
	return s
}
