package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type jsonRenderer struct{ w io.Writer }

// newJSON prints the events as they are, one JSON document per line.
func newJSON(w io.Writer) Renderer { return &jsonRenderer{w: w} }

func (r *jsonRenderer) Event(e workorder.Event) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(&e); err != nil {
		// Only a number that JSON lacks can do this; the rest of the event is kept.
		e.Usage, e.Result = nil, nil
		b.Reset()
		if enc.Encode(&e) != nil {
			return
		}
	}
	_, _ = r.w.Write(EscapeControls(b.Bytes())) // a reader that has gone away is no error
}

func (r *jsonRenderer) Close() {}

// EscapeControls escapes in JSON what it allows bare and a terminal obeys: DEL and
// the eight-bit controls. They can only stand inside strings.
func EscapeControls(b []byte) []byte {
	if bytes.IndexByte(b, 0x7f) < 0 && bytes.IndexByte(b, 0xc2) < 0 {
		return b
	}
	out := make([]byte, 0, len(b)+16)
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r >= 0x7f && r <= 0x9f {
			out = fmt.Appendf(out, `\u%04x`, r)
		} else {
			out = append(out, b[:n]...)
		}
		b = b[n:]
	}
	return out
}
