package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/host/gc"
	"github.com/sandbox-agent/sandbox-agent/internal/host/lockfile"
	"github.com/sandbox-agent/sandbox-agent/internal/host/statedir"
	"github.com/sandbox-agent/sandbox-agent/sandbox/pool"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// slotPoll is the pause between two looks for a free slot.
const slotPoll = time.Second

// slots enforces the limit of what runs at the same time, over all commands of a state directory. What runs has a slot, and so has
// what a living command starts: it holds the lock of a file in dir.
type slots struct {
	statedir.Limits
	file    string // with the limit
	dir     string
	running func(ctx context.Context) map[string]bool // by kind and name
	note    func(line string)
}

// fullError means that the limit is reached. A pool at the limit of its machine is full.
type fullError struct {
	limits statedir.Limits
	by     []string
}

func (e *fullError) Error() string {
	text := fmt.Sprintf("limit of %d running sandboxes reached: %s", e.limits.Sandboxes, strings.Join(e.by, ", "))
	if e.limits.Wait > 0 {
		text += fmt.Sprintf("; none ended within %s", e.limits.Wait)
	}
	return text
}

func (e *fullError) Is(target error) bool { return target == pool.ErrPoolFull }

// takeSlot takes a slot for "task ID", "standby NAME" or "sandbox NAME" if the settings have a limit.
func takeSlot(ctx context.Context, e *Env, who string) (release func(), err error) {
	set, err := statedir.LoadSettings(e.Getenv)
	if err == nil && set.Limits.Sandboxes == 0 {
		return func() {}, nil
	}
	var state string
	if err == nil {
		state, err = e.StateDir()
	}
	if err != nil {
		return nil, exiterr.New(workorder.ExitInvalid, err, "")
	}
	s := slots{Limits: set.Limits, file: set.File, dir: filepath.Join(state, "slots"), note: e.Say}
	s.running = func(ctx context.Context) map[string]bool { return running(ctx, e) }
	return s.take(ctx, who)
}

// running lists what runs. An engine that does not answer has nothing to count.
func running(ctx context.Context, e *Env) map[string]bool {
	ctx, cancel := context.WithTimeout(ctx, EngineWait)
	defer cancel()
	all := map[string]bool{}
	if m, err := e.Manager(false); err == nil {
		defer m.Close()
		list, _ := m.List(ctx)
		for _, i := range list {
			all["sandbox "+i.Name] = i.State.Live()
		}
	}
	st, err := e.Store()
	if err != nil || e.OpenEngine == nil {
		return all
	}
	be, err := e.OpenEngine()
	if err != nil {
		return all
	}
	boxes, _ := gc.OwnInstances(ctx, be.Engine, st, nil)
	for _, b := range boxes {
		if who := "task " + b.Labels[workorder.LabelTask]; b.Waits() {
			all["standby "+b.Name] = b.Running()
		} else {
			all[who] = all[who] || b.Running()
		}
	}
	return all
}

// take takes a slot, and waits for one as long as the limits say.
func (s slots) take(ctx context.Context, who string) (release func(), err error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the directory of slots: %w", err)
	}
	until, cancel := context.WithTimeout(ctx, s.Wait)
	defer cancel()
	for said := false; ; said = true {
		release, by, err := s.try(ctx, who)
		if err != nil || release != nil {
			return release, err
		}
		if !said && s.Wait > 0 {
			s.note(fmt.Sprintf("note: %s waits up to %s: %v", who, s.Wait, &fullError{statedir.Limits{Sandboxes: s.Sandboxes}, by}))
		}
		select {
		case <-until.Done():
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			return nil, exiterr.New(workorder.ExitBox, &fullError{s.Limits, by},
				"stop one with: sandbox-agent stop NAME; or raise limits.sandboxes, or set limits.wait, in "+s.file)
		case <-time.After(slotPoll):
		}
	}
}

// try takes a slot; it returns a nil release, and what has the slots, if none is free.
func (s slots) try(ctx context.Context, who string) (release func(), by []string, err error) {
	const soon = 30 * time.Second // of a command that looks at what runs
	once, cancel := context.WithTimeoutCause(ctx, soon, errors.New("it does not end"))
	defer cancel()
	turn, err := lockfile.Take(once, filepath.Join(s.dir, ".lock"))
	if err != nil {
		return nil, nil, err
	}
	defer turn.Release()
	starting, err := s.starting(ctx)
	if err != nil {
		return nil, nil, err
	}
	all := s.running(ctx)
	maps.DeleteFunc(all, func(_ string, runs bool) bool { return !runs })
	for _, name := range starting {
		all[name] = true
	}
	if all[who] { // it has one already
		return func() {}, nil, nil
	}
	if len(all) >= s.Sandboxes {
		return nil, slices.Sorted(maps.Keys(all)), nil
	}
	own, err := lockfile.Take(once, filepath.Join(s.dir, who))
	if err != nil {
		return nil, nil, err
	}
	return own.Remove, nil, nil
}

// starting lists what living commands start.
func (s slots) starting(ctx context.Context) (all []string, err error) {
	files, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("read the directory of slots: %w", err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel() // one try
	for _, f := range files {
		if f.Name() == ".lock" {
			continue
		}
		if l, err := lockfile.Take(ended, filepath.Join(s.dir, f.Name())); err == nil {
			l.Remove() // of a killed command
		} else {
			all = append(all, f.Name())
		}
	}
	return all, nil
}
