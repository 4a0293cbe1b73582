package gateway

import (
	"bytes"
	"mime"
	"net/http"
	"strings"
)

const (
	// maxLine bounds one line of a stream, in bytes. The last event of a response
	// repeats all of it; a longer line passes unread.
	maxLine = 16 << 20
	// maxJSON bounds an answer in one piece, in bytes: a thousand embeddings have thirty megabytes.
	// A longer one passes unread.
	maxJSON = 64 << 20
)

// meter reads a copy of an answer.
type meter struct {
	reading
	shape  shape
	stream bool
	// off means that the meter cannot read the answer.
	off bool
	// line is the unfinished line of a stream; skip means that the rest of it is dropped.
	line []byte
	skip bool
	data []byte // of the event so far
	hold *part  // the memory of line and data
}

// newMeter selects how to read the answer by its header.
func newMeter(s shape, h http.Header, hold *part) *meter {
	m := &meter{shape: s, hold: hold}
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	switch {
	case err != nil && kind == "":
		m.off = true
	case kind == "text/event-stream":
		m.stream = true
	case kind == "application/json" || strings.HasSuffix(kind, "+json"):
	default:
		m.off = true
	}
	return m
}

// whole reads an answer in one piece.
func (m *meter) whole(b []byte) {
	if m.off {
		return
	}
	m.shape.object(&m.reading, b)
}

// write reads a piece of a stream, split anywhere.
func (m *meter) write(p []byte) {
	for len(p) > 0 && !m.off {
		i := bytes.IndexByte(p, '\n')
		part := p
		if i >= 0 {
			part = p[:i]
		}
		switch {
		case m.skip:
		case len(m.line)+len(part) > maxLine || (i < 0 || len(m.line) > 0) && !m.keep(len(part)):
			m.line, m.skip = nil, true
			m.bad = true
		case i >= 0 && len(m.line) == 0:
			m.endLine(part)
		default:
			m.line = append(m.line, part...)
			if i >= 0 {
				m.endLine(m.line)
				m.line = m.line[:0]
				if cap(m.line) > maxLine/16 {
					m.line = nil // do not keep the memory of one long line
				}
			}
		}
		if i < 0 {
			return
		}
		m.skip = false
		p = p[i+1:]
	}
}

// keep makes room for n more bytes of an unfinished line or event.
func (m *meter) keep(n int) bool {
	need := int64(cap(m.line) + cap(m.data) + 2*n) // an append may double
	return m.hold.resize((need + chunk) / chunk * chunk)
}

// endLine reads one line of a stream. An empty line ends an event; an event's data lines are
// joined.
func (m *meter) endLine(line []byte) {
	line = bytes.TrimSuffix(line, []byte("\r"))
	if len(line) == 0 {
		m.flush()
		return
	}
	data, ok := bytes.CutPrefix(line, []byte("data:"))
	if !ok {
		return
	}
	data = bytes.TrimPrefix(data, []byte(" "))
	if len(m.data) == 0 && complete(data) {
		m.event(data)
		return
	}
	if len(m.data)+len(data) > maxLine || !m.keep(len(data)) {
		m.data, m.bad = nil, true
		return
	}
	m.data = append(append(m.data, data...), '\n')
}

// complete is a cheap check whether an event's data can be complete.
func complete(data []byte) bool {
	return len(data) > 1 && data[0] == '{' && data[len(data)-1] == '}' || string(data) == "[DONE]"
}

func (m *meter) flush() {
	if len(m.data) > 0 {
		m.event(m.data)
		m.data = nil
	}
}

func (m *meter) event(data []byte) {
	if string(bytes.TrimSpace(data)) == "[DONE]" {
		m.done = true
	}
	if len(data) > 0 && data[0] == '{' {
		m.shape.object(&m.reading, data)
	}
}

// end is called when a stream is over.
func (m *meter) end() {
	if len(m.line) > 0 {
		m.endLine(m.line)
		m.line = nil
	}
	m.flush()
}
