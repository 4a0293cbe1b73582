// Package code runs code in presets: in a fresh sandbox for each call, or in a session that keeps its state.
//
// A fresh sandbox has an empty directory /workspace, no network, no files of the host, and its preset's limits;
// nothing of it remains after the call. A session is an interpreter in a sandbox of its own, and belongs to one
// preset. Methods may be called concurrently.
package code

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/sandbox/pool"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

var validName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// UnknownPresetError means that no preset has the name.
type UnknownPresetError struct {
	Name      string
	Available []string // sorted
}

func (e *UnknownPresetError) Error() string {
	return fmt.Sprintf("Unknown environment: '%s'. Available: [%s]", text.Runes(text.Clean(e.Name), 80), strings.Join(e.Available, ", "))
}

// SessionPresetError means that a session belongs to another preset.
type SessionPresetError struct{ Session, Preset string }

func (e *SessionPresetError) Error() string {
	return fmt.Sprintf("session %s belongs to preset %s", e.Session, e.Preset)
}

// ErrNoSessions means that the preset does not support sessions.
var ErrNoSessions = errors.New("preset without sessions")

// Options configure a Runner.
type Options struct {
	// Presets returns the available presets; it is called at each use. nil means BuiltinPresets.
	Presets func() []Preset
	// Project, if not empty, is the Project of all presets.
	Project string
	// Image returns the image of containers whose preset names none; nil means that each must name one.
	Image func(ctx context.Context) (string, error)
	// Getenv reads the variables that presets inherit; nil inherits none.
	Getenv func(string) string
	Warm   int // the number of idle sandboxes kept ready for each used preset
	// Max limits the number of sandboxes; 0 means DefaultMax. Wait is how long a call waits for a free one.
	Max  int
	Wait time.Duration
	// IdleTimeout ends a session after so long without use, TTL after so long in total; 0 means DefaultIdleTimeout and DefaultTTL.
	IdleTimeout, TTL time.Duration
	// PersistSessions keeps sessions after this program ends, until IdleTimeout or TTL. Other programs find them by ID.
	PersistSessions bool
	// PersistedDir is a directory with a file for each kept session, by which a call knows that the session had ended; "" means none.
	PersistedDir string
	// HostManager creates sandboxes for programs of the host that isolate code themselves (Preset.Program); nil disallows them.
	HostManager *sandbox.Manager
	// Fallback, if non-nil, reports whether code of a preset without a runtime may run on the host, without any isolation
	// (sandbox.RuntimeHost), when neither jails nor containers are available; why has the reasons. It needs a HostManager.
	Fallback func(why string) (bool, error)
}

// Default options.
const (
	DefaultMax         = 100
	DefaultIdleTimeout = 5 * time.Minute
	DefaultTTL         = time.Hour
)

// launcher finds presets and gives each its sandboxes.
type launcher struct {
	m    *sandbox.Manager
	o    Options
	pool *pool.Pool
}

// Runner runs code. Close ends everything it started.
type Runner struct {
	*launcher
	kept *keptSessions

	mu       sync.Mutex
	sessions map[key]*session
	lost     map[key]bool       // sessions that ended other than by EndSession or EndClient
	stop     context.CancelFunc // stops the sweep, if a session was ever started
	work     sync.WaitGroup
}

// NewRunner returns a Runner. It contacts nothing.
func NewRunner(m *sandbox.Manager, o Options) *Runner {
	if o.Presets == nil {
		o.Presets = BuiltinPresets
	}
	o.Max, o.IdleTimeout, o.TTL = cmp.Or(o.Max, DefaultMax), cmp.Or(o.IdleTimeout, DefaultIdleTimeout), cmp.Or(o.TTL, DefaultTTL)
	l := &launcher{m: m, o: o, pool: pool.New(m, pool.Options{Max: o.Max, Wait: o.Wait, Warm: o.Warm})}
	return &Runner{
		launcher: l, kept: &keptSessions{l},
		sessions: map[key]*session{}, lost: map[key]bool{},
	}
}

// MaxCode is the limit of a Request's code, in bytes.
const MaxCode = wire.MaxCode

