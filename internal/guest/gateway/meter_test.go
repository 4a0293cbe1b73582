package gateway

import (
	"bufio"
	"bytes"
	"errors"
	"io"
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
			whole := newMeter(newUsageParser(api), header("text/event-stream", ""), anyRoom())
			whole.write(b)
			whole.end()
			cut := newMeter(newUsageParser(api), header("text/event-stream", ""), anyRoom())
			for rest := b; len(rest) > 0; {
				n := min(len(rest), int(size)+1)
				cut.write(rest[:n])
				rest = rest[n:]
			}
			cut.end()
			if whole.usageState != cut.usageState {
				t.Errorf("in one piece %+v, in several %+v", whole.usageState, cut.usageState)
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

// streams are answers of each kind as they are on the wire, with what they used.
var streams = []struct {
	name, path, ask, answer string
	want                    tokens
}{
	{
		"messages with tools of the server and the cache", "/anthropic/v1/messages", `{"model":"claude-opus-5-5","stream":true}`,
		"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"claude-opus-5-5\",\"usage\":{\"input_tokens\":10,\"output_tokens\":1,\"cache_read_input_tokens\":100,\"cache_creation_input_tokens\":30,\"cache_creation\":{\"ephemeral_5m_input_tokens\":10,\"ephemeral_1h_input_tokens\":20}}}}\n\n" +
			"event: ping\ndata: {\"type\": \"ping\"}\n\n: a comment\n\n" +
			"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"ä…\\n\\\"usage\\\"\"}}\n\n" +
			"event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"input_tokens\":5010,\"output_tokens\":700,\"server_tool_use\":{\"web_search_requests\":3,\"web_fetch_requests\":1}}}\n\n" +
			"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
		tokens{input: 5010, output: 700, cacheRead: 100, cacheWrite: 30, cacheWrite1h: 20, searches: 3},
	},
	{
		"chat completions", "/openai/v1/chat/completions", `{"model":"gpt-5","stream":true}`,
		"data: {\"model\":\"gpt-5\",\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":null}\r\n\r\n" +
			"data: {\"model\":\"gpt-5\",\"choices\":[],\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":20,\"prompt_tokens_details\":{\"cached_tokens\":60},\"completion_tokens_details\":{\"reasoning_tokens\":15}}}\r\n\r\n" +
			"data: [DONE]\r\n\r\n",
		tokens{input: 40, output: 20, cacheRead: 60},
	},
	{
		"responses", "/openai/v1/responses", `{"model":"gpt-6.1-sol","stream":true}`,
		"event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"model\":\"gpt-6.1-sol\",\"usage\":null}}\n\n" +
			"event: response.reasoning_summary_text.delta\ndata: {\"type\":\"response.reasoning_summary_text.delta\",\"delta\":\"hm\"}\n\n" +
			"event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"model\":\"gpt-6.1-sol\",\"service_tier\":\"default\",\"output\":[{\"type\":\"web_search_call\"}],\ndata: \"usage\":{\"input_tokens\":100,\"input_tokens_details\":{\"cached_tokens\":50,\"cache_write_tokens\":20},\"output_tokens\":10}}}\n\n",
		tokens{input: 30, output: 10, cacheRead: 50, cacheWrite: 20, searches: 1},
	},
}

// TestStreamsCutAnywhere: the counts are right wherever the pieces of a stream end.
func TestStreamsCutAnywhere(t *testing.T) {
	for _, s := range streams {
		api := workorder.APIAnthropic
		if strings.HasPrefix(s.path, "/openai") {
			api = workorder.APIOpenAI
		}
		for at := range len(s.answer) {
			for _, pieces := range [][]string{{s.answer[:at], s.answer[at:]}, strings.SplitAfter(s.answer, s.answer[at:at+1])} {
				m := newMeter(newUsageParser(api), header("text/event-stream", ""), anyRoom())
				for _, p := range pieces {
					m.write([]byte(p))
				}
				m.end()
				if m.tokens != s.want || !m.final || m.bad {
					t.Fatalf("%s, cut at %d: %+v, want %+v", s.name, at, m.usageState, s.want)
				}
			}
		}
	}
}

// TestStreamsOnTheWire: each line reaches the client while the server, which sends byte by byte, has not begun the
// next one.
func TestStreamsOnTheWire(t *testing.T) {
	t.Parallel()
	for _, s := range streams {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			next := make(chan struct{}, 1)
			b := newBench(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				for i := range len(s.answer) {
					_, _ = io.WriteString(w, s.answer[i:i+1])
					_ = http.NewResponseController(w).Flush()
					if s.answer[i] != '\n' {
						continue
					}
					select {
					case <-next:
					case <-r.Context().Done():
						return
					}
				}
			}, nil)
			answer, _ := b.begin(s.path, s.ask)
			resp := <-answer
			if resp == nil {
				t.Fatal("no answer")
			}
			defer resp.Body.Close()
			in := bufio.NewReader(resp.Body)
			for line := range strings.Lines(s.answer) {
				if got, err := in.ReadString('\n'); got != line || err != nil && !errors.Is(err, io.EOF) {
					t.Fatalf("%q, %v, want %q", got, err, line)
				}
				next <- struct{}{}
			}
			if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
				t.Errorf("%q, %v", rest, err)
			}
			u, _ := b.Usage()
			if u.InputTokens != s.want.input || u.OutputTokens != s.want.output || u.CacheReadTokens != s.want.cacheRead || u.CacheWriteTokens != s.want.cacheWrite || u.CostUSD == nil {
				t.Errorf("%+v", u)
			}
		})
	}
}

// TestMeterWithoutRoom: an unfinished line that does not fit is dropped, and its content is unknown.
func TestMeterWithoutRoom(t *testing.T) {
	r := newMemoryLimit(3 * chunk)
	hold := &memoryShare{room: r}
	m := newMeter(openaiParser{}, header("text/event-stream", ""), hold)
	m.write([]byte("data: {\"usage\":"))
	if m.bad || r.left() == 3*chunk {
		t.Errorf("bad %v, %d bytes are left", m.bad, r.left())
	}
	for range 4 {
		m.write(bytes.Repeat([]byte("x"), chunk))
	}
	if !m.bad || m.line != nil {
		t.Error("it is kept")
	}
	if hold.release(); r.left() != 3*chunk {
		t.Errorf("%d bytes are left", r.left())
	}
}

func TestMeterIsOff(t *testing.T) {
	for _, h := range []http.Header{header("text/html", ""), {}} {
		if m := newMeter(openaiParser{}, h, anyRoom()); !m.off {
			t.Errorf("%v is taken for something to read", h)
		}
	}
}

// TestLongLine: a line that is too long is dropped and not kept, and the rest is read.
func TestLongLine(t *testing.T) {
	m := newMeter(openaiParser{}, header("text/event-stream", ""), anyRoom())
	piece := bytes.Repeat([]byte("x"), 1<<20)
	for range 40 {
		m.write(piece)
		if len(m.line) > maxLine {
			t.Fatal("it is kept")
		}
	}
	m.write([]byte("\ndata: {\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":6}}\n\n"))
	if !m.bad || m.input != 5 {
		t.Errorf("%+v", m.usageState)
	}
}

func BenchmarkMeter(b *testing.B) {
	stream := []byte(strings.Repeat(anthropicEvents(1, 1)[1]+"\n\n", 1000))
	b.SetBytes(int64(len(stream)))
	for b.Loop() {
		m := newMeter(&anthropicParser{}, header("text/event-stream", ""), anyRoom())
		m.write(stream)
	}
}
