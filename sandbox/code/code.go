// Package code runs code in environments: each time in a fresh place, or in a session that remembers.
//
// A fresh place has an empty folder /workspace, no network, nothing of this machine, and the limits of its environment; nothing of it is left. A session is an interpreter in a
// place of its own, and belongs to one environment. Methods may be called concurrently.
package code

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/sandbox"
	"github.com/sandbox-agent/sandbox-agent/sandbox/pool"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// UnknownError says that there is no environment of a name.
type UnknownError struct {
	Name      string
	Available []string // sorted
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("Unknown environment: '%s'. Available: [%s]", text.Runes(text.Clean(e.Name), 80), strings.Join(e.Available, ", "))
}

// BoundError says that a session belongs to another environment.
type BoundError struct{ Session, Env string }

func (e *BoundError) Error() string {
	return fmt.Sprintf("session %s is bound to environment %s", e.Session, e.Env)
}

// ErrNoSessions means that an environment has no sessions.
var ErrNoSessions = errors.New("the environment has no sessions")

// Options are how a Runner works.
type Options struct {
	// Environments are those that there are, asked at each call; nil means Presets.
	Environments func() []Environment
	// Image returns the image of containers whose environment names none; nil: each names one.
	Image func(ctx context.Context) (string, error)
	// Getenv reads variables that environments inherit; nil inherits none.
	Getenv func(string) string
	// Warm is how many places are made ahead for each environment that was used, so that a call finds one.
	Warm int
	// Max bounds the places that there are at a time; 0 means DefaultMax. Wait is how long a call waits for one.
	Max  int
	Wait time.Duration
	// Idle ends a session that nobody has used for so long, Life each after that time; 0 means DefaultIdle and DefaultLife.
	Idle, Life time.Duration
	// Kept lets sessions outlive this program, until Idle or Life: another one finds them by their ID.
	Kept bool
	// Noted is a directory that has a file for each kept session, so that a call knows that one had ended; "" for none.
	Noted string
	// Hosts makes places for programs of this machine that isolate by themselves (Environment.Program); nil: there are none.
	Hosts *sandbox.Manager
}

// Defaults of Options.
const (
	DefaultMax  = 100
	DefaultIdle = 5 * time.Minute
	DefaultLife = time.Hour
)

// Runner runs code. Close ends all that it has.
type Runner struct {
	m    *sandbox.Manager
	o    Options
	pool *pool.Pool

	mu       sync.Mutex
	sessions map[key]*session
	lost     map[key]bool       // sessions that have ended by no call of EndSession or EndClient
	stop     context.CancelFunc // of the sweep, once there was a session
	work     sync.WaitGroup
}

// Open returns a Runner. It contacts nothing.
func Open(m *sandbox.Manager, o Options) *Runner {
	if o.Environments == nil {
		o.Environments = Presets
	}
	o.Max, o.Idle, o.Life = cmp.Or(o.Max, DefaultMax), cmp.Or(o.Idle, DefaultIdle), cmp.Or(o.Life, DefaultLife)
	return &Runner{m: m, o: o, pool: pool.New(m, pool.Options{Max: o.Max, Wait: o.Wait, Warm: o.Warm}), sessions: map[key]*session{}, lost: map[key]bool{}}
}

// MaxCode bounds the code of a Request, in bytes.
const MaxCode = wire.MaxCode

// Request is code and where it runs.
type Request struct {
	Env  string
	Code string // MaxCode at most
	// Session is the ID of the session in which it runs: letters, digits, dot, - and _, 64 at most. "" is a fresh place.
	Session string
	// Client is who has the session: those of another client are others, though they have the same ID. Kept sessions have none.
	Client string
	// Variables are additional variables of the code, as NAME=value. A session has those of its first call.
	Variables []string
	// Timeout and MemoryBytes take the place of the environment's; 0 does not. A session has the memory that its first call has asked for.
	Timeout     time.Duration
	MemoryBytes int64
	// Backend takes the place of the environment's; sandbox.Auto does not.
	Backend sandbox.Kind
	// MaxOutput bounds each stream of the Result, in bytes; 0 means sandbox.DefaultMaxOutput.
	MaxOutput int
	// Stdout and Stderr take output as it comes, and then it is not in the Result; nil collects it there.
	Stdout, Stderr io.Writer
	// Display takes rich output of a session as it comes; nil drops it.
	Display func(sandbox.Display)
}

// Result is how code ended: code that fails is no error.
type Result struct {
	Env     string       `json:"env"`
	Session string       `json:"session,omitempty"`
	Runtime sandbox.Kind `json:"runtime"`
	// Fresh reports that the session was new, or anew after it had ended: it remembers nothing.
	Fresh bool `json:"fresh,omitempty"`
	// Lost reports that the session had ended since an earlier call, and that this call started it again.
	Lost   bool   `json:"lost,omitempty"`
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
	// Value is that of a session's last expression.
	Value    string `json:"value,omitempty"`
	ExitCode int    `json:"exit_code"`
	TimedOut bool   `json:"timed_out"`
	// Ended reports that the session is over.
	Ended       bool  `json:"ended,omitempty"`
	OutOfMemory bool  `json:"out_of_memory"`
	Truncated   bool  `json:"truncated"`
	DurationMS  int64 `json:"duration_ms"`
	// Limit is what was over, for TimedOut.
	Limit time.Duration `json:"-"`
	// Signal ended the code; 0 if none did.
	Signal syscall.Signal `json:"-"`
}