// Request is code to run.
type Request struct {
	Preset string
	Code   string // at most MaxCode bytes
	// Session is the ID of the session to use: at most 64 letters, digits, dots, - and _. "" means a fresh sandbox.
	Session string
	// Client owns the session. Clients do not share sessions, even with the same ID. Kept sessions have no client.
	Client string
	// Env are additional variables of the code, as NAME=value. A session has those of its first call.
	Env []string
	// Allow, if not empty, replaces the preset's network by the hosts of these rules, as sandbox.Spec.Allow. A session has that of its
	// first call.
	Allow []string
	// Timeout and MemoryBytes override the preset's unless 0. A session keeps the memory limit of its first call.
	Timeout     time.Duration
	MemoryBytes int64
	// Runtime overrides the preset's unless it is sandbox.RuntimeAuto.
	Runtime   sandbox.Runtime
	MaxOutput int // limits each stream of the Result, in bytes; 0 means sandbox.DefaultMaxOutput
	// Stdout and Stderr, if non-nil, receive output as it arrives; the Result does not contain it then.
	Stdout, Stderr io.Writer
	// Display, if non-nil, receives rich output of a session as it arrives.
	Display func(sandbox.Display)
}

// Result is the outcome of a run. Failing code is not an error.
type Result struct {
	Preset  string          `json:"env"`
	Session string          `json:"session,omitempty"`
	Runtime sandbox.Runtime `json:"runtime"`
	// Created reports that the session was started by this call and has no earlier state.
	Created bool `json:"fresh,omitempty"`
	// Lost reports that the session had ended since an earlier call, and that this call restarted it.
	Lost   bool   `json:"lost,omitempty"`
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
	Value  string `json:"value,omitempty"` // the value of a session's last expression
	sandbox.ExitStatus
	Ended      bool          `json:"ended,omitempty"` // the session has ended
	DurationMS int64         `json:"duration_ms"`
	Limit      time.Duration `json:"-"` // the exceeded timeout, for TimedOut
}

// Text formats the result for a person or model: standard output and standard error, with a line between them, followed
// by notes about the exit, the timeout and the session.
func (r Result) Text() string {
	out := r.Stdout
	if r.Value != "" {
		if out != "" && !strings.HasSuffix(out, "\n") {
			out += "\n"
		}
		out += r.Value
	}
	switch {
	case out == "":
		out = r.Stderr
	case r.Stderr != "":
		if !strings.HasSuffix(out, "\n") {
			out += "\n"
		}
		out += "--- stderr ---\n" + r.Stderr
	}
	note := func(format string, args ...any) {
		if out != "" && !strings.HasSuffix(out, "\n") {
			out += "\n"
		}
		out += fmt.Sprintf(format, args...)
	}
	if r.Lost {
		note("%s", r.LostNote())
	}
	switch {
	case r.TimedOut && r.Ended:
		note("Command timed out after %s. Session %s has ended: the next call restarts it.", seconds(r.Limit), r.Session)
	case r.TimedOut && r.Session != "":
		note("Command timed out after %s. Session %s keeps its state.", seconds(r.Limit), r.Session)
	case r.TimedOut:
		note("Command timed out after %s", seconds(r.Limit))
	case r.OutOfMemory:
		note("Command was killed: memory limit exceeded.")
	case r.Ended:
		note("Session %s has ended with exit code %d: the next call restarts it.", r.Session, r.ExitCode)
	case r.ExitCode != 0 && out == "":
		note("Exit code: %d", r.ExitCode)
	}
	return out
}

