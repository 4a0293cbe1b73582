package code

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// interpreter is the ID of the only interpreter in a session's sandbox.
const interpreter = "main"

// key identifies a session of this program.
type key struct{ client, id string }

type session struct {
	key
	preset string
	lock   chan struct{} // its holder uses the fields below
	end    func() error
	lost   bool // an earlier session of this key ended, not yet reported

	mu      sync.Mutex
	in      *sandbox.Session // set once by the holder of the turn
	kind    sandbox.Runtime
	started time.Time
	used    time.Time
	users   int
}

// SessionInfo describes a session.
type SessionInfo struct {
	ID      string          `json:"id"`
	Preset  string          `json:"env"`
	Runtime sandbox.Runtime `json:"runtime"`
	Started time.Time       `json:"started"`
	Used    time.Time       `json:"used,omitzero"`
	Busy    bool            `json:"busy"`
	Sandbox string          `json:"sandbox,omitempty"` // the name of a kept session's sandbox
}

func (r *Runner) inSession(ctx context.Context, p Preset, q Request) (Result, error) {
	if p.Driver == "" || p.Program != "" {
		return Result{}, fmt.Errorf("preset %s: %w", p.Name, ErrNoSessions)
	}
	if r.o.PersistSessions {
		return r.kept.run(ctx, p, q)
	}
	for {
		s, err := r.take(ctx, key{q.Client, q.Session}, p.Name)
		if err != nil {
			return Result{}, err
		}
		res, again, err := r.cell(ctx, s, p, q)
		if !again {
			return res, err
		}
	}
}

// take returns the session of a key, or a new one that is not open yet.
func (r *Runner) take(ctx context.Context, k key, env string) (*session, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stop == nil {
		sweep, cancel := context.WithCancel(context.WithoutCancel(ctx))
		r.stop = cancel
		r.work.Go(func() { r.sweep(sweep) })
	}
	s := r.sessions[k]
	if s == nil {
		now := time.Now()
		s = &session{key: k, preset: env, lock: make(chan struct{}, 1), started: now, used: now, lost: r.lost[k]}
		r.sessions[k] = s
		delete(r.lost, k)
	}
	if s.preset != env {
		return nil, &SessionPresetError{k.id, s.preset}
	}
	s.use(1)
	return s, nil
}

func (s *session) use(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users += n
	s.used = time.Now()
}

// cell runs code in a session and opens a new one first. again reports that the session had ended before.
func (r *Runner) cell(ctx context.Context, s *session, p Preset, q Request) (res Result, again bool, err error) {
	defer s.use(-1)
	select {
	case s.lock <- struct{}{}:
	case <-ctx.Done():
		return res, false, context.Cause(ctx)
	}
	defer func() { <-s.lock }()
	if !r.has(s) {
		return res, true, nil
	}
	fresh := s.in == nil
	if fresh {
		if err := r.open(ctx, s, p); err != nil {
			r.forget(s)
			return res, false, err
		}
		if !r.has(s) { // it was ended meanwhile, before it had an interpreter
			return res, false, errors.Join(fmt.Errorf("session %s was ended: %w", s.id, sandbox.ErrNotFound), s.close())
		}
	}
	res, err = runCell(ctx, p, s.in, q)
	res.Runtime, res.Created, res.Lost = s.kind, fresh, s.lost
	s.lost = false
	gone := errors.Is(err, sandbox.ErrNotFound) || errors.Is(err, sandbox.ErrConnectionLost)
	if res.Ended || gone || !r.has(s) { // it may have been ended meanwhile without waiting for this turn
		r.forget(s)
		err = errors.Join(err, s.close())
		if gone && !fresh && errors.Is(err, sandbox.ErrNotFound) { // it had ended meanwhile
			return res, true, nil
		}
	}
	return res, false, err
}

func (r *Runner) open(ctx context.Context, s *session, p Preset) error {
	in, kind, done, err := r.acquire(ctx, p)
	if err != nil {
		return err
	}
	p.Runtime = kind
	i, err := in.OpenSession(ctx, r.options(p))
	if err != nil {
		return errors.Join(fmt.Errorf("preset %s: %w", p.Name, err), done())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.in, s.kind, s.end = i, kind, done
	return nil
}

// options returns the options of a preset's interpreter.
func (r *launcher) options(p Preset) sandbox.SessionOptions {
	o := sandbox.SessionOptions{ID: interpreter, Driver: p.Driver, Kernel: p.Kernel, Env: r.variables(p)}
	if InferDriver(p.Interpreter) == p.Driver && len(p.Interpreter) > 0 {
		o.Argv = p.Interpreter[:1]
	}
	return o
}

func (s *session) close() error {
	if s.end == nil {
		return nil
	}
	end := s.end
	s.end = nil
	return end()
}

func (r *Runner) has(s *session) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sessions[s.key] == s
}

func (r *Runner) forget(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sessions[s.key] == s {
		delete(r.sessions, s.key)
		r.markLost(s)
	}
}

