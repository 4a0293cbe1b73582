package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/host/runtime"
)

// Requirements of a check are options of its sandbox, in addition to the defaults of the runtime.
type Requirements struct {
	runtime.Limits
	NetworkNone bool
	User        string
}

// Outcome is how a command ended.
type Outcome struct {
	Output      string // both streams
	ExitCode    int
	TimedOut    bool
	OutOfMemory bool
	Duration    time.Duration
}

// RuntimeSandbox is one that was made.
type RuntimeSandbox interface {
	// Run runs a script of /bin/sh; a timeout of 0 is none.
	Run(ctx context.Context, script string, timeout time.Duration) (Outcome, error)
	// Stop ends all that runs in it; the next Run starts it again.
	Stop(ctx context.Context) error
	Remove(ctx context.Context) error
}

// RuntimeKind makes sandboxes of a kind.
type RuntimeKind interface {
	// Has reports a declared capability.
	Has(c runtime.Capability) bool
	Make(ctx context.Context, w Requirements) (RuntimeSandbox, error)
}

// RuntimeCheck is one promise, tried.
type RuntimeCheck struct {
	Name    string `json:"name"`
	Offered bool   `json:"offered"` // false where the kind does not declare it: nothing was tried then
	OK      bool   `json:"ok"`
	Detail  string `json:"detail,omitempty"` // why it does not hold
}

// promise is a promise: by the capability of that name, or of every kind.
type promise struct {
	name     string
	needs    runtime.Capability
	requires Requirements
	try      func(ctx context.Context, sb RuntimeSandbox) error
	// tryGuest is in the place of tryPromise where the guest holds the network: there is a way out of the sandbox then, for the guest.
	tryGuest func(ctx context.Context, sb RuntimeSandbox) error
}

const (
	checkTime  = 3 * time.Minute // bounds one check with its sandbox: a box takes seconds to be made
	stuck      = time.Minute     // bounds a command of a check, in case nothing of what it tries holds
	removeTime = time.Minute     // bounds the removal of a check's sandbox

	recovery = 15 * time.Second // the time in which a sandbox answers again after a fork bomb

	memory = 128 << 20
	pids   = 128
)

var promises = []promise{
	{name: "a command's exit code comes back, and this program's environment stays out", try: ordinary},
	{name: "a timeout ends what setsid, double forks and a cleared environment hide", try: timeoutEnds},
	{name: "what a command leaves behind stays", try: leaves},
	{name: "the guest's socket and memory are out of reach", try: guestHidden},
	{name: "no process gains privileges", try: succeeds(`grep -q '^NoNewPrivs:.1$' /proc/self/status`)},
	{
		name: "no process of the machine is in sight", needs: runtime.CapNetworkNone,
		try: succeeds(`test "$(ls -d /proc/[0-9]* | wc -l)" -lt 60`),
	},
	{
		name: "network none has the loopback alone", needs: runtime.CapNetworkNone, requires: Requirements{NetworkNone: true}, try: loopbackAlone,
		tryGuest: refusesConnections,
	},
	{
		name: "memory is bounded, and a lack of it told from a kill", needs: runtime.CapMemory,
		requires: Requirements{Limits: runtime.Limits{MemoryBytes: memory}}, try: outOfMemory,
	},
	{
		name: "processes are bounded, and a fork bomb ends", needs: runtime.CapPIDs,
		requires: Requirements{Limits: runtime.Limits{PIDs: pids}}, try: forkBomb,
	},
	{name: "processors are bounded", needs: runtime.CapCPUs, requires: Requirements{Limits: runtime.Limits{CPUs: 0.5}}, try: halfACPU},
	{
		name: "commands run as another user, without a capability", needs: runtime.CapUser, requires: Requirements{User: "1000:1000"},
		try: succeeds(`test "$(id -u)" = 1000 && grep -q '^CapEff:.0*$' /proc/self/status`),
	},
	{name: "files stay over a stop", needs: runtime.CapPersistent, try: persists},
}

// canary is a variable of this program while it tries.
const canary = "SANDBOX_AGENT_CANARY"

// TryRuntime tries each promise of a kind; each is a call of done, in order. The error is one of ctx, or of a sandbox that
// could not be made at all.
func TryRuntime(ctx context.Context, k RuntimeKind, done func(RuntimeCheck)) error {
	if err := os.Setenv(canary, "1"); err != nil {
		return err
	}
	defer os.Unsetenv(canary)
	for _, r := range promises {
		c := RuntimeCheck{Name: r.name, Offered: r.needs == "" || k.Has(r.needs)}
		if r.tryGuest != nil && k.Has(runtime.CapNetworkRestricted) {
			r.try = r.tryGuest
		}
		if c.Offered {
			err := tryPromise(ctx, k, r)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if made := (*makeError)(nil); errors.As(err, &made) && r.requires == (Requirements{}) {
				return made.err
			}
			if c.OK = err == nil; !c.OK {
				c.Detail = err.Error()
			}
		}
		done(c)
	}
	return nil
}

// makeError is the error of a sandbox that could not be made.
type makeError struct{ err error }

func (e *makeError) Error() string { return e.err.Error() }
func (e *makeError) Unwrap() error { return e.err }

func tryPromise(ctx context.Context, k RuntimeKind, r promise) (err error) {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	sb, err := k.Make(ctx, r.requires)
	if err != nil {
		return &makeError{err}
	}
	defer func() {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTime)
		defer cancel()
		err = errors.Join(err, sb.Remove(clean))
	}()
	return r.try(ctx, sb)
}

