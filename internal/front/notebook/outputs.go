package notebook

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/sandbox"
)

// The bounds of what one cell leaves in its notebook.
const (
	// MaxText bounds what a cell prints, in bytes, on both streams: the rest is counted.
	MaxText = 1 << 20
	// MaxShown bounds what a cell shows, pictures above all, in bytes, and maxShows in pieces.
	MaxShown = 16 << 20
	maxShows = 1000
	// maxType bounds the name of a MIME type.
	maxType = 200
)

// stream, display, and failure are outputs as the format has them.
type (
	stream struct {
		Type string   `json:"output_type"`
		Name string   `json:"name"`
		Text []string `json:"text"`
	}
	display struct {
		Type     string                     `json:"output_type"`
		Data     map[string]json.RawMessage `json:"data"`
		Metadata json.RawMessage            `json:"metadata"`
	}
	result struct {
		display
		Count int `json:"execution_count"`
	}
	failure struct {
		Type      string   `json:"output_type"`
		Name      string   `json:"ename"`
		Value     string   `json:"evalue"`
		Traceback []string `json:"traceback"`
	}
)

// outputs collects what a cell prints and shows, in order and bounded. What comes is of a sandbox and not to be
// trusted. It is used by one at a time.
type outputs struct {
	count  int
	all    []any
	name   string // of the stream that text is of
	text   []byte
	room   int
	left   int64 // bytes of text beyond it
	space  int
	shows  int
	hidden int  // of what was shown
	result bool // something that was shown is the cell's value
}

func newOutputs(count int) *outputs { return &outputs{count: count, room: MaxText, space: MaxShown} }

type writer struct {
	o    *outputs
	name string
}

func (w writer) Write(p []byte) (int, error) {
	w.o.print(w.name, p)
	return len(p), nil
}

func (o *outputs) print(name string, p []byte) {
	if name != o.name {
		o.flush()
		o.name = name
	}
	if over := len(p) - o.room; over > 0 {
		o.left += int64(over)
		p = p[:o.room]
	}
	o.text = append(o.text, p...)
	o.room -= len(p)
}

// flush makes an output of the text that there is.
func (o *outputs) flush() {
	if len(o.text) > 0 {
		o.all = append(o.all, stream{"stream", o.name, splitLines(string(o.text))})
	}
	o.text = nil
}

// splitLines is a text line by line; what is no UTF-8 in it becomes U+FFFD, since JSON has no other.
func splitLines(s string) []string {
	all := strings.SplitAfter(strings.ToValidUTF8(s, "\uFFFD"), "\n")
	if last := len(all) - 1; all[last] == "" {
		all = all[:last]
	}
	return all
}

// show takes something to look at.
func (o *outputs) show(d sandbox.Display) {
	data, size := map[string]json.RawMessage{}, 0
	for mime, v := range d.Data {
		if wellFormed(mime, v) {
			data[mime] = v
			size += len(mime) + len(v)
		}
	}
	meta := d.Metadata
	if json.Unmarshal(meta, &object{}) != nil || string(meta) == "null" {
		meta = json.RawMessage("{}")
	}
	size += len(meta)
	if len(data) == 0 || size > o.space || o.shows >= maxShows {
		o.hidden++
		return
	}
	o.flush()
	o.space -= size
	o.shows++
	shown := display{"display_data", data, meta}
	if !d.Result {
		o.all = append(o.all, shown)
		return
	}
	shown.Type, o.result = "execute_result", true
	o.all = append(o.all, result{shown, o.count})
}

// wellFormed reports whether the format takes something of that type: text, and of JSON anything.
func wellFormed(mime string, v json.RawMessage) bool {
	if mime == "" || len(mime) > maxType || !json.Valid(v) {
		return false
	}
	if mime == "application/json" || strings.HasSuffix(mime, "+json") {
		return true
	}
	_, err := lines(v)
	return err == nil && string(v) != "null"
}

// end is all outputs of a cell that has ended.
func (o *outputs) end(r sandbox.CellResult) []any {
	if o.left > 0 {
		o.print("stderr", nil)
		o.text = fmt.Appendf(o.text, "\n[%d bytes more were printed]\n", o.left)
	}
	if o.hidden > 0 {
		o.print("stderr", nil)
		o.text = fmt.Appendf(o.text, "\n[%d outputs more were shown, or of a form that a notebook cannot have]\n", o.hidden)
	}
	o.flush()
	if r.Value != "" && !o.result {
		value, err := encode(splitLines(r.Value))
		if err == nil && len(value) <= o.space {
			o.all = append(o.all, result{display{"execute_result", map[string]json.RawMessage{"text/plain": value}, json.RawMessage("{}")}, o.count})
		}
	}
	if !r.OK {
		name, why := reason(r)
		o.all = append(o.all, failure{"error", name, why, []string{name + ": " + why}})
	}
	return o.all
}

// reason is the name of what ended a cell without success, and what it says.
func reason(r sandbox.CellResult) (name, why string) {
	name, why = r.Error, r.Message
	switch {
	case r.OutOfMemory:
		return "OutOfMemory", "the interpreter was ended for lack of memory, and what it remembered is gone"
	case r.TimedOut && r.Ended:
		return "TimedOut", "the cell did not stop when its time was over: the interpreter was ended, and what it remembered is gone"
	case r.TimedOut:
		return "TimedOut", "the cell's time was over"
	case r.Ended:
		return "SessionEnded", fmt.Sprintf("the interpreter has ended with %d, and what it remembered is gone", r.ExitCode)
	case name == "":
		return "Error", fmt.Sprintf("it ended with %d", r.ExitCode)
	}
	return strings.ToValidUTF8(name, "\uFFFD"), strings.ToValidUTF8(why, "\uFFFD")
}
