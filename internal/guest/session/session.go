// Package session runs persistent interpreters and executes cells of code in each, one after the other.
//
// A driver in the interpreter's language reads cells from descriptor 3 and reports on descriptor 4 how each ended. Processes that a cell
// starts inherit neither, and output has separate pipes, so that a cell cannot disturb the protocol by accident.
package session

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/guest/supervise"
	"github.com/sandbox-agent/sandbox-agent/internal/guest/wirehttp"
	"github.com/sandbox-agent/sandbox-agent/wire"
)

const (
	// readyTime bounds an interpreter's start: a Jupyter kernel takes three seconds on an idle machine.
	readyTime = 60 * time.Second
	// interruptGrace is how long a cell may take to end after the interrupt; then the session is killed.
	interruptGrace = 2 * time.Second
	// endTime bounds the wait for an interpreter that has announced its end, and for one that was killed.
	endTime = 5 * time.Second
	// lastTime is the time to read remaining output of an interpreter that has ended.
	lastTime = 200 * time.Millisecond
	// maxLine bounds one message of a driver, in bytes; a picture is one line.
	maxLine = wire.MaxDocument
)

type session struct {
	spec     wire.SessionSpec
	run      *supervise.Process
	req      *os.File
	out      [2]*stream         // standard output and error
	messages chan driverMessage // messages of the driver; closed at its end
	turn     chan struct{}
	over     chan struct{}  // closed when the interpreter has ended
	exit     supervise.Exit // valid once over is closed
	started  time.Time

	mu     sync.Mutex
	used   time.Time
	cells  int
	busy   bool
	began  bool // the cell can be interrupted
	early  bool // and will be, once it can
	broken bool // an interrupt was requested
}

type driverMessage struct {
	Ready    bool                       `json:"ready"`
	Began    bool                       `json:"began"` // from here on an interrupt reaches the cell
	ID       int                        `json:"id"`
	OK       bool                       `json:"ok"`
	Value    string                     `json:"value"`
	Error    string                     `json:"error"`
	Message  string                     `json:"message"`
	Code     int                        `json:"code"`
	Exit     *int                       `json:"exit"`
	Display  map[string]json.RawMessage `json:"display"`
	Metadata json.RawMessage            `json:"metadata"`
	Result   bool                       `json:"result"`
}

// Config sets where, and as which user, interpreters run: like commands.
type Config struct {
	Self      string
	Reap      []string
	User      *supervise.User
	Dir       string
	Env       []string // NAME=value
	DataBytes uint64
	OOMKills  func() int
}

// open starts an interpreter and waits until it is ready.
func open(ctx context.Context, c Config, spec wire.SessionSpec) (*session, error) {
	argv, first, err := all[spec.Driver].start(spec)
	if err != nil {
		return nil, wirehttp.Failed("start the interpreter", err)
	}
	dir := spec.Dir
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(c.Dir, dir)
	}
	s := &session{
		spec: spec, messages: make(chan driverMessage), turn: make(chan struct{}, 1), over: make(chan struct{}), started: time.Now(),
		used: time.Now(),
	}
	lines, err := s.start(ctx, c, supervise.Spec{
		Argv: argv, Dir: dir, Env: slices.Concat(c.Env, []string{"PWD=" + dir}, spec.Env), User: c.User, DataBytes: c.DataBytes, Whole: true,
	})
	if err != nil {
		return nil, wirehttp.Failed("start the interpreter", err)
	}
	go s.listen(lines)
	go func() {
		s.exit, _ = s.run.Wait() // if the supervisor was killed, so was the interpreter
		_ = s.req.Close()
		last := time.Now().Add(lastTime)
		for _, f := range []*os.File{lines, s.out[0].f, s.out[1].f} {
			_ = f.SetReadDeadline(last) // a pipe supports deadlines
		}
		close(s.over)
	}()
	var printed []byte
	var mu sync.Mutex // guards printed, to which both streams append
	for _, st := range s.out {
		st.begin(func(p []byte) {
			mu.Lock()
			defer mu.Unlock()
			if len(printed) < maxBetween {
				printed = append(printed, p...)
			}
		})
		go st.follow()
	}
	go func() { _, _ = s.req.Write(first) }() // an interpreter that does not read it does not become ready
	timer := time.NewTimer(readyTime)
	defer timer.Stop()
	why := ""
	select {
	case l, ok := <-s.messages:
		if ok && l.Ready {
			for _, st := range s.out {
				st.end()
			}
			return s, nil
		}
		why = "it ended immediately"
		select {
		case <-s.over:
		case <-time.After(endTime):
		}
	case <-timer.C:
		why = fmt.Sprintf("it is not ready after %s", readyTime)
	case <-ctx.Done():
		why = context.Cause(ctx).Error()
	}
	s.close()
	for _, st := range s.out {
		st.end()
	}
	select {
	case <-s.over:
		if s.exit.Error != "" {
			why = s.exit.Error
		}
	default:
	}
	const most = 300 // its last line has the reason, and clients cut an error to 500 characters
	if n := len(printed); n > most {
		printed = printed[n-most:]
	}
	return nil, &wire.Error{Code: wire.CodeFailed, Text: fmt.Sprintf("start the interpreter %s: %s: %s", argv[0], why, printed)}
}

