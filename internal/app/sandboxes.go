package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/host/sandboxstore"
	"github.com/sandbox-agent/sandbox-agent/internal/host/taskstore"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// Sandboxes are the use cases of standalone sandboxes.
type Sandboxes struct{ *Env }

// Sandboxes returns the use cases of standalone sandboxes.
func (e *Env) Sandboxes() Sandboxes { return Sandboxes{e} }

// Get finds a standalone sandbox, to be used until done is called.
func (b Sandboxes) Get(ctx context.Context, name string) (sb *sandbox.Sandbox, done func(), err error) {
	return b.get(ctx, kindSandbox, name)
}

func (b Sandboxes) get(ctx context.Context, kind, name string) (sb *sandbox.Sandbox, done func(), err error) {
	m, err := b.Manager(false)
	if err != nil {
		return nil, nil, err
	}
	if sb, err = m.Get(ctx, name); err != nil {
		return nil, nil, errors.Join(unknownOf(ctx, b.Env, kind, name, err), m.Close())
	}
	b.Endpoints().Ensure(ctx, name)
	return sb, func() { _, _ = sb.Close(), m.Close() }, nil
}

// Either finds a sandbox for a command that takes tasks as well: nil if the name is a task's. A task's id can be given in
// small letters; if there is a sandbox of that name, it is meant.
func (b Sandboxes) Either(ctx context.Context, name string) (sb *sandbox.Sandbox, done func(), err error) {
	if !sandbox.ValidName(name) {
		return nil, nil, nil
	}
	sb, done, err = b.get(ctx, kindEither, name)
	if err == nil {
		return sb, done, nil
	}
	st, serr := b.Store()
	if serr != nil {
		return nil, nil, serr
	}
	if _, terr := st.Find(name); !errors.Is(terr, taskstore.ErrNotFound) {
		return nil, nil, nil // the search for tasks reports its own error
	}
	return nil, nil, err
}

// RelayCommand is the hidden command of this program that serves the connection to a sandbox.
const RelayCommand = "serve-relay"

// ToRun is Either for a command that is to run in the sandbox. It uses the connection of the sandbox's relay, and starts a
// missing relay when done is called, for the next command.
func (b Sandboxes) ToRun(ctx context.Context, name string) (sb *sandbox.Sandbox, done func(), err error) {
	m, err := b.Manager(false)
	if err != nil {
		return nil, nil, err
	}
	if sb = m.GetRelayed(ctx, name); sb != nil {
		b.Endpoints().Ensure(ctx, name)
		return sb, func() { _, _ = sb.Close(), m.Close() }, nil
	}
	_ = m.Close() // it was not used
	sb, leave, err := b.Either(ctx, name)
	if err != nil || sb == nil {
		return nil, nil, err
	}
	return sb, func() {
		leave()
		startRelay(ctx, b, sb)
	}, nil
}

// startRelay starts a process that outlives this one. Without a relay, commands only take longer.
func startRelay(ctx context.Context, b Sandboxes, sb *sandbox.Sandbox) {
	dir, err := b.StateDir()
	if err != nil || b.Executable == nil || !sb.NeedsRelay(ctx) {
		return
	}
	exe, err := b.Executable()
	if err == nil {
		_, err = proc.Start(context.WithoutCancel(ctx), proc.Spec{
			Argv: []string{exe, RelayCommand, sb.Name()}, Env: append(os.Environ(), "SANDBOX_AGENT_STATE_DIR="+dir), Dir: "/",
		})
	}
	if err != nil {
		b.Log().Debug("start the relay", "sandbox", sb.Name(), "err", err)
	}
}

// ServeRelay serves the connection to a sandbox until the sandbox or ctx ends, or nothing uses it for a while.
func ServeRelay(ctx context.Context, b Sandboxes, name string) error {
	m, err := b.Manager(false)
	if err != nil {
		return err
	}
	defer m.Close()
	return m.ServeRelay(ctx, name)
}

// HistoryEvent is an event in the history of a sandbox.
type HistoryEvent = sandboxstore.Event

// EventExecuted is the HistoryEvent.Event of a command.
const EventExecuted = sandboxstore.EventExecuted

// History returns what happened to a sandbox, oldest first, also to one that was removed.
func (b Sandboxes) History(ctx context.Context, name string) ([]HistoryEvent, error) {
	s, err := b.Registry()
	if err != nil {
		return nil, err
	}
	if m, err := b.Manager(false); err == nil { // to look at it is to note its end; the history of a removed one remains
		_, _ = m.Get(ctx, name)
		_ = m.Close()
	}
	return s.History(name)
}

// WarnOfRepositories names the repositories that a sandbox has left in directories of this machine, once it has ended.
func (b Sandboxes) WarnOfRepositories(ctx context.Context, sb *sandbox.Sandbox) (paths []string) {
	const most = 10
	paths, all := sb.Spec().NewRepositories(ctx)
	if len(paths) == 0 {
		return nil
	}
	var shown, remove []string
	for _, path := range paths[:min(len(paths), most)] {
		shown = append(shown, text.Printable(path))
		if text.Printable(path) == path {
			remove = append(remove, path)
		}
	}
	what := strings.Join(shown, ", ")
	if more := len(paths) - most; more > 0 {
		what += fmt.Sprintf(" and %d more", more)
	}
	if !all {
		what += " (the search ended early: there may be more)"
	}
	what = fmt.Sprintf("directories that sandbox %s could write to have new repositories: %s. Git on this machine runs programs by "+
		"their settings: look at them, or remove them, before you use git in these directories", sb.Name(), what)
	if len(remove) > 0 {
		what += ": `" + text.Shell(append([]string{"rm", "-rf", "--"}, remove...)...) + "` removes them"
	}
	b.Warn(what)
	return paths
}

// NoteRecreated says that a sandbox was recreated, if it was.
func (b Sandboxes) NoteRecreated(sb *sandbox.Sandbox) {
	if note := RecreatedNote(sb); note != "" {
		b.Say(note)
	}
}

// RecreatedNote returns the remark that a sandbox was recreated; "" if it was not.
func RecreatedNote(sb *sandbox.Sandbox) string {
	if !sb.Recreated() {
		return ""
	}
	lost := "files that were not on mounts are gone"
	if sb.Spec().BranchOf() != "" {
		lost = "commits are there again, other files are not"
	}
	return fmt.Sprintf("note: sandbox %s was gone and was recreated from its spec: %s", sb.Name(), lost)
}
