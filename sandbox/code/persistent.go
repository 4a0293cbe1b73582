package code

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/sandbox/pool"
)

// keptSessions are the sessions that outlive this program, each in a sandbox of its own.
type keptSessions struct{ *launcher }

// Variables by which a kept session's sandbox is found.
const (
	variableSession = "SANDBOX_AGENT_SESSION="
	variableEnv     = "SANDBOX_AGENT_ENVIRONMENT="
)

// keptName returns the name of a kept session's sandbox.
func keptName(id string) string {
	if name := "run-" + id; sandbox.ValidName(name) {
		return name
	}
	h := sha256.Sum256([]byte(id))
	return "run-" + hex.EncodeToString(h[:8])
}

// kept returns the session and preset in the spec of a kept session's sandbox; "" for another sandbox.
func kept(s sandbox.Spec) (id, env string) {
	for _, kv := range s.Env {
		if v, ok := strings.CutPrefix(kv, variableSession); ok {
			id = v
		}
		if v, ok := strings.CutPrefix(kv, variableEnv); ok {
			env = v
		}
	}
	return id, env
}

func (k *keptSessions) run(ctx context.Context, p Preset, q Request) (Result, error) {
	return k.with(ctx, p, q.Session, func(sb *sandbox.Sandbox, i *sandbox.Session, lost bool) (Result, error) {
		res, err := runCell(ctx, p, i, q)
		res.Runtime, res.Created = sb.Spec().Runtime, i.Created()
		res.Lost = res.Created && lost
		if res.Ended {
			err = errors.Join(err, sb.Remove(context.WithoutCancel(ctx), sandbox.RemoveOptions{}))
		}
		return res, err
	})
}

// with calls use with a session's sandbox and interpreter, and retries with new ones if they had ended. lost reports
// that the sandbox existed before.
func (k *keptSessions) with(
	ctx context.Context, p Preset, id string, use func(sb *sandbox.Sandbox, i *sandbox.Session, lost bool) (Result, error),
) (Result, error) {
	const tries = 3 // it may end meanwhile
	lost := false
	for n := 0; ; n++ {
		sb, made, err := k.sandbox(ctx, p, id)
		if err != nil {
			return Result{}, err
		}
		p.Runtime = sb.Spec().Runtime
		i, err := sb.OpenSession(ctx, k.options(p))
		if err == nil {
			lost = k.note(id) && made || !made || lost
			var res Result
			if res, err = use(sb, i, lost); !errors.Is(err, sandbox.ErrNotFound) {
				return res, err
			}
		}
		if made { // it has no state yet
			err = errors.Join(err, sb.Remove(context.WithoutCancel(ctx), sandbox.RemoveOptions{}))
		}
		if made || n == tries || !errors.Is(err, sandbox.ErrNotFound) && !errors.Is(err, sandbox.ErrConnectionLost) {
			return Result{}, fmt.Errorf("preset %s: %w", p.Name, err)
		}
		if err := sb.Remove(ctx, sandbox.RemoveOptions{}); err != nil {
			return Result{}, err
		}
	}
}

// notedFor is how long a kept session is remembered.
const notedFor = 30 * 24 * time.Hour

// note records a kept session, and reports whether it was recorded already. If recording fails, a later call cannot
// report that the session was lost.
func (k *keptSessions) note(id string) (before bool) {
	if k.o.PersistedDir == "" || os.MkdirAll(k.o.PersistedDir, 0o700) != nil {
		return false
	}
	path := filepath.Join(k.o.PersistedDir, keptName(id))
	st, err := os.Stat(path)
	before = err == nil && time.Since(st.ModTime()) < notedFor
	if os.WriteFile(path, nil, 0o600) == nil {
		_ = os.Chtimes(path, time.Time{}, time.Now()) // the age of a note is the time since its last use
	}
	old, _ := os.ReadDir(k.o.PersistedDir)
	for _, f := range old {
		if i, err := f.Info(); err == nil && time.Since(i.ModTime()) >= notedFor {
			_ = os.Remove(filepath.Join(k.o.PersistedDir, f.Name()))
		}
	}
	return before
}

func (k *keptSessions) forgetNote(id string) {
	if k.o.PersistedDir != "" {
		_ = os.Remove(filepath.Join(k.o.PersistedDir, keptName(id)))
	}
}

// sandbox returns the sandbox of a session and creates it if it does not exist.
func (k *keptSessions) sandbox(ctx context.Context, e Preset, id string) (sb *sandbox.Sandbox, made bool, err error) {
	name := keptName(id)
	found := func() (*sandbox.Sandbox, error) {
		sb, err := k.find(ctx, name)
		if err != nil {
			return nil, err
		}
		if have, env := kept(sb.Spec()); have != id {
			return nil, fmt.Errorf("session %s: %w: sandbox %s is not a session", id, sandbox.ErrExists, name)
		} else if env != e.Name {
			return nil, &SessionPresetError{id, env}
		}
		return sb, nil
	}
	if sb, err := found(); !errors.Is(err, sandbox.ErrNotFound) {
		return sb, false, err
	}
	p, err := k.spec(ctx, e)
	if err != nil {
		return nil, false, err
	}
	s := p.Sandbox()
	s.Name, s.OwnerTimeout, s.IdleTimeout, s.TTL = name, sandbox.NoLimit, k.o.IdleTimeout, k.o.TTL
	s.Nested = false
	s.Env = append(s.Env, variableSession+id, variableEnv+e.Name)
	if s.Runtime == sandbox.RuntimeContainer {
		s.User, s.Dir, s.CreateDir = cmp.Or(s.User, "1000:1000"), sandbox.CloneDir, true
	}
	sb, err = pool.Create(ctx, k.creator(s), s, p.Limits)
	if errors.Is(err, sandbox.ErrExists) { // another program was faster
		sb, err = found()
		return sb, false, err
	}
	return sb, true, err
}

// find finds a kept session's sandbox. An engine that does not answer is skipped: jails do not need it.
func (k *keptSessions) find(ctx context.Context, name string) (*sandbox.Sandbox, error) {
	sb, err := k.m.Get(ctx, name)
	if errors.Is(err, sandbox.ErrUnavailable) {
		return nil, fmt.Errorf("sandbox %s: %w: %w", name, sandbox.ErrNotFound, err)
	}
	return sb, err
}

func (k *keptSessions) list(ctx context.Context) ([]SessionInfo, error) {
	list, err := k.m.List(ctx)
	all := []SessionInfo{}
	for _, i := range list {
		if id, env := kept(i.Spec); id != "" && i.State == sandbox.StateRunning {
			all = append(all, SessionInfo{ID: id, Preset: env, Runtime: i.Runtime, Started: i.Created, Sandbox: i.Name})
		}
	}
	return all, err
}

// end removes the sandbox of a session.
func (k *keptSessions) end(ctx context.Context, id string) error {
	sb, err := k.find(ctx, keptName(id))
	if err == nil {
		if have, _ := kept(sb.Spec()); have == id {
			k.forgetNote(id)
			return sb.Remove(ctx, sandbox.RemoveOptions{})
		}
	} else if !errors.Is(err, sandbox.ErrNotFound) {
		return err
	}
	return fmt.Errorf("session %.80q: %w", id, sandbox.ErrNotFound)
}
