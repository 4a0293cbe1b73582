package redact

import "io"

// chunk bounds what is looked at before something is written, in bytes, and
// thereby the memory of a Writer.
const chunk = 64 << 10

// Writer takes the values of a Set out of what is written to it. It holds back
// the end of the text for as long as it may be the beginning of a value, never
// more. It is not safe for concurrent use.
type Writer struct {
	set   *Set
	out   io.Writer
	state int32
	// buf holds the bytes [base, base+len(buf)) of the stream: those not written yet.
	buf  []byte
	base int64
	// hits are the covered ranges that are not written yet: disjoint, in order.
	hits []hit
	// covered ends the range whose mark has been written already.
	covered int64
	err     error
}

type hit struct {
	start, end int64
	mark       int32
}

// Writer returns a writer that passes text on to w without the values. Close
// writes what is held back; it does not close w.
func (s *Set) Writer(w io.Writer) io.WriteCloser { return &Writer{set: s, out: w} }

// In reports whether a text has any of the values.
func (s *Set) In(r io.Reader) (bool, error) {
	if s == nil || s.m == nil {
		return false, nil
	}
	w := Writer{set: s}
	buf := make([]byte, chunk)
	for {
		n, err := r.Read(buf)
		w.scan(buf[:n])
		if len(w.hits) > 0 {
			return true, nil
		}
		w.base, w.buf = w.pos(), w.buf[:0]
		switch {
		case err == io.EOF:
			return false, nil
		case err != nil:
			return false, err
		}
	}
}

// Write never writes less than it can; an error is that of the writer below,
// and stays.
func (w *Writer) Write(p []byte) (int, error) {
	if w.set == nil || w.set.m == nil {
		return w.out.Write(p)
	}
	for n := 0; n < len(p); n += chunk {
		w.scan(p[n:min(n+chunk, len(p))])
		w.advance(w.pos() - int64(w.set.m.nodes[w.state].depth))
		if w.err != nil {
			return n, w.err
		}
	}
	return len(p), nil
}

// Flush writes what is held back. A value that goes on after it is not found.
func (w *Writer) Flush() error {
	if w.set != nil && w.set.m != nil {
		w.state = 0
		w.advance(w.pos())
	}
	return w.err
}

// Close flushes.
func (w *Writer) Close() error { return w.Flush() }

func (w *Writer) pos() int64 { return w.base + int64(len(w.buf)) }

// clean reports whether nothing of text would be replaced.
func (w *Writer) clean(text string) bool {
	m, s := w.set.m, int32(0)
	for i := range len(text) {
		if s = m.step(s, text[i]); m.nodes[s].len > 0 {
			return false
		}
	}
	return true
}

func (w *Writer) scan(p []byte) {
	m, s, pos := w.set.m, w.state, w.pos()
	w.buf = append(w.buf, p...)
	for i := 0; i < len(p); i++ {
		if s == 0 { // almost always: most bytes begin nothing
			for i < len(p) && m.root[p[i]] == 0 {
				i++
			}
			if i == len(p) {
				break
			}
		}
		s = m.step(s, p[i])
		if l := m.nodes[s].len; l > 0 {
			end := pos + int64(i) + 1
			w.hit(hit{end - int64(l), end, m.nodes[s].mark})
		}
	}
	w.state = s
}

// hit adds a covered range. Ranges that overlap become one with the mark of the
// one that starts first (of two, the longer), so that no byte of any value shows.
func (w *Writer) hit(h hit) {
	for len(w.hits) > 0 {
		last := &w.hits[len(w.hits)-1]
		if h.start >= last.end {
			break
		}
		if h.start > last.start {
			last.end = h.end
			return
		}
		w.hits = w.hits[:len(w.hits)-1]
	}
	if len(w.hits) == 0 && h.start < w.covered {
		w.covered = h.end
		return
	}
	w.hits = append(w.hits, h)
}

// advance writes all that can no longer change: no range to come starts before safe.
func (w *Writer) advance(safe int64) {
	store := w.buf
	w.drop(min(w.covered, safe))
	n := 0
	for _, h := range w.hits {
		if h.start >= safe {
			break
		}
		w.emit(h.start)
		w.put(w.set.marks[h.mark])
		w.covered = h.end
		w.drop(min(h.end, safe))
		n++
	}
	w.hits = w.hits[:copy(w.hits, w.hits[n:])]
	if w.covered <= safe {
		w.emit(safe)
	}
	w.buf = store[:copy(store, w.buf)] // keep the memory, not the place in it
}

func (w *Writer) emit(to int64) {
	if n := to - w.base; n > 0 {
		w.put(w.buf[:n])
		w.drop(to)
	}
}

// drop forgets the bytes before to.
func (w *Writer) drop(to int64) {
	if n := to - w.base; n > 0 {
		w.buf = w.buf[n:]
		w.base = to
	}
}

func (w *Writer) put(p []byte) {
	if w.err == nil && len(p) > 0 {
		_, w.err = w.out.Write(p)
	}
}
