package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/atomicfile"
	"github.com/sandbox-agent/sandbox-agent/runner/harness"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// noticeShare is the share of money or time at which the agent is notified: it can still finish something.
const noticeShare = 0.8

const noticeAdvice = "Commit now what is worth keeping; uncommitted changes are saved too, " +
	"but a commit with a message is easier to continue from."

// notices passes notices to the agent while it works. It is safe for concurrent use.
type notices struct {
	dir, file string
	harness   harness.Harness
	run       harness.Input
	emit      func(workorder.Event)
	// The attempt's own budget, nil if none, and the cost of earlier attempts, in US dollars.
	budget  *float64
	earlier float64
	// A zero deadline means no deadline.
	began, deadline time.Time

	mu          sync.Mutex
	texts       []string
	money, time bool // the agent has been notified
}

// newNotices creates a directory that the agent can read but not write.
func newNotices() (*notices, error) {
	dir, err := os.MkdirTemp("", "sandbox-agent-notice-")
	if err != nil {
		return nil, fmt.Errorf("create directory for notices: %w", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		_ = os.RemoveAll(dir)
		return nil, fmt.Errorf("open directory for notices: %w", err)
	}
	return &notices{dir: dir, file: filepath.Join(dir, "notice")}, nil
}

func (n *notices) remove() { _ = os.RemoveAll(n.dir) }

func (n *notices) tell(text string) {
	n.mu.Lock()
	n.texts = append(n.texts, text)
	err := n.write()
	n.mu.Unlock()
	e := workorder.Event{Type: workorder.EventNotice, Status: "ok", Text: text}
	if err != nil {
		e.Status, e.Text = "error", "the agent cannot be notified: "+err.Error()+": "+text
	}
	n.emit(e)
}

// write replaces the file atomically, because it may be read at any moment.
func (n *notices) write() error {
	teller, ok := n.harness.(harness.Notifier)
	if !ok {
		return fmt.Errorf("harness %s does not support notices", n.harness.Name())
	}
	b, err := teller.Notice(n.run, strings.Join(n.texts, "\n\n"))
	if err != nil {
		return err
	}
	return atomicfile.Write(n.file, b, 0o644)
}

func (n *notices) tellOfMoney(spent float64) {
	b := n.budget
	if b == nil || spent < noticeShare**b {
		return
	}
	n.mu.Lock()
	told := n.money
	n.money = true
	n.mu.Unlock()
	if told {
		return
	}
	earlier := ""
	if n.earlier > 0 {
		earlier = fmt.Sprintf(" of this attempt (earlier ones cost $%.2f)", n.earlier)
	}
	n.tell(fmt.Sprintf(
		"More than %.0f %% of the budget%s is spent: $%.2f of $%.2f, about $%.2f are left. You will be stopped when it is used up. %s",
		100*noticeShare, earlier, spent, *b, max(*b-spent, 0), noticeAdvice,
	))
}

func (n *notices) tellOfTime(now time.Time) {
	n.mu.Lock()
	n.time = true
	n.mu.Unlock()
	all := n.deadline.Sub(n.began)
	n.tell(fmt.Sprintf("%.0f %% of the time is used up: %s of %s, about %s are left. You will be stopped when it is over. %s",
		100*noticeShare, duration(now.Sub(n.began)), duration(all), duration(max(n.deadline.Sub(now), 0)), noticeAdvice))
}

// untilTime returns the time until tellOfTime is due; ok is false if it never is.
func (n *notices) untilTime(now time.Time) (left time.Duration, ok bool) {
	n.mu.Lock()
	told := n.time
	n.mu.Unlock()
	all := n.deadline.Sub(n.began)
	if n.deadline.IsZero() || all <= 0 || told {
		return 0, false
	}
	return n.began.Add(time.Duration(noticeShare * float64(all))).Sub(now), true
}