// start starts the process with its pipes, and returns the driver's messages.
func (s *session) start(ctx context.Context, c Config, spec supervise.Spec) (lines *os.File, err error) {
	var theirs, ours []*os.File
	defer func() {
		for _, f := range theirs {
			_ = f.Close()
		}
		if err != nil {
			for _, f := range ours {
				_ = f.Close()
			}
		}
	}()
	pipe := func(theyRead bool) {
		r, w, perr := os.Pipe()
		if perr != nil {
			err = errors.Join(err, perr)
			return
		}
		if theyRead {
			theirs, ours = append(theirs, r), append(ours, w)
		} else {
			theirs, ours = append(theirs, w), append(ours, r)
		}
	}
	pipe(true) // cells
	for range 3 {
		pipe(false) // results, output, errors
	}
	if err != nil {
		return nil, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	for i := range s.out {
		if s.out[i], err = newStream(ours[2+i]); err != nil {
			return nil, err
		}
	}
	if s.run, err = supervise.Start(ctx, c.Self, c.Reap, spec, null, theirs[2], theirs[3], theirs[0], theirs[1]); err != nil {
		return nil, err
	}
	s.req = ours[0]
	return ours[1], nil
}

// listen forwards the driver's messages until their end, or an invalid one.
func (s *session) listen(f *os.File) {
	defer f.Close()
	defer close(s.messages)
	r := bufio.NewReaderSize(f, 64<<10)
	for {
		var line []byte
		for {
			part, err := r.ReadSlice('\n')
			line = append(line, part...)
			if err == nil {
				break
			}
			if len(line) > maxLine {
				s.close() // no driver sends that much
				return
			}
			if !errors.Is(err, bufio.ErrBufferFull) {
				return
			}
		}
		var l driverMessage
		if json.Unmarshal(line, &l) != nil {
			continue // written by a cell
		}
		select {
		case s.messages <- l:
		case <-s.over:
			select { // messages before its end count
			case s.messages <- l:
			case <-time.After(endTime):
				return
			}
		}
	}
}

// close ends the interpreter with all processes that it started.
func (s *session) close() { s.run.End(0, 0) }

// interrupt sends SIGINT if a cell runs.
func (s *session) interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy {
		s.broken = true
		s.signal()
	}
}

// signal interrupts the cell, now or as soon as it has begun. The caller holds the lock.
func (s *session) signal() {
	if s.began {
		s.run.Signal(syscall.SIGINT)
	} else {
		s.early = true
	}
}

// hasBegun delivers an interrupt that came early.
func (s *session) hasBegun() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began = true
	if s.early {
		s.run.Signal(syscall.SIGINT)
	}
}

func (s *session) document() wire.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return wire.Session{ID: s.spec.ID, Driver: s.spec.Driver, Started: s.started, Used: s.used, Cells: s.cells, Busy: s.busy}
}

