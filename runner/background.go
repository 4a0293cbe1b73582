package runner

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const (
	// drainTime is how long after a command's end its background processes' output counts as the command's own.
	drainTime = 500 * time.Millisecond
	// backgroundLog bounds the bytes kept of later background output; the rest is read and dropped.
	backgroundLog = 4 << 20
)

// shellOutput reads the output of a shell command and, after its end, of its background processes: a server started by
// setup would die at its next log line if the pipe were closed.
type shellOutput struct {
	c      *Config
	name   string // log path, relative to Config.OutDir
	feed   *proc.PipeCopier
	closed chan struct{} // all writers are gone and the log is closed

	mu    sync.Mutex
	log   io.Closer // log file behind kept
	kept  io.Writer // replaced when the command ends
	tail  *proc.Tail
	clean io.WriteCloser // redacts, then writes to kept
	lines *text.Lines
	flow  *rateLimiter
	over  bool // the command has ended
	err   error
}

func (c *Config) newShellOutput(cmd ShellCommand, r *os.File) (*shellOutput, error) {
	log, err := c.logFile(cmd.Log)
	if err != nil {
		return nil, err
	}
	o := &shellOutput{c: c, name: cmd.Log, closed: make(chan struct{}), log: log, tail: proc.NewTail(tailSize)}
	o.kept = io.MultiWriter(log, o.tail)
	o.clean = c.Redact.Writer(currentLog{o})
	o.flow = newRateLimiter(c.emit, cmd.Log, func(text string) workorder.Event {
		return workorder.Event{Type: workorder.EventOutput, Name: cmd.Name, Text: text}
	})
	o.lines = text.NewLines(text.MaxLine, func(line []byte, _ int64) {
		if len(line) > 0 && o.flow.allow(len(line)) {
			c.emit(workorder.Event{Type: workorder.EventOutput, Name: cmd.Name, Text: string(line[:min(len(line), redactWindow)])})
		}
	})
	o.feed = proc.NewPipeCopier(r, o)
	go func() {
		defer close(o.closed)
		<-o.feed.Done()
		o.close(o.feed.Err())
	}()
	return o, nil
}

type currentLog struct{ o *shellOutput }

func (l currentLog) Write(p []byte) (int, error) { return l.o.kept.Write(p) }

// Write never fails, so that reading continues.
func (o *shellOutput) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, err := o.clean.Write(p); err != nil && o.err == nil {
		o.err = err
	}
	if !o.over {
		_, _ = o.lines.Write(p) // Lines never fails
	}
	return len(p), nil
}

// ended returns the end of the command's output and any error that made its log incomplete.
func (o *shellOutput) ended() (tail string, err error) {
	o.feed.Drain(drainTime)
	select {
	case <-o.feed.Done():
		<-o.closed
	default:
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.over { // the pipe is still open
		o.finish()
		o.background()
	}
	return o.tail.String(), o.err
}

// finish ends the command's own part. The caller holds o.mu.
func (o *shellOutput) finish() {
	o.over = true
	o.lines.Close()
	o.flow.close()
}

// background appends later output to the log, without events. Redaction continues, so that it finds a secret across the
// boundary.
func (o *shellOutput) background() {
	o.err = errors.Join(o.err, o.log.Close())
	f, err := os.OpenFile(o.c.logPath(o.name), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		o.err, o.kept = errors.Join(o.err, err), io.Discard
		return
	}
	o.log = f
	o.kept = proc.NewHead(f, o.c.limits().background)
	_, err = fmt.Fprintf(o.kept, "\n[the command has ended; the output below is from its background processes]\n")
	o.err = errors.Join(o.err, err)
}

// close is called when the last writer has closed the pipe.
func (o *shellOutput) close(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.over {
		o.finish()
	}
	o.err = errors.Join(o.err, err, o.clean.Close(), o.log.Close())
}
