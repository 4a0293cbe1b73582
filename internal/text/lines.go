package text

import "bytes"

// MaxLine bounds what is kept of a line that an agent or a test prints, in bytes. Agents print whole files
// and pictures as one JSON line; their events that matter (a result with its denied tool
// calls and a long last answer) stay below, and the rest of a longer line is in the log only.
const MaxLine = 16 << 20

// keptLine is the buffer that is kept from line to line, in bytes; a larger one,
// grown for one long line, is given back.
const keptLine = 64 << 10

// Lines is a writer that cuts a stream into lines, without their ends, and never
// fails. A line is passed on in one piece; what exceeds the bound is counted, not kept.
// It is not safe for concurrent use.
type Lines struct {
	most int
	line func(line []byte, lost int64)
	buf  []byte
	lost int64
}

// NewLines returns a Lines that calls line for each line, with at most so many bytes of it. The bytes are valid
// during the call; lost is the number of further ones.
func NewLines(most int, line func(line []byte, lost int64)) *Lines {
	return &Lines{most: most, line: line}
}

// WholeLines is NewLines for what makes no sense in part: a line that is too long is passed over.
func WholeLines(most int, line func(line []byte)) *Lines {
	return NewLines(most, func(b []byte, lost int64) {
		if lost == 0 {
			line(b)
		}
	})
}

func (w *Lines) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		switch {
		case i < 0:
			w.keep(p)
			return n, nil
		case len(w.buf) == 0 && i <= w.most:
			w.line(trimCR(p[:i]), 0) // the whole line lies in p: no copy
		default:
			w.keep(p[:i])
			w.flush()
		}
		p = p[i+1:]
	}
	return n, nil
}

func (w *Lines) keep(p []byte) {
	room := min(w.most-len(w.buf), len(p))
	w.buf = append(w.buf, p[:room]...)
	w.lost += int64(len(p) - room)
}

func (w *Lines) flush() {
	w.line(trimCR(w.buf), w.lost)
	w.Restart()
	if cap(w.buf) > keptLine {
		w.buf = nil
	}
}

// Restart forgets the line that has begun.
func (w *Lines) Restart() { w.buf, w.lost = w.buf[:0], 0 }

// Close passes on a last line without an end.
func (w *Lines) Close() {
	if len(w.buf) > 0 {
		w.flush()
	}
}

func trimCR(b []byte) []byte { return bytes.TrimSuffix(b, []byte{'\r'}) }