// Text is what a person or model reads of it: standard output, or standard error where there is none, or both with a line between; and a line for what cannot be seen there.
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
		note("Command timed out after %s. Session %s has ended: the next call starts it anew.", seconds(r.Limit), r.Session)
	case r.TimedOut && r.Session != "":
		note("Command timed out after %s. Session %s remembers what it had.", seconds(r.Limit), r.Session)
	case r.TimedOut:
		note("Command timed out after %s", seconds(r.Limit))
	case r.OutOfMemory:
		note("Command was killed: it used more memory than it may.")
	case r.Ended:
		note("Session %s has ended with exit code %d: the next call starts it anew.", r.Session, r.ExitCode)
	case r.ExitCode != 0 && out == "":
		note("Exit code: %d", r.ExitCode)
	}
	return out
}

// LostNote says that the session was Lost.
func (r Result) LostNote() string {
	return fmt.Sprintf("Session %s had ended: this call started a new one, which remembers nothing of earlier calls.", r.Session)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%gs", d.Seconds()) }

// Environments are those that there are, by name.
func (r *Runner) Environments() []Environment {
	all := r.o.Environments()
	slices.SortFunc(all, func(a, b Environment) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// environment is the one of a request, with what the request has in its place.
func (r *Runner) environment(q Request) (Environment, error) {
	all := r.Environments()
	i := slices.IndexFunc(all, func(e Environment) bool { return e.Name == q.Env })
	if i < 0 {
		u := &UnknownError{Name: q.Env, Available: []string{}}
		for _, e := range all {
			u.Available = append(u.Available, e.Name)
		}
		return Environment{}, u
	}
	e := all[i]
	e.Env = slices.Concat(e.Env, q.Variables)
	e.Timeout, e.MemoryBytes, e.Backend = cmp.Or(q.Timeout, e.Timeout, DefaultTimeout), cmp.Or(q.MemoryBytes, e.MemoryBytes), cmp.Or(q.Backend, e.Backend)
	if err := e.Check(); err != nil {
		return e, fmt.Errorf("environment %s is %w: %w", e.Name, sandbox.ErrSpec, err)
	}
	if len(q.Code) > MaxCode {
		return e, fmt.Errorf("the code is %w: it has %d bytes, more than %d", sandbox.ErrSpec, len(q.Code), MaxCode)
	}
	if q.Session != "" {
		return e, CheckSession(q.Session)
	}
	return e, nil
}

// CheckSession returns a sandbox.ErrSpec unless a session can have the name.
func CheckSession(name string) error {
	if validName.MatchString(name) {
		return nil
	}
	return fmt.Errorf("session %.80q is %w: use letters, digits, dot, - and _, a letter or digit first, 64 at most", name, sandbox.ErrSpec)
}

// Run runs code to its end. The errors say what was wrong with the request (UnknownError, BoundError, sandbox.ErrSpec) or with what runs it.
func (r *Runner) Run(ctx context.Context, q Request) (Result, error) {
	e, err := r.environment(q)
	if err != nil {
		return Result{}, err
	}
	if q.Session != "" {
		return r.inSession(ctx, e, q)
	}
	room, kind, done, err := r.place(ctx, e)
	if err != nil {
		return Result{}, err
	}
	res, err := r.once(ctx, e, room, q)
	res.Runtime = kind
	return res, errors.Join(err, done())
}

// once runs a request's code in a place.
func (r *Runner) once(ctx context.Context, e Environment, in Room, q Request) (Result, error) {
	res := Result{Env: e.Name, Limit: e.Timeout}
	argv, err := e.Argv(len(q.Code))
	if e.Program != "" {
		argv, err = []string{e.Program}, nil
	}
	if err != nil {
		return res, err
	}
	most := cmp.Or(q.MaxOutput, sandbox.DefaultMaxOutput)
	out, errOut := text.NewEnds(most), text.NewEnds(most)
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
	// Code that starts processes without end can leave the guest no time to end it, nor to answer.
	if errors.Is(err, sandbox.ErrLost) && ctx.Err() == nil && time.Since(began) > e.Timeout {
		end, err = sandbox.Result{TimedOut: true, Duration: time.Since(began)}, nil
	}
	if err != nil {
		return res, err
	}
	if end.Reason != "" {
		fmt.Fprintf(errTo, "%s\n", end.Reason)
	}
	res.Stdout, res.Stderr, res.Truncated = valid(out.Bytes()), valid(errOut.Bytes()), out.Cut() || errOut.Cut() || end.Truncated
	res.ExitCode, res.Signal, res.TimedOut, res.OutOfMemory, res.DurationMS = end.ExitCode, end.Signal, end.TimedOut, end.OutOfMemory, end.Duration.Milliseconds()
	if res.TimedOut && res.ExitCode == 0 {
		res.ExitCode = timedOut
	}
	return res, nil
}

// timedOut is the exit code of what was out of time and had ended well all the same.
const timedOut = 124

func valid(b []byte) string { return string(bytes.ToValidUTF8(b, []byte("\uFFFD"))) }

// Close ends all sessions and removes all places, but for those that are Kept.
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
