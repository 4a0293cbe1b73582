package outcome

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// maxLine bounds a line of the record. The largest event has a whole result; a longer line is dropped to bound memory.
const maxLine = 16 << 20

// Recorder writes each of the run's events once to events.jsonl, as it arrives, and shows it. It can continue the file of a dead process.
type Recorder struct {
	f      *os.File  // nil if events are only shown
	last   int64     // highest Seq in the file
	At     time.Time // time of the event last
	result *workorder.Result
	Show   func(workorder.Event)
	lines  *text.Lines
	Err    error
}

// NewDisplayRecorder returns a Recorder that only shows events.
func NewDisplayRecorder(show func(workorder.Event)) *Recorder {
	r := &Recorder{Show: show}
	r.lines = text.WholeLines(maxLine, r.line)
	return r
}

// OpenRecorder opens the record in a directory and continues after its last whole line. It calls show for each new event.
func OpenRecorder(dir string, show func(workorder.Event)) (*Recorder, error) {
	// A deleted directory must not prevent stopping or collecting the box.
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the output directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, workorder.EventsFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the record of the run: %w", err)
	}
	r := NewDisplayRecorder(func(workorder.Event) {})
	r.f = f
	end, err := readEvents(f, r.note)
	if err == nil {
		// Anything after the last whole line was cut off with its writer.
		err = f.Truncate(end)
	}
	if err == nil {
		_, err = f.Seek(end, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("read the record of the run: %w", err)
	}
	if show != nil {
		r.Show = show
	}
	return r, nil
}

// note updates the state for restarts and for the result.
func (r *Recorder) note(e workorder.Event) {
	if e.Seq > r.last {
		r.last, r.At = e.Seq, e.Time
	}
	if e.Type == workorder.EventResult && e.Result != nil {
		r.result = e.Result
	}
}

// Write takes any piece of the box's standard output.
func (r *Recorder) Write(p []byte) (int, error) {
	n, _ := r.lines.Write(p)
	return n, r.Err
}

// Restart drops a partial line: the next stream begins with a whole one.
func (r *Recorder) Restart() { r.lines.Restart() }

func (r *Recorder) line(b []byte) {
	e, err := workorder.DecodeEvent(b)
	if err != nil || e.Seq <= r.last || e.Type == "" {
		return // not an event, or a duplicate
	}
	r.note(e)
	if r.Err == nil && r.f != nil {
		_, r.Err = r.f.Write(append(text.EscapeControls(b), '\n'))
	}
	r.Show(e)
}

// Close flushes the record to the disk.
func (r *Recorder) Close() error {
	err := errors.Join(r.Err, r.f.Sync(), r.f.Close())
	if err != nil {
		return fmt.Errorf("write the record of the run: %w", err)
	}
	return nil
}

// readEvents calls fn for every whole line of r and returns the end of the last one.
func readEvents(r io.Reader, fn func(workorder.Event)) (end int64, err error) {
	br := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := br.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return end, nil
		}
		if err != nil {
			return end, err
		}
		end += int64(len(line))
		if e, err := workorder.DecodeEvent(line); err == nil && e.Type != "" {
			fn(e)
		}
	}
}

// Events calls fn for every event recorded in the task's output directory. A missing record has no events.
func Events(dir string, fn func(workorder.Event)) error {
	f, err := os.Open(filepath.Join(dir, workorder.EventsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the record of the run: %w", err)
	}
	defer f.Close()
	if _, err := readEvents(f, fn); err != nil {
		return fmt.Errorf("read the record of the run: %w", err)
	}
	return nil
}

// HostEventsFile is the file of the host's own events. The box's record does not contain them: its numbers have no gaps.
const HostEventsFile = "host-events.jsonl"

// NoteHostEvent records an event of the host.
func NoteHostEvent(dir string, e workorder.Event) error {
	if e.Type == workorder.EventResult {
		e.Result = nil // result.json has it
	}
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, HostEventsFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text.EscapeControls(b), '\n'))
	return errors.Join(err, f.Close())
}

// HostEvents reads the host's own events.
func HostEvents(dir string) (list []workorder.Event, err error) {
	f, err := os.Open(filepath.Join(dir, HostEventsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the record of the host: %w", err)
	}
	defer f.Close()
	if _, err := readEvents(f, func(e workorder.Event) { list = append(list, e) }); err != nil {
		return nil, fmt.Errorf("read the record of the host: %w", err)
	}
	return list, nil
}

// Interleave shows the host's events between those of the box, by time. rest shows the remaining ones.
func Interleave(host []workorder.Event, show func(workorder.Event)) (box func(workorder.Event), rest func()) {
	box = func(e workorder.Event) {
		for len(host) > 0 && !host[0].Time.After(e.Time) {
			show(host[0])
			host = host[1:]
		}
		show(e)
	}
	return box, func() {
		for _, e := range host {
			show(e)
		}
	}
}

// MergeEvents adds to the record in root the events that only the box's own copy has: a broken stream loses some. Both are
// sorted by number, so one pass with one line of each in memory is enough.
func MergeEvents(root *os.Root, box io.Reader) (err error) {
	const merged = ".events.merged"
	have, err := root.OpenFile(workorder.EventsFile, os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("merge the record of the run: %w", err)
	}
	defer have.Close()
	f, err := root.OpenFile(merged, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("merge the record of the run: %w", err)
	}
	w := bufio.NewWriterSize(f, 64<<10)
	added, err := mergeLines(w, newEventLines(have), newEventLines(box))
	if err = errors.Join(err, w.Flush(), f.Sync(), f.Close()); err == nil && added {
		err = root.Rename(merged, workorder.EventsFile)
	} else {
		err = errors.Join(err, root.Remove(merged))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("merge the record of the run: %w", err)
	}
	return nil
}

// mergeLines merges both in order. For an event in both it writes the line of have.
func mergeLines(w io.Writer, have, box *eventLines) (added bool, err error) {
	err = errors.Join(have.next(), box.next())
	for err == nil && (have.seq > 0 || box.seq > 0) {
		switch {
		case have.seq > 0 && (box.seq == 0 || have.seq <= box.seq):
			same := have.seq == box.seq
			_, err = w.Write(have.line)
			err = errors.Join(err, have.next())
			if same {
				err = errors.Join(err, box.next())
			}
		default:
			added = true
			_, err = w.Write(text.EscapeControls(box.line))
			err = errors.Join(err, box.next())
		}
	}
	return added, err
}

// eventLines reads the events of a record with rising numbers. It skips lines that are not events, too long or cut off.
type eventLines struct {
	br   *bufio.Reader
	line []byte // with its line feed
	seq  int64  // 0 at the end
}

func newEventLines(r io.Reader) *eventLines { return &eventLines{br: bufio.NewReaderSize(r, 64<<10)} }

func (l *eventLines) next() error {
	last := l.seq
	for {
		err := l.read()
		if errors.Is(err, io.EOF) {
			l.seq = 0
			return nil
		}
		if err != nil {
			return err
		}
		if e, err := workorder.DecodeEvent(l.line); err == nil && e.Type != "" && e.Seq > last {
			l.seq = e.Seq
			return nil
		}
	}
}

// read reads a line; a too long one is read as empty.
func (l *eventLines) read() error {
	l.line = l.line[:0]
	over := false
	for {
		part, err := l.br.ReadSlice('\n')
		if over = over || len(l.line)+len(part) > maxLine; !over {
			l.line = append(l.line, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if over {
			l.line = l.line[:0]
		}
		return err
	}
}
