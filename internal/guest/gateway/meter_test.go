package gateway

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func header(kind, encoding string) http.Header {
	h := http.Header{"Content-Type": {kind}}
	if encoding != "" {
		h.Set("Content-Encoding", encoding)
	}
	return h
}

// FuzzMeter: no stream, however it is cut, makes the meter fail, remember more than a line, or count what cannot
// be; and where it is cut does not matter.
func FuzzMeter(f *testing.F) {
	f.Add([]byte(strings.Join(anthropicEvents(5, 7), "\n\n")+"\n\n"), uint8(3))
	f.Add([]byte("data: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":-1}}}\r\n\r\ndata:[DONE]"), uint8(1))
	f.Add([]byte("data: {\"usage\":{\"prompt_tokens\":5,\ndata: \"completion_tokens\":9e99}}\n\n:x\nid: 3\n\n"), uint8(200))
	f.Fuzz(func(t *testing.T, b []byte, size uint8) {
		for _, api := range workorder.ModelAPIs() {
			whole := newMeter(newShape(api), header("text/event-stream", ""), anyRoom())
			whole.write(b)
			whole.end()
			cut := newMeter(newShape(api), header("text/event-stream", ""), anyRoom())
			for rest := b; len(rest) > 0; {
				n := min(len(rest), int(size)+1)
				cut.write(rest[:n])
				rest = rest[n:]
			}
			cut.end()
			if whole.reading != cut.reading {
				t.Errorf("in one piece %+v, in several %+v", whole.reading, cut.reading)
			}
			if !whole.sane() && !whole.bad {
				t.Errorf("counted %+v", whole.tokens)
			}
			if usd, _ := (price{rates: rates{Input: 1, Output: 1, CacheRead: 1, CacheWrite: 1}}).cost(whole.tokens); usd < 0 {
				t.Errorf("cost %v of %+v", usd, whole.tokens)
			}
		}
	})
}

func TestMeterOfGzip(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte(`{"model":"gpt-5","usage":{"prompt_tokens":7,"completion_tokens":8}}`))
	_ = z.Close()
	m := newMeter(openaiShape{}, header("application/json", "gzip"), anyRoom())
	if m.whole(packed.Bytes(), "gzip"); !m.final || m.input != 7 || m.output != 8 {
		t.Errorf("%+v", m.reading)
	}
	for _, h := range []http.Header{header("application/json", "br"), header("text/event-stream", "gzip"), header("text/html", ""), {}} {
		if m := newMeter(openaiShape{}, h, anyRoom()); !m.off {
			t.Errorf("%v is taken for something to read", h)
		}
	}
}

// TestLongLine: a line that is too long is dropped and not kept, and the rest is read.
func TestLongLine(t *testing.T) {
	m := newMeter(openaiShape{}, header("text/event-stream", ""), anyRoom())
	piece := bytes.Repeat([]byte("x"), 1<<20)
	for range 40 {
		m.write(piece)
		if len(m.line) > maxLine {
			t.Fatal("it is kept")
		}
	}
	m.write([]byte("\ndata: {\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":6}}\n\n"))
	if !m.bad || m.input != 5 {
		t.Errorf("%+v", m.reading)
	}
}

func BenchmarkMeter(b *testing.B) {
	stream := []byte(strings.Repeat(anthropicEvents(1, 1)[1]+"\n\n", 1000))
	b.SetBytes(int64(len(stream)))
	for b.Loop() {
		m := newMeter(&anthropicShape{}, header("text/event-stream", ""), anyRoom())
		m.write(stream)
	}
}
