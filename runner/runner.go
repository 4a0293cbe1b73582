// Package runner runs the agent, setup and the project's checks in the box, and determines the verdict.
//
// Everything it starts runs as Config.User in the workspace and is untrusted: output is redacted; logs, events and memory are bounded; no
// output pipe outlives its process; and processes that the agent leaves running are killed.
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

// Causes with which a caller ends a run's context. Any other end counts as ErrInterrupted, a plain deadline as ErrTimeout.
var (
	ErrTimeout     = errors.New("timeout_minutes ran out")
	ErrInterrupted = errors.New("stopped from outside")
)

// oomScore makes the kernel kill the agent's processes before ours when memory runs out, and keeps their own order by size.
const oomScore = 500

// Config is shared by all parts of a run.
type Config struct {
	Order     *workorder.Order
	Workspace string
	Home      string
	// OutDir receives logs/. It must not be writable by User.
	OutDir string
	// User runs everything; nil means the current user.
	User *proc.Credential
	// Env is the complete environment of all commands.
	Env []string
	// Emit takes events without Seq and Time. It must be safe for concurrent use.
	Emit   func(workorder.Event)
	Redact *redact.Set

	// Prompt is the agent's prompt; "" means Order.Task.
	Prompt string
	// Notes about the sandbox follow the prompt, except for the command harness, which promises the task byte for byte.
	Notes []string
	// Answers is where the agent explains why it leaves feedback unaddressed; nil if there is none.
	Answers *Answers
	// Took is how long the last validation took; zero before it.
	Took time.Duration
	// Round counts how often failed validation was returned to the agent; 0 is its first run. Each round has its
	// own logs.
	Round int
	// Changed returns when the work tree last changed, a sign of life. It must be safe for concurrent use. Nil if unknown.
	Changed func() time.Time
	// Deadline is when timeout_minutes runs out, for the notice before it. Zero if unknown.
	Deadline time.Time
	// SpentUSD is the cost of earlier attempts, for texts only: Order.MaxBudgetUSD is already reduced by it.
	SpentUSD float64
	// Meter counts the agent's use of the models; nil if there is none.
	Meter Meter
	// OOMKills counts the agent's processes that the kernel killed for lack of memory; nil if unknown.
	OOMKills func() int
	// Hang is how long the agent may show no sign of life; 0 means Order.HangTimeout().
	Hang time.Duration

	bounds *bounds // nil means the defaults; tests lower them
}

// Meter counts the traffic to the models. It must be safe for concurrent use.
type Meter interface {
	// Usage returns the total use by all clients and the number of requests. The cost is nil if unknown.
	Usage() (workorder.Usage, int64)
	// Settle waits for abandoned calls and returns Usage. If ctx ends first, it includes their maximum cost.
	Settle(ctx context.Context) (workorder.Usage, int64)
	// SetBudget limits the total spending, including money already spent; nil means no limit.
	SetBudget(usd *float64)
	// OverBudget returns a channel that is closed when a request is refused for the budget. Call it after SetBudget.
	OverBudget() <-chan struct{}
	// Limit returns the provider limit at which calls are refused; nil if there is none or its end is unknown.
	Limit() *workorder.ModelLimit
	// Unreachable explains why no model was ever reached at a second try, "" otherwise. failures counts the failed calls.
	Unreachable() (why string, failures int)
}

type bounds struct {
	logHead, logTail int64
	background       int
	commandTimeout   time.Duration
	grace            time.Duration // grace period of the agent
	lastWord         time.Duration
	limitWord        time.Duration
}

func (c *Config) limits() bounds {
	if c.bounds != nil {
		return *c.bounds
	}
	return bounds{
		logHead: logHead, logTail: logTail, background: backgroundLog, commandTimeout: c.Order.CheckLimit(), grace: workorder.AgentGrace,
		lastWord: lastWord, limitWord: limitWord,
	}
}

func (c *Config) oomKills() int {
	if c.OOMKills == nil {
		return 0
	}
	return c.OOMKills()
}

// Check reports what is missing to start the agent: a known harness, a command, a model key. It has no side effects.
func Check(o *workorder.Order, env []string) error {
	h, err := harness.For(o.Harness.Name)
	if err != nil {
		return err
	}
	_, err = h.Command(harness.Input{Order: o, Env: env, SessionID: newUUID()})
	return err
}

// emit sends an event with its text redacted first, then shortened.
func (c *Config) emit(e workorder.Event) {
	e.Text = c.text(e.Text)
	e.Name = c.Redact.String(e.Name)
	c.Emit(e)
}

// redactWindow bounds how many bytes of a text are redacted before it is cut: far more than a secret can have.
const redactWindow = 16 * workorder.MaxEventText

func (c *Config) text(s string) string {
	return text.Cut(c.Redact.String(s[:min(len(s), redactWindow)]), workorder.MaxEventText)
}

// env returns the environment of a child: c.Env, HOME and add, where later entries win.
func (c *Config) env(add ...string) []string {
	env := slices.Clone(c.Env)
	if c.Home != "" && !slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, "HOME=") }) {
		env = append(env, "HOME="+c.Home)
	}
	if env == nil {
		env = []string{} // nil would inherit our own environment, which children must not see
	}
	return append(env, add...)
}

// logName returns the log path of this round, relative to OutDir; name is its path in the first run.
func (c *Config) logName(name string) string {
	if c.Round == 0 {
		return name
	}
	return fmt.Sprintf("%s/repair-%d/%s", path.Dir(name), c.Round, path.Base(name))
}

func (c *Config) logPath(name string) string {
	return filepath.Join(c.OutDir, filepath.FromSlash(name))
}

func (c *Config) logFile(name string) (*capLog, error) {
	path := c.logPath(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("create log directory: %w", err)
	}
	b := c.limits()
	return newCapLog(path, b.logHead, b.logTail)
}

// classify maps a context's cause to ErrTimeout or ErrInterrupted.
func classify(cause error) error {
	switch {
	case cause == nil:
		return nil
	case errors.Is(cause, ErrTimeout), errors.Is(cause, context.DeadlineExceeded):
		return ErrTimeout
	case errors.Is(cause, errBudget),
		errors.Is(cause, errHalt),
		errors.Is(cause, errHang),
		errors.Is(cause, errLimit),
		errors.Is(cause, errRoute):
		return cause
	}
	return ErrInterrupted
}

func newUUID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails: crypto/rand aborts the program instead
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