// succeeds wants a script to end with 0.
func succeeds(script string) func(context.Context, RuntimeSandbox) error {
	return func(ctx context.Context, sb RuntimeSandbox) error {
		o, err := sb.Run(ctx, script, stuck)
		if err != nil {
			return err
		}
		if o.ExitCode != 0 {
			return fmt.Errorf("%q ended with %d: %s", script, o.ExitCode, strings.TrimSpace(o.Output))
		}
		return nil
	}
}

func ordinary(ctx context.Context, sb RuntimeSandbox) error {
	const code = 7
	o, err := sb.Run(ctx, fmt.Sprintf(`test -z "$%s" && exit %d`, canary, code), stuck)
	if err != nil {
		return err
	}
	if o.ExitCode != code {
		return fmt.Errorf("it ended with %d and not %d: %s", o.ExitCode, code, strings.TrimSpace(o.Output))
	}
	return nil
}

// leftCount counts processes named sleep.
const leftCount = `cat /proc/[0-9]*/comm 2>/dev/null | grep -c '^sleep$'; true`

func timeoutEnds(ctx context.Context, sb RuntimeSandbox) error {
	o, err := sb.Run(ctx, "setsid sleep 987 & env -i setsid sleep 987 & (sleep 987 &); sleep 987", time.Second)
	if err != nil {
		return err
	}
	if !o.TimedOut {
		return fmt.Errorf("it ended with %d and not by its timeout", o.ExitCode)
	}
	return countLeft(ctx, sb, "0")
}

func countLeft(ctx context.Context, sb RuntimeSandbox, want string) error {
	o, err := sb.Run(ctx, leftCount, stuck)
	if err != nil {
		return err
	}
	if got := strings.TrimSpace(o.Output); got != want {
		return fmt.Errorf("%s processes are there, want %s", got, want)
	}
	return nil
}

func leaves(ctx context.Context, sb RuntimeSandbox) error {
	if err := succeeds("setsid sleep 987 >/dev/null 2>&1 </dev/null & exit 0")(ctx, sb); err != nil {
		return err
	}
	return countLeft(ctx, sb, "1")
}

// guestHidden wants the guest's socket and the environment of the first process to be closed to commands that are not root's.
func guestHidden(ctx context.Context, sb RuntimeSandbox) error {
	return succeeds(`if [ "$(id -u)" = 0 ]; then exit 0; fi
for f in /.sandbox-agent/wire.sock /.sandbox-agent/config.json /run/sandbox-agent-wire/wire.sock; do test ! -e "$f" || exit 1; done
! cat /proc/1/environ 2>/dev/null | grep -q . && ! ls /proc/1/fd/ 2>/dev/null | grep -q .`)(ctx, sb)
}

// loopbackAlone wants no way out of the sandbox.
func loopbackAlone(ctx context.Context, sb RuntimeSandbox) error {
	return succeeds(`test -z "$(tail -n +2 /proc/net/route | grep -v '^lo'; grep -v ' lo$' /proc/net/ipv6_route 2>/dev/null)"`)(ctx, sb)
}

// refusesConnections wants a connection to fail. It takes bash, since other shells know none.
func refusesConnections(ctx context.Context, sb RuntimeSandbox) error {
	return succeeds(`bash -c '! (exec 3<>/dev/tcp/192.0.2.1/80) 2>/dev/null'`)(ctx, sb)
}

func outOfMemory(ctx context.Context, sb RuntimeSandbox) error {
	o, err := sb.Run(ctx, "tail /dev/zero", stuck)
	if err != nil {
		return err
	}
	if !o.OutOfMemory {
		return fmt.Errorf("it ended with %d, and not for lack of memory", o.ExitCode)
	}
	return succeeds("true")(ctx, sb)
}

func forkBomb(ctx context.Context, sb RuntimeSandbox) error {
	const seconds = 3
	o, err := sb.Run(ctx, `b() { b | b & b; }; b`, seconds*time.Second)
	if err != nil {
		return err
	}
	if !o.TimedOut && o.ExitCode == 0 {
		return errors.New("it ended by itself")
	}
	// What it leftCount behind is looked for every second.
	for until := time.Now().Add(recovery); ; time.Sleep(time.Second) {
		if err = succeeds("true")(ctx, sb); err == nil || time.Now().After(until) || ctx.Err() != nil {
			return err
		}
	}
}

func halfACPU(ctx context.Context, sb RuntimeSandbox) error {
	// Its own count of the time that it had a processor is compared with the clock.
	o, err := sb.Run(ctx, `i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; times`, stuck)
	if err != nil {
		return err
	}
	used, ok := cpuTime(o.Output)
	if !ok {
		return fmt.Errorf("the shell does not say what it used: %q", o.Output)
	}
	if used > o.Duration*3/4 && o.Duration > time.Second/2 {
		return fmt.Errorf("it had a processor for %s of %s, with half of one", used, o.Duration.Round(time.Millisecond))
	}
	return nil
}

// cpuTime reads the first line of times: user and system, as 0m1.234000s.
func cpuTime(out string) (time.Duration, bool) {
	f := strings.Fields(out)
	if len(f) < 2 {
		return 0, false
	}
	var sum time.Duration
	for _, t := range f[:2] {
		d, err := time.ParseDuration(t)
		if err != nil {
			return 0, false
		}
		sum += d
	}
	return sum, true
}

func persists(ctx context.Context, sb RuntimeSandbox) error {
	if err := succeeds("echo kept >kept-by-doctor")(ctx, sb); err != nil {
		return err
	}
	if err := sb.Stop(ctx); err != nil {
		return err
	}
	return succeeds(`test "$(cat kept-by-doctor)" = kept`)(ctx, sb)
}
