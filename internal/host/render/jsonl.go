package render

import (
	"bytes"
	"encoding/json"
	"io"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type jsonRenderer struct{ w io.Writer }

// newJSON prints the unchanged events, one JSON document per line.
func newJSON(w io.Writer) Renderer { return &jsonRenderer{w: w} }

func (r *jsonRenderer) Event(e workorder.Event) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(&e); err != nil {
		// Only a number that JSON does not have can cause this; the rest of the event is kept.
		e.Usage, e.Result = nil, nil
		b.Reset()
		if enc.Encode(&e) != nil {
			return
		}
	}
	_, _ = r.w.Write(text.EscapeControls(b.Bytes())) // a reader that has gone away is not an error
}

func (r *jsonRenderer) Close() {}
