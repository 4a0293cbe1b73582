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
	// drainTime is how long after a command's end its output may stay open in the
	// hands of processes that it left in the background. Output within it counts as the
	// command's own: it may be of a child that is about to end.
	drainTime = 500 * time.Millisecond
	// backgroundLog bounds what is kept, in bytes, of what such processes print
	// later. It is enough for a server's complaints; the rest is read and dropped.
	backgroundLog = 4 << 20
)

// shellOutput takes the output of one shell command, and after the command's end
// that of the processes it left in the background. Those have the pipe as their standard
// output for as long as they live: were it closed on them, a server that setup
// started would die at the next line it logs.
type shellOutput struct {
	c      *Config
	name   string // of the log, relative to Config.OutDir
	feed   *proc.Feed
	closed chan struct{} // nobody has the pipe any more, and the log is closed

	mu    sync.Mutex
	log   io.Closer // where kept writes
	kept  io.Writer // changes with the command's end
	tail  *proc.Tail
	clean io.WriteCloser // before kept
	lines *text.Lines
	flow  *flow
	over  bool // the command has ended
	err   error
}

// newShellOutput reads r, the end of a pipe, until the last writer is gone.
func (c *Config) newShellOutput(cmd ShellCommand, r *os.File) (*shellOutput, error) {
	log, err := c.logFile(cmd.Log)
	if err != nil {
		return nil, err
	}
	o := &shellOutput{c: c, name: cmd.Log, closed: make(chan struct{}), log: log, tail: proc.NewTail(tailSize)}
	o.kept = io.MultiWriter(log, o.tail)
	o.clean = c.Redact.Writer(keeper{o})
	o.flow = newFlow(c.emit, cmd.Log, func(text string) workorder.Event {
		return workorder.Event{Type: workorder.EventOutput, Name: cmd.Name, Text: text}
	})
	o.lines = text.NewLines(text.MaxLine, func(line []byte, _ int64) {
		if len(line) > 0 && o.flow.allow(len(line)) {
			c.emit(workorder.Event{Type: workorder.EventOutput, Name: cmd.Name, Text: string(line[:min(len(line), redactWindow)])})
		}
	})
	o.feed = proc.NewFeed(r, o)
	go func() {
		defer close(o.closed)
		<-o.feed.Done()
		o.close(o.feed.Err())
	}()
	return o, nil
}

// keeper writes to what shellOutput.kept is at the moment.
type keeper struct{ o *shellOutput }

func (k keeper) Write(p []byte) (int, error) { return k.o.kept.Write(p) }

// Write never fails: the reading must go on.
func (o *shellOutput) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, err := o.clean.Write(p); err != nil && o.err == nil {
		o.err = err
	}
	if !o.over {
		_, _ = o.lines.Write(p) // Lines does not fail
	}
	return len(p), nil
}

// ended is called when the command has ended. It returns the end of its output
// and what kept its log from being complete.
func (o *shellOutput) ended() (tail string, err error) {
	o.feed.Settle(drainTime)
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

// finish ends the command's own part. o.mu is held.
func (o *shellOutput) finish() {
	o.over = true
	o.lines.Close()
	o.flow.close()
}

// background makes what is still to come go behind the command's log, which is
// complete and in order now, without events. Text that the redaction holds back at this moment
// stays held back, so that a value is found on both sides of the border.
func (o *shellOutput) background() {
	o.err = errors.Join(o.err, o.log.Close())
	f, err := os.OpenFile(o.c.logPath(o.name), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		o.err, o.kept = errors.Join(o.err, err), io.Discard
		return
	}
	o.log = f
	o.kept = proc.NewHead(f, o.c.limits().background)
	_, err = fmt.Fprintf(o.kept, "\n[the command has ended; what follows is from processes that it left in the background]\n")
	o.err = errors.Join(o.err, err)
}

// close is called when the pipe has no writer any more.
func (o *shellOutput) close(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.over {
		o.finish()
	}
	o.err = errors.Join(o.err, err, o.clean.Close(), o.log.Close())
}
