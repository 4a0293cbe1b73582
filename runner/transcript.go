package runner

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/runner/harness"
)

const (
	// maxTranscript bounds one read of a transcript, in bytes: the agent can make the file as large as its disk.
	maxTranscript = 256 << 20
	// costLook is how often the transcript is checked for costs: less than the duration of a model's answer.
	costLook = 2 * time.Second
)

// openTranscript opens the agent's own record; nil if there is none. The agent may have put links or pipes there: the
// file is opened only below its home, without blocking, and must be regular.
func openTranscript(rec harness.Recorder, r harness.Input) (*os.File, error) {
	root, err := os.OpenRoot(r.Home)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	names, err := fs.Glob(root.FS(), rec.Transcript(r))
	if err != nil || len(names) == 0 {
		return nil, err
	}
	src, err := root.OpenFile(names[0], os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if st, err := src.Stat(); err != nil || !st.Mode().IsRegular() {
		_ = src.Close()
		return nil, fmt.Errorf("%s is not a regular file", names[0])
	}
	return src, nil
}

func (a *agentRun) keepTranscript(rec harness.Recorder) error {
	src, err := openTranscript(rec, a.run)
	if src == nil {
		return err
	}
	defer func() { _ = src.Close() }()
	log, err := a.logFile(a.logName(AgentTranscript))
	if err != nil {
		return err
	}
	clean := a.Redact.Writer(log)
	_, err = io.Copy(clean, io.LimitReader(src, maxTranscript))
	for _, c := range []io.Closer{clean, log} {
		if cerr := c.Close(); err == nil {
			err = cerr
		}
	}
	return err
}

// costs follows the costs that an agent writes to its transcript. It is not safe for concurrent use.
type costs struct {
	rec    harness.Recorder
	run    harness.Input
	offset int64
	lines  *text.Lines
	// earlier is the session's cost before this process; own and session are the process's and the session's reported costs.
	earlier, own, session float64
	known                 bool
}

// newCosts returns nil for an agent without a transcript.
func newCosts(h harness.Harness, r harness.Input) *costs {
	rec, ok := h.(harness.Recorder)
	if !ok {
		return nil
	}
	c := &costs{rec: rec, run: r}
	c.lines = text.NewLines(text.MaxLine, func(line []byte, _ int64) {
		usd, ofSession, ok := rec.Cost(line)
		switch {
		case !ok:
			return
		case ofSession:
			c.session = usd
		default:
			c.own = max(c.own, usd)
		}
		c.known = true
	})
	return c
}

// next prepares for another process of the session.
func (c *costs) next() {
	if c != nil {
		c.earlier, c.own, c.known = c.session, 0, false
	}
}

// read returns the spending of the process so far; nil if unknown. An unreadable transcript is reported at the end.
func (c *costs) read() *float64 {
	if c == nil {
		return nil
	}
	if src, err := openTranscript(c.rec, c.run); src != nil && err == nil {
		if _, err := src.Seek(c.offset, io.SeekStart); err == nil {
			n, _ := io.Copy(c.lines, io.LimitReader(src, maxTranscript))
			c.offset += n
		}
		_ = src.Close()
	}
	if !c.known {
		return nil
	}
	usd := c.session - c.earlier
	if usd < 0 { // a killed session loses its cost
		usd = c.session
	}
	usd = max(usd, c.own)
	return &usd
}
