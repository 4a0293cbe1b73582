package journal

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// MergeEvents adds to the record in root the events that only the box's own copy has: a stream
// without a reader, or one that broke, loses some. Both are sorted by number, so one pass with
// one line of each in memory is enough.
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

// mergeLines merges both in order. Of an event in both it writes the one of have.
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

// eventLines reads the events of a record with rising numbers. It skips lines that are no
// event, too long or cut off.
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

// read reads a line; one that is too long is read as empty.
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