// LostNote is the notice for a Lost session.
func (r Result) LostNote() string {
	return fmt.Sprintf("Session %s had ended: this call started a new one without its earlier state.", r.Session)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%gs", d.Seconds()) }

// Presets returns the available presets, sorted by name.
func (r *launcher) Presets() []Preset {
	all := r.o.Presets()
	slices.SortFunc(all, func(a, b Preset) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// preset returns a request's preset, with the request's overrides.
func (r *launcher) preset(q Request) (Preset, error) {
	all := r.Presets()
	i := slices.IndexFunc(all, func(p Preset) bool { return p.Name == q.Preset })
	if i < 0 {
		u := &UnknownPresetError{Name: q.Preset, Available: []string{}}
		for _, p := range all {
			u.Available = append(u.Available, p.Name)
		}
		return Preset{}, u
	}
	p := all[i]
	p.Env = slices.Concat(p.Env, q.Env)
	p.Timeout, p.Runtime = cmp.Or(q.Timeout, p.Timeout, DefaultTimeout), cmp.Or(q.Runtime, p.Runtime)
	p.MemoryBytes, p.Project = cmp.Or(q.MemoryBytes, p.MemoryBytes), cmp.Or(r.o.Project, p.Project)
	if len(q.Allow) > 0 {
		p.Allow = q.Allow
	}
	if err := p.Check(); err != nil {
		return p, fmt.Errorf("preset %s: %w: %w", p.Name, sandbox.ErrInvalidSpec, err)
	}
	if p.Project != "" {
		st, err := os.Stat(p.Project)
		if err == nil && !st.IsDir() {
			err = fmt.Errorf("%s is not a directory", p.Project)
		}
		if err != nil {
			return p, fmt.Errorf("preset %s: %w: project directory: %w", p.Name, sandbox.ErrInvalidSpec, err)
		}
	}
	if len(q.Code) > MaxCode {
		return p, fmt.Errorf("%w: %d bytes of code exceed the limit of %d", sandbox.ErrInvalidSpec, len(q.Code), MaxCode)
	}
	if q.Session != "" {
		return p, CheckSession(q.Session)
	}
	return p, nil
}

// CheckSession returns a sandbox.ErrInvalidSpec unless the name is valid for a session.
func CheckSession(name string) error {
	if validName.MatchString(name) {
		return nil
	}
	return fmt.Errorf("session %.80q: %w: use at most 64 letters, digits, dots, - and _, a letter or digit first", name,
		sandbox.ErrInvalidSpec)
}

// Run runs code to its end. It returns UnknownPresetError, SessionPresetError or sandbox.ErrInvalidSpec for an invalid request, and errors
// of the sandbox.
func (r *Runner) Run(ctx context.Context, q Request) (Result, error) {
	p, err := r.preset(q)
	if err != nil {
		return Result{}, err
	}
	if q.Session != "" {
		return r.inSession(ctx, p, q)
	}
	room, kind, done, err := r.acquire(ctx, p)
	if err != nil {
		return Result{}, err
	}
	p.Runtime = kind
	res, err := r.once(ctx, p, room, q)
	res.Runtime = kind
	return res, errors.Join(err, done())
}

// once runs a request's code in a fresh sandbox.
func (r *launcher) once(ctx context.Context, e Preset, in sandbox.Executor, q Request) (Result, error) {
	res := Result{Preset: e.Name, Limit: e.Timeout}
	argv, err := e.Argv(len(q.Code))
	if e.Program != "" {
		argv, err = []string{e.Program}, nil
	}
	if err != nil {
		return res, err
	}
	most := cmp.Or(q.MaxOutput, sandbox.DefaultMaxOutput)
	out, errOut := text.NewHeadTail(most), text.NewHeadTail(most)
	var to, errTo io.Writer = out, errOut
	if q.Stdout != nil {
		to = q.Stdout
	}
	if q.Stderr != nil {
		errTo = q.Stderr
	}
	p, err := in.Start(ctx, sandbox.Command{Argv: argv, Env: r.variables(e), Stdin: strings.NewReader(q.Code), Timeout: e.Timeout})
	if err != nil {
		return res, err
	}
	defer p.Close()
	began := time.Now()
	end, err := p.Wait(ctx, to, errTo)
	// Code that starts processes endlessly can keep the guest from ending it and from answering.
	if errors.Is(err, sandbox.ErrConnectionLost) && ctx.Err() == nil && time.Since(began) > e.Timeout {
		end = sandbox.RunResult{ExitStatus: sandbox.ExitStatus{TimedOut: true}, Duration: time.Since(began)}
		err = nil
	}
	if err != nil {
		return res, err
	}
	if end.Reason != "" {
		fmt.Fprintf(errTo, "%s\n", end.Reason)
	}
	res.Stdout, res.Stderr, res.ExitStatus = valid(out.Bytes()), valid(errOut.Bytes()), end.ExitStatus
	res.Truncated = res.Truncated || out.Cut() || errOut.Cut()
	res.DurationMS = end.Duration.Milliseconds()
	if res.TimedOut && res.ExitCode == 0 {
		res.ExitCode = timedOut
	}
	return res, nil
}

// timedOut is the exit code of code that timed out and yet exited with 0.
const timedOut = 124

func valid(b []byte) string { return string(bytes.ToValidUTF8(b, []byte("\uFFFD"))) }

// Close ends all sessions and removes all sandboxes, except persistent sessions.
func (r *Runner) Close(ctx context.Context) error {
	r.mu.Lock()
	if r.stop != nil {
		r.stop()
	}
	r.sessions = map[key]*session{}
	r.mu.Unlock()
	r.work.Wait()
	return r.pool.Close(ctx)
}
