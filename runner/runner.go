package runner

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/redact"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/runner/harness"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// The causes with which a caller ends the context of a run. Any other end of
// the context counts as ErrInterrupted, a plain deadline as ErrTimeout.
var (
	ErrTimeout     = errors.New("timeout_minutes ran out")
	ErrInterrupted = errors.New("stopped from outside")
)

// oomScore makes the kernel take the agent's processes and not ours when memory
// runs out: the work can only be saved by a living boot. Half of the scale puts
// them before any process of ours, and leaves their own order of size in force.
const oomScore = 500

// Config is what all parts of a run share.
type Config struct {
	Order     *workorder.Order
	Workspace string
	Home      string
	// OutDir receives logs/. It must not be writable by User.
	OutDir string
	// User is whom everything runs as; nil is the caller.
	User *proc.Credential
	// Env is the complete environment of all commands.
	Env []string
	// Emit takes events without Seq and Time. It must be safe for concurrent use.
	Emit   func(workorder.Event)
	Redact *redact.Set

	// Prompt is what the agent is told; "": Order.Task.
	Prompt string
	// Notes are what the agent is told of its sandbox behind the prompt. The command harness, which promises the task byte for
	// byte, does not tell them.
	Notes []string
	// Answers is where the agent says why it leaves items of feedback; nil means there are none.
	Answers *Answers
	// Round counts the returns of failed validation to the agent; 0 means its first run. Each
	// round has logs of its own.
	Round int
	// Changed is when a change in the work tree was last seen: a sign of life.
	// It is called from another goroutine than Agent's. Nil if that is not known.
	Changed func() time.Time
	// Deadline is when timeout_minutes runs out, for the notice before it. It ends
	// nothing: ctx does. Zero means not known.
	Deadline time.Time
	// SpentUSD is what earlier attempts of the task have cost; Order.MaxBudgetUSD is
	// what they left. It is for texts only.
	SpentUSD float64
	// Meter sees what the agent uses on its way to the models. Nil without a meter.
	Meter Meter
	// OOMKills counts what the kernel killed on the agent's side for lack of memory so far. Nil if that is not known.
	OOMKills func() int
	// Hang is how long the agent may show no sign of life; 0: Order.HangTimeout().
	Hang time.Duration

	bounds *bounds // nil means the defaults; tests shrink them
}

// Meter counts what goes over the wire to the models. It must be safe for concurrent use.
type Meter interface {
	// Usage is what was used so far, by anybody, and in how many requests. The cost is
	// nil when it is not known.
	Usage() (workorder.Usage, int64)
	// Settle is Usage at the end of an agent: it waits for the calls that the agent gave up and that
	// go on at the server. When ctx ends before, it has the most that those can cost.
	Settle(ctx context.Context) (workorder.Usage, int64)
	// SetBudget sets what may be spent in all, with what was spent already; nil means any amount.
	SetBudget(usd *float64)
	// OverBudget is closed when a request was refused because the budget is spent. It is
	// asked for after SetBudget.
	OverBudget() <-chan struct{}
	// Limit is the limit of the model's provider that calls are refused at; nil when there is none, nobody knows until when,
	// or calls were answered since.
	Limit() *workorder.ModelLimit
	// Unreachable is why no model can be asked at all: no name, no route or nobody who listens, also at a second try; "" when
	// a server was ever reached, or none was called. failures counts the calls that failed so.
	Unreachable() (why string, failures int)
}

// bounds are the limits that a test cannot wait for or fill.
type bounds struct {
	logHead, logTail int64
	background       int
	commandTimeout   time.Duration
	grace            time.Duration // of the agent
	lastWord         time.Duration
	limitWord        time.Duration
}

func (c *Config) limits() bounds {
	if c.bounds != nil {
		return *c.bounds
	}
	return bounds{logHead: logHead, logTail: logTail, background: backgroundLog, commandTimeout: ValidateTimeout, grace: workorder.AgentGrace, lastWord: lastWord, limitWord: limitWord}
}

func (c *Config) oomKills() int {
	if c.OOMKills == nil {
		return 0
	}
	return c.OOMKills()
}

// Check reports what is missing to start the agent: an unknown harness, an empty
// command, no model key. It has no side effects and belongs before everything that takes time.
func Check(o *workorder.Order, env []string) error {
	h, err := harness.For(o.Harness.Name)
	if err != nil {
		return err
	}
	_, err = h.Command(harness.Run{Order: o, Env: env, SessionID: newUUID()})
	return err
}

// emit sends an event with its text redacted and shortened, in that order.
func (c *Config) emit(e workorder.Event) {
	e.Text = c.text(e.Text)
	e.Name = c.Redact.String(e.Name)
	c.Emit(e)
}

// redactWindow bounds what is looked at of a text that will be cut to
// MaxEventText, in bytes: far more than a secret that begins before the cut can have.
const redactWindow = 16 * workorder.MaxEventText

func (c *Config) text(s string) string {
	return text.Cut(c.Redact.String(s[:min(len(s), redactWindow)]), workorder.MaxEventText)
}

// env is the environment of a child: ours, HOME, and what is added, where the
// later wins.
func (c *Config) env(add ...string) []string {
	env := slices.Clone(c.Env)
	if c.Home != "" && !slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, "HOME=") }) {
		env = append(env, "HOME="+c.Home)
	}
	if env == nil {
		env = []string{} // nil would inherit ours, which holds what children must not see
	}
	return append(env, add...)
}

// logName is where a log of this round lies, relative to OutDir, whose place in the first run is name.
func (c *Config) logName(name string) string {
	if c.Round == 0 {
		return name
	}
	return fmt.Sprintf("%s/repair-%d/%s", path.Dir(name), c.Round, path.Base(name))
}

func (c *Config) logPath(name string) string {
	return filepath.Join(c.OutDir, filepath.FromSlash(name))
}

// logFile creates OutDir/<name> and returns the sink for it.
func (c *Config) logFile(name string) (*capLog, error) {
	path := c.logPath(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("create log folder: %w", err)
	}
	b := c.limits()
	return newCapLog(path, b.logHead, b.logTail)
}

// stopped classifies the end of ctx; nil when it has not ended.
func stopped(ctx context.Context) error { return classify(context.Cause(ctx)) }

// classify says which of our words a context's cause is.
func classify(cause error) error {
	switch {
	case cause == nil:
		return nil
	case errors.Is(cause, ErrTimeout), errors.Is(cause, context.DeadlineExceeded):
		return ErrTimeout
	case errors.Is(cause, errBudget), errors.Is(cause, errHalt), errors.Is(cause, errHang), errors.Is(cause, errLimit), errors.Is(cause, errRoute):
		return cause
	}
	return ErrInterrupted
}

// newUUID returns a random UUID of version 4.
func newUUID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails: crypto/rand aborts the program instead
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
