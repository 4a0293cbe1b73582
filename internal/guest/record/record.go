// Package record numbers and writes the attempt's events and accumulates its result, both redacted.
package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/atomicfile"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"

	"github.com/google/renameio/v2"
)

const (
	// queueLength bounds the events that wait for a slow reader of the container's output; further events are only in
	// the box's own copy.
	queueLength = 8192
	// fileLimit bounds that copy, in bytes. The result is always written.
	fileLimit = 64 << 20
)

// Recorder is the record of one run. Its methods are safe for concurrent use.
type Recorder struct {
	out   string // directory that is copied out of the box
	state string // directory of the partial result
	mask  Masker

	mu      sync.Mutex
	waiting bool // for Begin
	seq     int64
	result  workorder.Result
	file    *os.File
	written int64
	dropped int64
	closed  bool

	queue   chan []byte
	drained chan struct{}
}

// Options configures a Recorder.
type Options struct {
	OutDir   string    // workorder.OutDir
	StateDir string    // partial result, for rescue; never leaves the box
	Stream   io.Writer // the container's standard output
	// Waiting means that the box starts before its order: until Begin, events have no number and are only streamed.
	Waiting bool
}

const partialFile = "result.partial.json"

// New opens the record, and continues an existing one in the same directories.
func New(o Options) (*Recorder, error) {
	for _, d := range []string{
		o.OutDir, filepath.Join(o.OutDir, workorder.LogsDir), filepath.Join(o.OutDir, workorder.EvidenceDir), o.StateDir,
	} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, fmt.Errorf("open record: %w", err)
		}
	}
	f, err := os.OpenFile(filepath.Join(o.OutDir, workorder.EventsFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open record: %w", err)
	}
	r := &Recorder{
		out: o.OutDir, state: o.StateDir, file: f, waiting: o.Waiting,
		queue: make(chan []byte, queueLength), drained: make(chan struct{}),
	}
	r.result = workorder.Result{Version: workorder.Version, StartedAt: time.Now().UTC()}
	if b, err := os.ReadFile(filepath.Join(o.StateDir, partialFile)); err == nil {
		var p partial
		if json.Unmarshal(b, &p) == nil {
			r.result, r.seq = p.Result, max(p.Seq, lastSeq(f.Name()))
		}
	}
	r.keepReserve()
	go r.stream(o.Stream)
	return r, nil
}

// lastSeq returns the number of the last whole event in a file of events, 0 if there is none.
func lastSeq(path string) int64 {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return 0
	}
	// The last event is no longer than its text, escaped, and some fields.
	b := make([]byte, min(st.Size(), 16*workorder.MaxEventText))
	if _, err := f.ReadAt(b, st.Size()-int64(len(b))); err != nil {
		return 0
	}
	var seq int64
	for line := range bytes.Lines(b) {
		if e, err := workorder.DecodeEvent(line); err == nil {
			seq = max(seq, e.Seq)
		}
	}
	return seq
}

type partial struct {
	Seq    int64            `json:"seq"`
	Result workorder.Result `json:"result"`
}

func (r *Recorder) stream(w io.Writer) {
	defer close(r.drained)
	for line := range r.queue {
		if _, err := w.Write(line); err != nil {
			// The stream has no reader left; the copy in the box has all of it.
			for range r.queue {
			}
			return
		}
	}
}

// SetMask sets the masker once the secrets are known.
func (r *Recorder) SetMask(m Masker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mask = m
}

// Begin starts the record of an attempt in a box that was waiting for it.
func (r *Recorder) Begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = false
	warnings := r.result.Warnings
	r.result = workorder.Result{Version: workorder.Version, StartedAt: time.Now().UTC(), Standby: true, Warnings: warnings}
	for _, text := range warnings {
		r.emit(workorder.Event{Type: workorder.EventWarning, Text: text})
	}
	r.save()
}

// Flush ends the record of a box that got no order.
func (r *Recorder) Flush() {
	r.mu.Lock()
	r.close()
}

// Emit numbers, masks and writes an event. It never blocks on the reader.
func (r *Recorder) Emit(e workorder.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.emit(e)
}

func (r *Recorder) emit(e workorder.Event) {
	if r.closed {
		return
	}
	if e.Type == workorder.EventAgentUsage && e.Usage != nil {
		// The last report counts if the agent's end is never seen. Some reports contain only the cost.
		u := *e.Usage
		if was := r.result.Usage; u.InputTokens+u.OutputTokens+u.CacheReadTokens+u.CacheWriteTokens == 0 {
			u.InputTokens, u.OutputTokens = was.InputTokens, was.OutputTokens
			u.CacheReadTokens, u.CacheWriteTokens = was.CacheReadTokens, was.CacheWriteTokens
		}
		r.result.Usage = u
	}
	e.Time = time.Now().UTC()
	if !r.waiting {
		e.Seq = r.seq + 1
	}
	e.Text, e.Name, e.Path, e.ID = r.masked(e.Text), r.masked(e.Name), r.masked(e.Path), r.masked(e.ID)
	e.Text, e.Name, e.ID = text.Cut(e.Text, workorder.MaxEventText), text.Cut(e.Name, maxName), text.Cut(e.ID, maxName)
	line, err := json.Marshal(e)
	if err != nil {
		return // an Event is plain data: this cannot happen
	}
	line = append(line, '\n')
	r.seq = e.Seq
	if !r.waiting && (e.Type == workorder.EventResult || r.written < fileLimit) {
		n, _ := r.file.Write(line) // a full disk must not end the run
		r.written += int64(n)
	}
	select {
	case r.queue <- line:
	default:
		r.dropped++
	}
}