// maxLost limits the remembered ended sessions.
const maxLost = 10_000

// markLost makes the next session of the same key report that this one has ended. The caller holds the lock.
func (r *Runner) markLost(s *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(r.lost) < maxLost && (s.in != nil || s.lost) {
		r.lost[s.key] = true
	}
}

// runCell runs a request's code in an interpreter.
func runCell(ctx context.Context, p Preset, in *sandbox.Session, q Request) (Result, error) {
	c, err := in.Run(ctx, sandbox.Cell{
		Code: q.Code, Timeout: p.Timeout, MaxOutput: q.MaxOutput, Stdout: q.Stdout, Stderr: q.Stderr, Display: q.Display,
	})
	res := Result{
		Preset: p.Name, Session: q.Session, Stdout: valid(c.Stdout), Stderr: valid(c.Stderr),
		Value: c.Value, ExitStatus: c.ExitStatus, Ended: c.Ended, DurationMS: c.Duration.Milliseconds(), Limit: p.Timeout,
	}
	return res, err
}

// sweepEvery is the interval of the check for unused sessions.
const sweepEvery = time.Second

// sweep ends idle sessions, and too old sessions after their running cell. A cell that continues for too long is ended, too.
func (r *Runner) sweep(ctx context.Context) {
	for range proc.Ticks(ctx.Done(), sweepEvery) {
		r.mu.Lock()
		var old []*session
		for k, s := range r.sessions {
			s.mu.Lock()
			over := s.users == 0 && time.Since(s.used) > r.o.IdleTimeout || time.Since(s.started) > r.o.TTL
			s.mu.Unlock()
			if over {
				old = append(old, s)
				delete(r.sessions, k)
				r.markLost(s)
			}
		}
		r.mu.Unlock()
		for _, s := range old {
			r.work.Go(func() { s.finish(ctx) })
		}
	}
}

// finish ends a session that was removed from the map, with its running cell.
func (s *session) finish(ctx context.Context) {
	select {
	case s.lock <- struct{}{}:
	default:
		s.mu.Lock()
		in := s.in
		s.mu.Unlock()
		if in != nil {
			_ = in.Close(ctx) // ends its cell
		}
		select {
		case s.lock <- struct{}{}:
		case <-ctx.Done():
			return // Close removes its sandbox
		}
	}
	_ = s.close() // a leftover sandbox ends without keep-alive signals
	<-s.lock
}

// Sessions lists the sessions of this program, or the kept ones.
func (r *Runner) Sessions(ctx context.Context) ([]SessionInfo, error) {
	if r.o.PersistSessions {
		return r.kept.list(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	all := []SessionInfo{}
	for _, s := range r.sessions {
		s.mu.Lock()
		all = append(all, SessionInfo{ID: s.id, Preset: s.preset, Runtime: s.kind, Started: s.started, Used: s.used, Busy: s.users > 0})
		s.mu.Unlock()
	}
	return all, nil
}

// EndSession ends a session without a client, with its sandbox. A missing session is a sandbox.ErrNotFound.
func (r *Runner) EndSession(ctx context.Context, id string) error {
	if id == "" {
		return fmt.Errorf("empty session name: %w", sandbox.ErrName)
	}
	if r.o.PersistSessions {
		return r.kept.end(ctx, id)
	}
	r.mu.Lock()
	s := r.sessions[key{id: id}]
	delete(r.sessions, key{id: id})
	delete(r.lost, key{id: id})
	r.mu.Unlock()
	if s == nil {
		return fmt.Errorf("session %.80q: %w", id, sandbox.ErrNotFound)
	}
	s.finish(ctx)
	return nil
}

// EndClient ends all sessions of a client with their sandboxes, including running cells.
func (r *Runner) EndClient(ctx context.Context, client string) {
	for _, s := range r.sessionsOf(client) {
		r.forget(s)
		s.finish(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.lost, func(k key, _ bool) bool { return k.client == client })
}

func (r *Runner) sessionsOf(client string) (all []*session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, s := range r.sessions {
		if k.client == client {
			all = append(all, s)
		}
	}
	return all
}

// Interpreter returns a session's interpreter, and starts the session if it does not exist. It needs Options.PersistSessions.
func (r *Runner) Interpreter(ctx context.Context, env, session string) (*sandbox.Session, error) {
	p, err := r.preset(Request{Preset: env, Session: session})
	switch {
	case err != nil:
		return nil, err
	case p.Driver == "" || p.Program != "":
		return nil, fmt.Errorf("preset %s: %w", p.Name, ErrNoSessions)
	case !r.o.PersistSessions || session == "":
		return nil, fmt.Errorf("session %q: %w: use a kept session", session, sandbox.ErrInvalidSpec)
	}
	var in *sandbox.Session
	_, err = r.kept.with(ctx, p, session, func(_ *sandbox.Sandbox, i *sandbox.Session, _ bool) (Result, error) {
		in = i
		return Result{}, nil
	})
	return in, err
}
