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

// Get finds a sandbox by its name. If somebody else has removed a named sandbox's container, Get returns what is kept of the sandbox: its first use recreates it, with
// the work that Save has saved and without other files (see Sandbox.Renewed).
func (m *Manager) Get(ctx context.Context, name string) (*Sandbox, error) {
	sb, err := m.find(ctx, name)
	if errors.Is(err, ErrNotFound) {
		return m.remember(ctx, name, err)
	}
	return sb, err
}

// Peek finds a running sandbox, as Get does. No method of the result starts the sandbox, also if it ends meanwhile.
func (m *Manager) Peek(ctx context.Context, name string) (*Sandbox, error) {
	sb, err := m.find(ctx, name)
	if err == nil {
		sb.asItIs = true
	}
	return sb, err
}

// checkName returns an ErrName unless a sandbox or a snapshot can have the name.
func checkName(what, name string) error {
	if ValidName(name) {
		return nil
	}
	return &kindError{ErrName, fmt.Errorf("%s name %.80q is %w: use letters a–z, digits, - and _, a letter or digit first, 63 at most", what, name, ErrSpec)}
}

// find finds an existing sandbox by its name: of this state directory, and with Options.AllUsers also of others.
func (m *Manager) find(ctx context.Context, name string) (*Sandbox, error) {
	own, other, err := m.byName(ctx, name)
	switch {
	case own != nil && other != nil && m.allUsers:
		return nil, &kindError{ErrOtherOwner, fmt.Errorf("sandbox %s: there are two: one of this state directory, of runtime %s, and %w", name, own.spec.Runtime, belongs(other.owner))}
	case own != nil && own.damaged != nil:
		return nil, fmt.Errorf("sandbox %s: %w", name, own.damaged)
	case own != nil:
		return own, nil
	case other != nil && m.allUsers:
		return other, nil
	case err != nil:
		return nil, fmt.Errorf("sandbox %s: %w", name, err)
	case other != nil:
		return nil, &kindError{ErrNotFound, fmt.Errorf("sandbox %s: not found here: %w", name, belongs(other.owner))}
	}
	return nil, fmt.Errorf("sandbox %s: %w", name, ErrNotFound)
}

// byName finds the sandboxes of a name: that of this state directory, and one of another; nil where there is none. With the error of a runtime that does not answer it
// has found those of the others.
func (m *Manager) byName(ctx context.Context, name string) (own, other *Sandbox, err error) {
	if err := checkName("sandbox", name); err != nil {
		return nil, nil, err
	}
	err = m.visit(ctx, map[string]string{labelName: name}, func(sb *Sandbox, _ runtime.Box) (more bool) {
		if sb.foreign {
			other = sb
			return true
		}
		own = sb
		return m.allUsers
	})
	return own, other, err
}

// each visits all sandboxes of this state directory, and with Options.AllUsers those of others, until visit returns false. With the error of a runtime that does not
// answer it has visited those of the others.
func (m *Manager) each(ctx context.Context, visit func(*Sandbox, runtime.Box) (more bool)) error {
	return m.visit(ctx, map[string]string{labelName: ""}, func(sb *Sandbox, b runtime.Box) (more bool) {
		if sb.foreign && !m.allUsers {
			return true
		}
		return visit(sb, b)
	})
}

// visit visits sandboxes with labels, of all state directories. An engine is asked once, for all runtimes that are on it.
func (m *Manager) visit(ctx context.Context, labels map[string]string, visit func(*Sandbox, runtime.Box) (more bool)) error {
	owner, err := m.owner(false)
	errs := []error{err}
	var asked bool
	var onEngine []runtime.Box
	for _, p := range m.all {
		r, err := p.open()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		boxes := onEngine
		if !p.onEngine() || !asked {
			if boxes, err = r.Boxes(ctx, labels); err != nil {
				errs = append(errs, public(err))
			}
		}
		if p.onEngine() {
			asked, onEngine = true, boxes
		}
		for _, b := range boxes {
			if !p.onEngine() && b.Damaged == nil && !local(known(b).Runtime) {
				b.Damaged = fmt.Errorf("the record of sandbox %s has no valid spec", b.Name)
			}
			if b.Damaged != nil && !ValidName(b.Name) { // another program's
				continue
			}
			if b.Damaged == nil && known(b).Runtime != p.kind || b.Labels[labelName] == "" { // of another runtime, or a container that somebody made of a snapshot
				continue
			}
			if !visit(m.known(p, r, b, owner), b) {
				return errors.Join(errs...)
			}
		}
	}
	return errors.Join(errs...)
}