// maxName bounds the name and id of an event, in bytes: some come from the agent.
const maxName = 1 << 10

// Update changes the result under the lock and saves the partial result.
func (r *Recorder) Update(f func(*workorder.Result)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.result)
	r.save()
}

// Result returns a deep copy of the current result, safe to read while the run continues.
func (r *Recorder) Result() workorder.Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.result.Clone()
}

// save writes the partial result. It is best effort: it only helps rescue.
func (r *Recorder) save() {
	b, err := json.Marshal(partial{Seq: r.seq, Result: r.result})
	if err == nil {
		_ = atomicfile.Write(filepath.Join(r.state, partialFile), b, 0o644)
	}
}

// Warn records a warning in the events and the result.
func (r *Recorder) Warn(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.emit(workorder.Event{Type: workorder.EventWarning, Text: text})
	r.result.Warnings = append(r.result.Warnings, r.masked(text))
}

func (r *Recorder) masked(s string) string {
	if r.mask == nil {
		return s
	}
	return r.mask.String(s)
}

// Declare puts the steps into the result in their order, before any starts.
func (r *Recorder) Declare(names ...workorder.StepName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range names {
		r.result.Steps = append(r.result.Steps, workorder.Step{Name: n, Status: workorder.StepSkipped, Error: "not reached"})
	}
}

// Unreached records why declared steps that have not started will not start.
func (r *Recorder) Unreached(why string, names ...workorder.StepName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range names {
		r.step(n).Error = r.masked("not reached: " + why)
	}
	r.save()
}

// StepStarted records the start of a declared step.
func (r *Recorder) StepStarted(name workorder.StepName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.step(name)
	*s = workorder.Step{Name: name, Status: workorder.StepRunning, StartedAt: time.Now().UTC()}
	r.emit(workorder.Event{Type: workorder.EventStepStarted, Name: string(name)})
	r.save()
}

// StepFinished records the end of a step: nil is done, a *Skip is skipped, anything else failed. exitCode may be nil.
func (r *Recorder) StepFinished(name workorder.StepName, err error, exitCode *int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.step(name)
	if err != nil && exitCode != nil && *exitCode == 0 {
		exitCode = nil // it did not decide the step: a stopped agent may exit with 0
	}
	s.ExitCode = exitCode
	if !s.StartedAt.IsZero() {
		s.DurationMS = time.Since(s.StartedAt).Milliseconds()
	}
	skip, skipped := errors.AsType[*Skip](err)
	switch {
	case err == nil:
		s.Status, s.Error = workorder.StepDone, ""
	case skipped:
		s.Status, s.Error = workorder.StepSkipped, skip.Reason
	default:
		s.Status, s.Error = workorder.StepFailed, r.masked(err.Error())
	}
	r.emit(workorder.Event{
		Type: workorder.EventStepFinished, Name: string(name), Status: string(s.Status),
		DurationMS: s.DurationMS, Text: s.Error, ExitCode: exitCode,
	})
	r.save()
}

func (r *Recorder) step(name workorder.StepName) *workorder.Step {
	if s := r.result.Step(name); s != nil {
		return s
	}
	r.result.Steps = append(r.result.Steps, workorder.Step{Name: name})
	return &r.result.Steps[len(r.result.Steps)-1]
}

// Skip is the "error" of a step that had no work.
type Skip struct{ Reason string }

func (s *Skip) Error() string { return "skipped: " + s.Reason }

// flushTime bounds the wait for a reader of the last events.
const flushTime = 2 * time.Second

// Finish writes result.json atomically, emits the result event and waits briefly for the stream. It closes the
// Recorder; the first call wins.
func (r *Recorder) Finish(final func(*workorder.Result)) error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil
	}
	_ = os.Remove(filepath.Join(r.state, reserveFile))
	final(&r.result)
	res := &r.result
	res.DurationMS = time.Since(res.StartedAt).Milliseconds()
	res.Resumable = res.Mode.Resumable(res.Status, res.EndedBy)
	for i := range res.Steps {
		if s := &res.Steps[i]; s.Status == workorder.StepRunning {
			s.Status, s.Error = workorder.StepFailed, "the run ended in this step"
			s.DurationMS = time.Since(s.StartedAt).Milliseconds()
		}
	}
	if r.dropped > 0 {
		res.Warnings = append(
			res.Warnings, fmt.Sprintf("%d events were not streamed because the reader was too slow; %s has them", r.dropped, workorder.EventsFile),
		)
	}
	maskResult(res, r.mask)
	b, err := res.Encode()
	if err != nil {
		// Only the cost can be a value without a JSON form. A result without it is better than none.
		res.Usage.CostUSD, res.Usage.CostSource = nil, ""
		res.Warnings = append(res.Warnings, "the agent's cost was left out: "+err.Error())
		b, err = res.Encode()
	}
	if err == nil {
		err = renameio.WriteFile(filepath.Join(r.out, workorder.ResultFile), b, 0o644,
			renameio.WithTempDir(r.out), renameio.WithStaticPermissions(0o644))
	}
	r.emit(workorder.Event{Type: workorder.EventResult, Status: string(res.Status), Result: res})
	r.close()
	return err
}

// close unlocks the record and waits for the stream.
func (r *Recorder) close() {
	r.closed = true
	_ = r.file.Sync()
	_ = r.file.Close()
	close(r.queue)
	r.mu.Unlock()
	select {
	case <-r.drained:
	case <-time.After(flushTime):
	}
}
