package text

import "bytes"

// MaxLine bounds a kept line of an agent or a test, in bytes: agents print whole files as one JSON line. The log has the rest.
const MaxLine = 16 << 20

// keptLine is the size of the reused buffer, in bytes; a larger one is released.
const keptLine = 64 << 10

// Lines is a writer that cuts a stream into lines, without their ends, and never fails. Bytes beyond the bound are
// counted, not kept. It is not safe for concurrent use.
type Lines struct {
	most int
	line func(line []byte, lost int64)
	buf  []byte
	lost int64
}

// NewLines returns a Lines that calls line with at most most bytes of each line, valid during the call; lost counts the
// other bytes.
func NewLines(most int, line func(line []byte, lost int64)) *Lines {
	return &Lines{most: most, line: line}
}

// WholeLines is NewLines without lines that are too long.
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

// Restart drops an unfinished line.
func (w *Lines) Restart() { w.buf, w.lost = w.buf[:0], 0 }

// Close passes on a last line without an end.
func (w *Lines) Close() {
	if len(w.buf) > 0 {
		w.flush()
	}
}

func trimCR(b []byte) []byte { return bytes.TrimSuffix(b, []byte{'\r'}) }