// local reports whether a runtime's sandboxes are processes of this machine.
func local(k Kind) bool { return k == KindJail || k == KindHost }

// clash says more of an error of a new sandbox whose name is taken: whose it is.
func (m *Manager) clash(ctx context.Context, name string, err error) error {
	if !errors.Is(err, ErrExists) {
		return err
	}
	own, other, _ := m.byName(ctx, name) // else there is no more to say
	switch {
	case own != nil && own.damaged != nil:
		return errors.Join(err, own.damaged)
	case own == nil && other != nil:
		return fmt.Errorf("%w: %w", err, belongs(other.owner))
	}
	return err
}

// foreign reports whether an instance was made with another state directory than the owner's. Jails are files of this one.
func (p *place) foreign(b runtime.Box, owner string) bool {
	return p.onEngine() && b.Labels[labelOwner] != owner
}

// belongs is the ErrOtherOwner of what an owner has made.
func belongs(owner string) error { return fmt.Errorf("%w: %s", ErrOtherOwner, ownerDir(owner)) }

// ownerDir is the state directory of an owner, as it was called when it was first used.
func ownerDir(owner string) string {
	_, dir, _ := strings.Cut(owner, ":")
	return cmp.Or(dir, "an unknown one")
}

// usable returns an ErrOtherOwner for a sandbox that Options.AllUsers has found.
func (sb *Sandbox) usable() error {
	if !sb.foreign {
		return nil
	}
	return fmt.Errorf("sandbox %s: %w", sb.spec.Name, belongs(sb.owner))
}

// List returns the sandboxes of this state directory, and with Options.AllUsers those of others, by name. With the error of a runtime that does not answer, it returns
// those of the others.
func (m *Manager) List(ctx context.Context) ([]Info, error) {
	all := []Info{}
	err := m.each(ctx, func(sb *Sandbox, _ runtime.Box) (more bool) {
		i := sb.Info()
		if i.State == StateDamaged && i.Own {
			m.recall(&i)
		}
		all = append(all, i)
		return true
	})
	rest, gerr := m.gone(ctx, all, err)
	all = append(all, rest...)
	if err == nil {
		err = gerr
	}
	slices.SortFunc(all, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return all, err
}

// State is whether a sandbox can be used as it is.
type State string

// The states of sandboxes.
const (
	StateRunning State = "running"
	StateStopped State = "stopped" // the next use starts it again, with its files
	StateGone    State = "gone"    // somebody removed what it was: the next use makes it anew, without the files that it had
	// StateElsewhere is on another engine than this one: see Info.Engine.
	StateElsewhere State = "elsewhere"
	// StateUnknown is of one whose engine does not answer.
	StateUnknown State = "unknown"
	// StateDamaged is of one whose record cannot be read: see Info.Error.
	StateDamaged State = "damaged"
)

// Info is a row of List.
type Info struct {
	Name    string    `json:"name"`
	State   State     `json:"state"`
	Runtime Kind      `json:"runtime"`
	Image   string    `json:"image,omitempty"`
	Created time.Time `json:"created"`
	// Own reports that it was made with this state directory. Others are listed with Options.AllUsers alone.
	Own bool `json:"own"`
	// Owner is the other state directory that it was made with.
	Owner string `json:"owner,omitempty"`
	// Error is why its record cannot be read.
	Error string `json:"error,omitempty"`
	// Snapshot is what it was made of, where that is not the image.
	Snapshot string `json:"snapshot,omitempty"`
	// Engine is where one is that is elsewhere.
	Engine string `json:"engine,omitempty"`
	Spec   Spec   `json:"spec"`
}

// known makes a sandbox of what a runtime has.
func (m *Manager) known(p *place, r runtime.Stander, b runtime.Box, owner string) *Sandbox {
	sb := &Sandbox{
		m: m, r: r, id: b.ID, running: b.Live(), ended: !b.Live(), created: b.Created, owner: b.Labels[labelOwner], from: b.Labels[labelImage], spec: known(b),
		foreign: p.foreign(b, owner),
	}
	if b.Damaged != nil {
		sb.damaged, sb.spec.Runtime = &kindError{ErrDamaged, b.Damaged}, p.kind
		return sb
	}
	m.networkNow(sb, b)
	return sb
}

// known is the spec of a sandbox. One that does not decode is of another version: its name is all that is needed.
func known(b runtime.Box) Spec {
	var s Spec
	if err := json.Unmarshal([]byte(b.Labels[labelSpec]), &s); err != nil {
		s = Spec{}
	}
	s.Name = b.Labels[labelName]
	if s.Runtime == Auto {
		s.Runtime = KindContainer
	}
	return s
}