func (s *session) ended() bool {
	select {
	case <-s.over:
		return true
	default:
		return false
	}
}

// output receives what a cell prints and shows. Its calls are sequential.
type output interface {
	Print(t wire.FrameType, p []byte)
	Show(d wire.Display)
}

// cell runs one cell. The caller must hold the session's turn. When ctx ends, the cell is interrupted.
func (s *session) cell(ctx context.Context, kills func() int, what wire.Cell, code []byte, out output) wire.CellEnd {
	began, killed := time.Now(), kills()
	s.mu.Lock()
	s.cells++
	id := s.cells
	s.busy, s.began, s.early, s.broken, s.used = true, false, false, false, began
	s.mu.Unlock()
	for i, t := range []wire.FrameType{wire.FrameStdout, wire.FrameStderr} {
		s.out[i].begin(func(p []byte) { out.Print(t, p) })
	}
	go func() {
		// An error is visible as the interpreter's end.
		_, _ = s.req.Write(append(fmt.Appendf(nil, "%d %d\n", id, len(code)), code...))
	}()
	end := s.wait(ctx, id, what, out)
	for _, st := range s.out {
		st.end()
	}
	s.mu.Lock()
	s.busy, s.used = false, time.Now()
	end.Interrupted = s.broken && !end.TimedOut && !end.OK
	s.mu.Unlock()
	end.DurationMS = time.Since(began).Milliseconds()
	if end.Ended && !end.TimedOut && end.Code == 128+int(syscall.SIGKILL) && kills() > killed {
		end.OutOfMemory = true
	}
	return end
}

func (s *session) wait(ctx context.Context, id int, what wire.Cell, out output) (end wire.CellEnd) {
	var over, kill <-chan time.Time
	if what.TimeoutMS > 0 {
		t := time.NewTimer(time.Duration(what.TimeoutMS) * time.Millisecond)
		defer t.Stop()
		over = t.C
	}
	left := ctx.Done()
	timedOut := false
	said := s.messages
	var ended <-chan struct{}
	hurry := func() {
		s.mu.Lock()
		s.signal()
		s.mu.Unlock()
		kill = time.After(interruptGrace)
	}
	for {
		select {
		case <-ended:
			end := wire.CellEnd{Ended: true, Error: "SessionEnded", Code: s.exit.Code}
			end.TimedOut = timedOut
			return end
		case l, ok := <-said:
			switch {
			case !ok: // the interpreter has ended, or has replaced itself by exec
				said, ended = nil, s.over
			case l.ID != id: // the end of an earlier cell, or of none
			case l.Began:
				s.hasBegun()
			case l.Display != nil:
				for _, st := range s.out { // output printed before it must precede it
					st.catchUp()
				}
				out.Show(wire.Display{Data: l.Display, Metadata: l.Metadata, Result: l.Result})
			default:
				return s.ending(l, timedOut)
			}
		case <-over:
			over, timedOut = nil, true
			hurry()
		case <-left:
			left = nil
			s.mu.Lock()
			s.broken = true
			s.mu.Unlock()
			hurry()
		case <-kill:
			kill = nil
			s.close()
		}
	}
}

func (s *session) ending(l driverMessage, timedOut bool) wire.CellEnd {
	const most = 255
	end := wire.CellEnd{OK: l.OK && !timedOut, Value: l.Value, Error: l.Error, Message: l.Message, Code: l.Code & most, TimedOut: timedOut}
	if l.Exit != nil {
		end.OK, end.Ended, end.Code = false, true, *l.Exit&most
		s.close()
		select {
		case <-s.over:
		case <-time.After(endTime):
		}
		return end
	}
	if !l.OK && end.Code == 0 {
		end.Code = 1
	}
	return end
}

func readCode(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, wire.MaxCode+1))
	if err != nil {
		return nil, &wire.Error{Code: wire.CodeBadRequest, Text: "read the code: " + err.Error()}
	}
	if len(b) > wire.MaxCode {
		return nil, &wire.Error{Code: wire.CodeBadRequest, Text: fmt.Sprintf("the code exceeds %d bytes", wire.MaxCode)}
	}
	return b, nil
}
